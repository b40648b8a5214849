"""Certificates: whose they are, and that nobody else makes any."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import DamageError, ProtocolError
from elasticd.trust import authority, names
from elasticd.trust.authority import Authority, admit
from elasticd.trust.names import Issued
from elasticd.types import NodeId

OURS, THEIRS = Authority.make(), Authority.make()
SECRET = b"s" * 32
KEY = authority.new_key()
NODE = NodeId("mac-1")
CERTIFICATE = OURS.issue(authority.request_of(KEY), NODE, SECRET)
DER = authority.to_der(CERTIFICATE)
REQUEST_PEM = authority.request_of(KEY)
REQUEST = x509.load_pem_x509_csr(REQUEST_PEM).public_bytes(serialization.Encoding.DER)


def request(key: object, name: str = "x") -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    )
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    made = builder.sign(key, algorithm)  # type: ignore[arg-type]
    return made.public_bytes(serialization.Encoding.PEM)


def test_a_certificate_is_of_its_authority_node_and_key() -> None:
    assert authority.was_issued_by(OURS.certificate, DER)
    assert not authority.was_issued_by(THEIRS.certificate, DER)
    assert authority.fits(CERTIFICATE, KEY)
    assert not authority.fits(CERTIFICATE, authority.new_key())
    assert authority.issued(CERTIFICATE).name == names.opaque_name(SECRET, NODE)
    assert names.cluster_id(OURS.certificate) != names.cluster_id(THEIRS.certificate)


def test_a_certificate_says_nothing_to_strangers() -> None:
    text = DER + x509.load_pem_x509_certificate(CERTIFICATE).subject.rfc4514_string().encode()
    assert NODE.encode() not in text and SECRET not in text
    assert names.cluster_id(OURS.certificate).encode() not in text
    # Who knows the node's id can't check that it is there.
    assert names.opaque_name(b"t" * 32, NODE) != names.opaque_name(SECRET, NODE)


def test_what_asks_chooses_nothing_but_its_key() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    made = OURS.issue(request(key, "another name"), NODE, SECRET)
    assert authority.issued(made).name == names.opaque_name(SECRET, NODE)


def test_a_member_makes_no_members() -> None:
    member = admit(OURS, NODE, SECRET)
    signed = Authority(member.key, member.certificate)
    made = signed.issue(authority.request_of(authority.new_key()), NodeId("b"), SECRET)
    assert not authority.was_issued_by(OURS.certificate, authority.to_der(made))
    found = x509.load_pem_x509_certificate(member.certificate)
    limits = found.extensions.get_extension_for_class(x509.BasicConstraints)
    assert limits.critical and not limits.value.ca


def test_serials_grow_with_time() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    serials = []
    for seconds in range(3):
        made = OURS.issue(authority.request_of(KEY), NODE, SECRET, at + timedelta(seconds=seconds))
        serials.append(authority.issued(made))
    assert sorted(serials, key=lambda each: each.serial) == serials
    assert [each.made_unix for each in serials] == [at.timestamp() + n for n in range(3)]
    assert all(each.serial.bit_length() < 160 for each in serials)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (b"", "can't be read"),
        (b"x" * (authority.REQUEST_BYTES + 1), "too long"),
        (CERTIFICATE, "can't be read"),
        (request(ec.generate_private_key(ec.SECP384R1())), "another curve"),
        (request(ed25519.Ed25519PrivateKey.generate()), "P-256"),
    ],
)
def test_a_request_that_is_none(asked: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        authority.key_of_request(asked)
    with pytest.raises(ProtocolError, match=reason):
        OURS.issue(asked, NODE, SECRET)


@given(st.data())
def test_a_request_that_was_changed_is_refused_or_says_the_same(data: st.DataObject) -> None:
    changed = bytearray(REQUEST)
    changed[data.draw(st.integers(0, len(REQUEST) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    body = base64.encodebytes(bytes(changed))
    lines = (b"-----BEGIN CERTIFICATE REQUEST-----\n", body, b"-----END CERTIFICATE REQUEST-----\n")
    # What is around the signature can be written in several ways; what is signed can't.
    with contextlib.suppress(ProtocolError):
        assert authority.key_of_request(b"".join(lines)) == authority.key_of_request(REQUEST_PEM)


@given(st.binary(max_size=200))
def test_whatever_is_no_certificate(data: bytes) -> None:
    assert not authority.was_issued_by(OURS.certificate, data)
    assert not authority.is_vouched_for(OURS.certificate, data, b"")
    assert not authority.is_vouched_for(OURS.certificate, DER, data)
    with pytest.raises(DamageError):
        authority.issued(data)


def test_a_certificate_of_a_version_that_there_is_not() -> None:
    """What parsers raise for it is no ValueError."""
    strange = DER.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x09", 1)
    assert strange != DER
    assert not authority.was_issued_by(OURS.certificate, strange)
    assert not authority.is_vouched_for(OURS.certificate, strange, b"")
    with pytest.raises(DamageError, match="can't be read"):
        authority.alone(ssl.DER_cert_to_PEM_cert(strange).encode())


def test_only_the_authority_vouches_and_for_one() -> None:
    other = OURS.issue(authority.request_of(KEY), NodeId("b"), SECRET)
    proof = OURS.vouch(CERTIFICATE)
    assert authority.is_vouched_for(OURS.certificate, DER, proof)
    assert not authority.is_vouched_for(OURS.certificate, authority.to_der(other), proof)
    assert not authority.is_vouched_for(OURS.certificate, DER, THEIRS.vouch(CERTIFICATE))
    assert not authority.is_vouched_for(THEIRS.certificate, DER, proof)


def test_only_the_first_certificate_of_a_text_counts() -> None:
    both = OURS.certificate + THEIRS.certificate
    assert authority.alone(both) == OURS.certificate
    assert names.cluster_id(both) == names.cluster_id(OURS.certificate)


def test_a_cluster_is_called_by_the_digest_of_its_authoritys_certificate() -> None:
    digest = hashlib.sha256(authority.to_der(OURS.certificate)).hexdigest()
    for text in (OURS.certificate, b"\n" + OURS.certificate.replace(b"\n", b"\r\n") + b"\n"):
        assert names.cluster_id(text) == digest


@given(st.binary(max_size=200))
def test_what_is_no_certificate_names_no_cluster(data: bytes) -> None:
    with pytest.raises(DamageError):
        names.cluster_id(data)


def test_a_member_whose_parts_dont_belong_together() -> None:
    member = admit(OURS, NODE, SECRET)
    authority.check(member)
    for change in (
        {"key": authority.new_key()},
        {"node": NodeId("b")},
        {"secret": b"t" * 32},
        {"authority": THEIRS.certificate},
        {"certificate": admit(OURS, NODE, SECRET).certificate},
        {"certificate": b"x"},
        {"key": b"x"},
    ):
        with pytest.raises(DamageError):
            authority.check(dataclasses.replace(member, **change))


def test_who_is_issued_is_equal_by_name_and_serial() -> None:
    assert authority.issued(CERTIFICATE) == authority.issued(CERTIFICATE)
    assert Issued("a", 1) != Issued("a", 2)
