"""Whom a webhook's connection trusts."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import http.server
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from elasticd.shell.control.hooks import HookError, run_hook, tell
from elasticd.shell.control.webhook import context


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Of 127.0.0.1, by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own network")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    shown, secret = tmp_path / "shown.pem", tmp_path / "secret.pem"
    shown.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return shown, secret


class _Takes(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def server(shown: Path, secret: Path) -> Iterator[str]:
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(shown, secret)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Takes) as made:
        made.socket = secure.wrap_socket(made.socket, server_side=True)
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{made.server_address[1]}/"
        finally:
            made.shutdown()
            thread.join()


@pytest.mark.process
def test_the_certificates_of_an_own_network_count(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = {"event": "job_failed", "text": "j-1 has failed"}
    with server(*certificate) as url:
        with pytest.raises(HookError, match="CERTIFICATE_VERIFY_FAILED"):
            asyncio.run(tell(url, message, run_hook, seconds=0))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        assert asyncio.run(tell(url, message, run_hook, seconds=0)).output == "HTTP 204\n"


def test_a_python_for_macos_that_trusts_nobody_trusts_whom_the_system_does(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown = str(certificate[0])
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "nothing"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing"))
    assert context(shown, "linux").cert_store_stats()["x509_ca"] == 0
    assert context(shown, "darwin").cert_store_stats()["x509_ca"] == 1
    monkeypatch.setenv("SSL_CERT_FILE", shown)
    assert context(str(tmp_path / "nothing"), "darwin").cert_store_stats()["x509_ca"] == 1
