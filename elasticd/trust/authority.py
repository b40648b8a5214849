"""The authority of a cluster: the key that makes certificates of members (RFC 5280, P-256).

Nothing in a certificate names the cluster or a node to strangers: TLS shows a server's certificate
to whoever connects, before it knows who that is.

Only this needs ``cryptography``. That takes 13 MiB, so a daemon loads it when it makes members, and
the commands that make or join a cluster do.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from elasticd.errors import DamageError, ProtocolError
from elasticd.trust.member import MemberPapers
from elasticd.trust.names import DICE_BITS, Issued, last_serial, opaque_name
from elasticd.types import NodeId

YEARS = 20
"""A certificate is good for so long. Who is to be put out is revoked; a date that ends a run at
three in the morning helps nobody."""
REQUEST_BYTES = 4096
"""A request for a certificate is no longer."""
_BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
"""Before the clock of any Mac that has lost the time."""
_COMMON = "elasticd"


def new_key() -> bytes:
    """A private key, as PEM."""
    return _private_pem(ec.generate_private_key(ec.SECP256R1()))


def request_of(key_pem: bytes) -> bytes:
    """What the owner of a key sends to get a certificate, as PEM; it proves that it has the key."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(_COMMON))
    return builder.sign(_private(key_pem), hashes.SHA256()).public_bytes(_PEM)


def key_of_request(request_pem: bytes) -> str:
    """The digest of the key that asks, 64 hex: the same key asks again after a fault.

    Raises:
        ProtocolError: it is no sound request.
    """
    return _digest_of_key(_request(request_pem).public_key())


def key_of(certificate_der: bytes) -> str:
    """The digest of the key of a certificate, as :func:`key_of_request` has it.

    Raises:
        DamageError: it is none.
    """
    return _digest_of_key(_public(_from_der(certificate_der)))


def belongs(certificate_pem: bytes, authority_pem: bytes) -> bool:
    """As :func:`was_issued_by`, of a certificate as PEM.

    Raises:
        DamageError: one of them is no certificate.
    """
    der = _certificate(certificate_pem).public_bytes(serialization.Encoding.DER)
    return was_issued_by(authority_pem, der)


def was_issued_by(authority_pem: bytes, certificate_der: bytes) -> bool:
    """Whether an authority has made a certificate; dates are not looked at."""
    try:
        _from_der(certificate_der).verify_directly_issued_by(_certificate(authority_pem))
    except (DamageError, ValueError, TypeError, InvalidSignature):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Authority:
    """The key that makes members, and its certificate; both PEM."""

    key: bytes
    certificate: bytes

    @classmethod
    def make(cls) -> Authority:
        """A new one, of which nobody is a member yet."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(_COMMON), _name(_COMMON), _serial(datetime.now(UTC)), YEARS)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            builder.public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(_private_pem(key), certificate.public_bytes(_PEM))

    def issue(
        self,
        request_pem: bytes,
        node: NodeId,
        secret: bytes,
        at: datetime | None = None,
        years: float = YEARS,
    ) -> bytes:
        """The certificate of ``node`` for the key that asks, as PEM.

        Raises:
            ProtocolError: it is no sound request.
        """
        asking = _request(request_pem).public_key()
        ours = _certificate(self.certificate)
        name = _name(opaque_name(secret, node))
        identifier = x509.SubjectKeyIdentifier.from_public_key(asking)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(_public(ours))
        both = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        made = (
            _builder(name, ours.subject, _serial(at or datetime.now(UTC)), years)
            .public_key(asking)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(both, critical=False)
            .add_extension(identifier, critical=False)
            .add_extension(issuer, critical=False)
            .sign(_private(self.key), hashes.SHA256())
        )
        return made.public_bytes(_PEM)

    def vouch(self, certificate_pem: bytes) -> bytes:
        """What shows who wants to join that the owner of this certificate makes members: any
        member could say so of itself, also one that was put out."""
        signed = _vouched(_certificate(certificate_pem))
        return _private(self.key).sign(signed, ec.ECDSA(hashes.SHA256()))


def is_vouched_for(authority_pem: bytes, certificate_der: bytes, proof: bytes) -> bool:
    """Whether ``proof`` is what :meth:`Authority.vouch` said of the owner of a certificate."""
    try:
        signed = _vouched(_from_der(certificate_der))
        _public(_certificate(authority_pem)).verify(proof, signed, ec.ECDSA(hashes.SHA256()))
    except (ValueError, DamageError, InvalidSignature):
        return False
    return True


def issued(certificate_pem: bytes) -> Issued:
    """Who a certificate is of.

    Raises:
        DamageError: it is none.
    """
    found = _certificate(certificate_pem)
    names = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise DamageError("the certificate names nobody")
    return Issued(str(names[0].value), found.serial_number)


def alone(certificate_pem: bytes) -> bytes:
    """The first certificate of a text, without what else is in it.

    Raises:
        DamageError: there is none.
    """
    return _certificate(certificate_pem).public_bytes(_PEM)


def to_der(certificate_pem: bytes) -> bytes:
    return _certificate(certificate_pem).public_bytes(serialization.Encoding.DER)


def good_until(certificate_pem: bytes) -> datetime:
    return _certificate(certificate_pem).not_valid_after_utc


def good_from_until(certificate_pem: bytes) -> tuple[datetime, datetime]:
    """Between which two moments a certificate is valid.

    Raises:
        DamageError: it is none.
    """
    found = _certificate(certificate_pem)
    return found.not_valid_before_utc, found.not_valid_after_utc


def fits(certificate_pem: bytes, key_pem: bytes) -> bool:
    """Whether a certificate is of this key."""
    return _digest_of_key(_public(_certificate(certificate_pem))) == _digest_of_key(
        _private(key_pem).public_key()
    )


def check(member: MemberPapers) -> None:
    """Raises DamageError: a member's parts don't belong together."""
    if not belongs(member.certificate, member.authority):
        raise DamageError("the certificate is of another authority")
    if not fits(member.certificate, member.key):
        raise DamageError("the certificate is of another key")
    if issued(member.certificate).name != member.name_of(member.node):
        raise DamageError(f"the certificate is not that of {member.node}")


def admit(
    founder: Authority, node: NodeId, secret: bytes, at: datetime | None = None
) -> MemberPapers:
    """A member whose key is made here: the first of a cluster, or one on the same machine."""
    key = new_key()
    certificate = founder.issue(request_of(key), node, secret, at)
    return MemberPapers(node, secret, founder.certificate, certificate, key)


_PEM = serialization.Encoding.PEM


def _vouched(certificate: x509.Certificate) -> bytes:
    return b"makes members " + certificate.fingerprint(hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _serial(at: datetime) -> int:
    return last_serial(at.timestamp()) - secrets.randbits(DICE_BITS)


def _builder(
    subject: x509.Name, issuer: x509.Name, serial: int, years: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(serial)
        .not_valid_before(_BEGIN)
        .not_valid_after(datetime.now(UTC) + timedelta(days=365.25 * years))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _private(key_pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(key_pem, None)
    except (ValueError, TypeError):
        raise DamageError("the private key can't be read") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DamageError("the private key is of another kind")
    return key


def _certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except (ValueError, x509.InvalidVersion):
        raise DamageError("the certificate can't be read") from None


def _from_der(der: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except (ValueError, x509.InvalidVersion):
        raise DamageError("the certificate can't be read") from None


def _public(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise DamageError("the certificate is of another kind of key")
    return key


def _request(pem: bytes) -> x509.CertificateSigningRequest:
    if len(pem) > REQUEST_BYTES:
        raise ProtocolError("its request for a certificate is too long")
    try:
        found = x509.load_pem_x509_csr(pem)
        sound = found.is_signature_valid
        key = found.public_key()
    except Exception:  # of the many that the parser raises on what a stranger sends
        raise ProtocolError("its request for a certificate can't be read") from None
    if not sound or not isinstance(key, ec.EllipticCurvePublicKey):
        raise ProtocolError("its request for a certificate is not signed with a key on P-256")
    if not isinstance(key.curve, ec.SECP256R1):
        raise ProtocolError("its request for a certificate has a key on another curve than P-256")
    return found


def _digest_of_key(key: object) -> str:
    assert isinstance(key, ec.EllipticCurvePublicKey)
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()
