"""Certificates and keys of a server: files that cannot be used, and when they expire."""

import datetime
import math
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.serving import RunningServer, serve

from captioner.errors import OptionsError
from captioner_server.errors import ServerStartError
from captioner_server.options import ServerOptions

certificates = pytest.importorskip("support.certificates", reason="trustme makes the certificates")
Authority, shown_certificate = certificates.Authority, certificates.shown_certificate
x509 = pytest.importorskip("cryptography.x509")  # which trustme takes
hashes = pytest.importorskip("cryptography.hazmat.primitives.hashes")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
ec, ed25519, rsa = (
    pytest.importorskip(f"cryptography.hazmat.primitives.asymmetric.{name}")
    for name in ("ec", "ed25519", "rsa")
)

DAY = datetime.timedelta(days=1)


def test_files_that_do_not_fit_are_one_line(authority: Authority) -> None:
    certificate, _ = authority.issue("server")
    _, other_key = authority.issue("other")
    with (
        pytest.raises(ServerStartError) as caught,
        serve(None, tls_certificate=certificate, tls_key=other_key),
    ):
        pass
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(OptionsError):
        ServerOptions(tls_client_ca=authority.roots)


def test_a_file_that_holds_no_authority_is_said_in_words(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    authority.roots.write_bytes(key.read_bytes())
    with (
        pytest.raises(ServerStartError, match=r"roots\.pem: it has no certificate in PEM"),
        serve(None, tls_certificate=certificate, tls_key=key, tls_client_ca=authority.roots),
    ):
        pass


def damage(certificate: bytes, key: bytes) -> dict[str, tuple[bytes, bytes]]:
    """Pairs that cannot be used, by what is said of them."""
    opened = serialization.load_pem_private_key(key, None)
    pkcs8, old = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL
    form, password = serialization.Encoding.PEM, serialization.BestAvailableEncryption(b"password")
    return {
        "is encrypted": (certificate, opened.private_bytes(form, pkcs8, password)),
        "is encrypted, and no": (certificate, opened.private_bytes(form, old, password)),
        "server.pem has no certificate": (certificate[:-30], key),
        "server.pem has no certificate in": (key, certificate),
        "server.pem has no": (b"", b""),
        "server.key has no key": (certificate, b""),
        "server.key has no key in": (certificate, key[:-10]),
    }


def test_what_is_wrong_with_a_certificate_or_key_is_said(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = authority.issue("server")
    good = certificate.read_bytes(), key.read_bytes()
    with serve(None, tls_certificate=certificate, tls_key=key) as server:
        for reason, pair in damage(*good).items():
            for path, content in zip((certificate, key), pair, strict=True):
                path.write_bytes(content)
            with (
                pytest.raises(ServerStartError, match=reason),
                serve(None, tls_certificate=certificate, tls_key=key),
            ):
                pass
            assert shown_certificate(server.address) == good[0].decode()
            assert reason in caplog.records[-1].fields["reason"]


def test_files_that_cannot_be_used_are_told_where_only_http_is_called(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    good = certificate.read_bytes()
    with serve(None, http_port=0, tls_certificate=certificate, tls_key=key) as server:
        address = server.server.http_url.removeprefix("https://")
        for content, unusable in ((b"", 1), (good, 0)):
            certificate.write_bytes(content)
            assert shown_certificate(address) == good.decode()
            assert server.metric("unusable_files", file="certificate") == unusable


@pytest.mark.parametrize(
    ("days", "warning"), [(-1, "has expired"), (13, "expires soon"), (15, ""), (365 * 60, "")]
)
def test_when_a_certificate_expires_is_told(
    authority: Authority, days: int, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    expiry = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(days)
    certificate, key = authority.issue("server", expiry=expiry)
    good, good_key = (path.read_bytes() for path in authority.issue("good"))
    warned = [("certificate " + warning, expiry.isoformat())] if warning else []

    def warnings() -> list[tuple[str, str]]:
        records = [record for record in caplog.records if record.levelname == "WARNING"]
        return [(record.getMessage(), record.fields["expires"]) for record in records]

    with serve(None, http_port=0, tls_certificate=certificate, tls_key=key) as server:
        assert server.metric("certificate_expiry_timestamp_seconds") == expiry.timestamp()
        assert warnings() == warned
        ports = [int(url.rpartition(":")[2]) for url in (server.address, server.server.http_url)]
        for pair in ((good, good_key), (certificate.read_bytes(), key.read_bytes())):
            certificate.write_bytes(pair[0])
            key.write_bytes(pair[1])
            assert {ssl.get_server_certificate(("localhost", port)) for port in ports} == {pair[0].decode()}
        assert server.metric("certificate_expiry_timestamp_seconds") == expiry.timestamp()
    assert warnings() == warned * 2, "once for each reading"


def test_when_authorities_of_callers_expire_is_told(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = authority.issue("server")
    roots = tmp_path / "callers.pem"

    def read(*valid: datetime.timedelta) -> None:
        pem = [
            self_signed(tmp_path, ec.generate_private_key(ec.SECP256R1()), each)[0].read_bytes()
            for each in valid
        ]
        roots.write_bytes(b"\n".join([b"the authorities of callers", authority.roots.read_bytes(), *pem]))

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    def is_told(server: RunningServer, valid: datetime.timedelta) -> bool:
        expected = datetime.datetime.now(datetime.UTC) + valid
        return abs(server.metric("client_ca_expiry_timestamp_seconds") - expected.timestamp()) < 3600

    read(-DAY, 13 * DAY, 15 * DAY)
    with serve(None, http_port=0, tls_certificate=certificate, tls_key=key, tls_client_ca=roots) as server:
        told = ["authority of callers has expired", "authority of callers expires soon"]
        assert warnings() == told and is_told(server, -DAY)
        read(-DAY)
        for url in (server.address, server.server.http_url):
            assert shown_certificate(url.removeprefix("https://")) == certificate.read_text()
        assert warnings() == [*told, told[0]]
        read(15 * DAY, 20 * DAY)
        assert shown_certificate(server.address) == certificate.read_text()
        assert is_told(server, 15 * DAY)


def test_a_certificate_until_a_13th_month_is_an_error_of_one_line(authority: Authority) -> None:
    expiry = datetime.datetime(2049, 12, 11, 10, 9, 8, tzinfo=datetime.UTC)
    certificate, key = authority.issue("server", expiry=expiry)
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text().partition("-----END")[0] + ssl.PEM_FOOTER)
    assert der.count(b"491211100908Z") == 1
    certificate.write_text(ssl.DER_cert_to_PEM_cert(der.replace(b"491211100908Z", b"491311100908Z")))
    with (
        pytest.raises(ServerStartError, match="unusable"),
        serve(None, tls_certificate=certificate, tls_key=key),
    ):
        pass


def test_without_a_certificate_none_expires() -> None:
    with serve(None) as server:
        for what in ("certificate", "client_ca"):
            assert math.isnan(server.metric(f"{what}_expiry_timestamp_seconds"))


def self_signed(folder: Path, key: Any, valid: datetime.timedelta = DAY) -> tuple[Path, Path]:
    """A certificate of a key for localhost, and the file of the key."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )
    certificate, key_file = folder / "own.pem", folder / "own.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return certificate, key_file


@pytest.mark.parametrize(
    ("make", "usable"),
    [
        (lambda: rsa.generate_private_key(65537, 2048), True),
        (lambda: ec.generate_private_key(ec.SECP256R1()), True),
        (lambda: ec.generate_private_key(ec.SECP384R1()), True),
        (lambda: ec.generate_private_key(ec.SECP521R1()), False),
        (lambda: ec.generate_private_key(ec.SECP256K1()), False),
        (ed25519.Ed25519PrivateKey.generate, False),
    ],
    ids=["rsa", "p256", "p384", "p521", "secp256k1", "ed25519"],
)
def test_keys_that_grpc_cannot_serve_with_are_refused(
    authority: Authority,
    make: Callable[[], Any],
    usable: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    certificate, key = self_signed(tmp_path, make())
    if usable:
        with serve(None, tls_certificate=certificate, tls_key=key) as server:
            assert shown_certificate(server.address) == certificate.read_text()
        return
    with (
        pytest.raises(ServerStartError, match="not of a type"),
        serve(None, tls_certificate=certificate, tls_key=key),
    ):
        pass
    good, good_key = authority.issue("server")
    with serve(None, tls_certificate=good, tls_key=good_key) as server:
        before = good.read_text()
        good.write_bytes(certificate.read_bytes())
        good_key.write_bytes(key.read_bytes())
        for _ in range(3):
            assert shown_certificate(server.address) == before
        assert caplog.text.count("certificate not read again") == 1
        assert server.metric("unusable_files", file="certificate") == 1


def test_a_pipe_is_no_certificate(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    with serve(None, tls_certificate=certificate, tls_key=key) as server:
        before = certificate.read_text()
        certificate.unlink()
        os.mkfifo(certificate)
        assert shown_certificate(server.address) == before
    with (
        pytest.raises(ServerStartError, match="not a regular file"),
        serve(None, tls_certificate=certificate, tls_key=key),
    ):
        pass
