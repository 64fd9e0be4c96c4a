"""Encryption: mutual TLS, certificates that are read again, plaintext."""

import datetime
import socket
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from support.models import FakeModel
from support.patience import PATIENCE_S
from support.serving import RunningServer, make_image, serve

from captioner_client import CaptionClient, ClientOptions, ServerUnavailableError
from captioner_server import probe
from captioner_server.errors import ServerStartError
from captioner_server.tls import is_local

certificates = pytest.importorskip("support.certificates", reason="trustme makes the certificates")
Authority, shown_certificate = certificates.Authority, certificates.shown_certificate

DAY = datetime.timedelta(days=1)


def test_with_mutual_tls_only_callers_with_a_certificate_come_in(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    ours, our_key = authority.issue("client")
    options = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": authority.roots}
    with serve(FakeModel(), **options) as server:
        address = f"localhost:{server.address.rpartition(':')[2]}"
        known = ClientOptions(root_certificates=authority.roots, certificate=ours, key=our_key)
        with CaptionClient(address, known) as client:
            assert client.caption(make_image(1)).text
        stranger = ClientOptions(root_certificates=authority.roots, max_attempts=1, timeout_s=3)
        with CaptionClient(address, stranger) as client, pytest.raises(Exception, match="localhost"):
            client.caption(make_image(1))
        own = ["--certificate", str(ours), "--key", str(our_key)]
        assert probe.main([server.address, *own]) == 0
        assert probe.main([server.address]) == 1


def test_a_certificate_that_is_not_trusted_is_told_with_what_to_give(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    with serve(FakeModel(), tls_certificate=certificate, tls_key=key) as server:
        options = ClientOptions(tls=True, max_attempts=1, wait_s=0)
        with (
            CaptionClient(server.address, options) as client,
            pytest.raises(ServerUnavailableError, match=r"root_certificates=, --root-certificates FILE"),
        ):
            client.get_model()


def test_a_new_certificate_is_used_without_a_restart(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    with serve(FakeModel(), tls_certificate=certificate, tls_key=key) as server:
        assert shown_certificate(server.address) == certificate.read_text()
        before = certificate.read_bytes()
        time.sleep(0.01)
        other, other_key = authority.issue("other")
        certificate.write_bytes(other.read_bytes())  # only half of it is there yet
        assert shown_certificate(server.address) == before.decode()
        key.write_bytes(other_key.read_bytes())
        assert shown_certificate(server.address) == certificate.read_text()
        assert probe.main([server.address]) == 0


def test_certificates_may_be_replaced_while_callers_connect(authority: Authority) -> None:
    pairs = [[path.read_bytes() for path in authority.issue(name)] for name in ("first", "second")]
    certificate, key = authority.issue("server")
    stop = threading.Event()

    def replace() -> None:
        while not stop.is_set():
            for new, new_key in pairs:
                certificate.write_bytes(new)
                key.write_bytes(new_key)

    with serve(FakeModel(), tls_certificate=certificate, tls_key=key) as server:
        replacing = threading.Thread(target=replace)
        replacing.start()
        options = ClientOptions(root_certificates=authority.roots, timeout_s=PATIENCE_S)
        try:
            for _ in range(20):
                with CaptionClient(f"localhost:{server.address.rpartition(':')[2]}", options) as client:
                    assert client.get_model().name
        finally:
            stop.set()
            replacing.join()
        assert shown_certificate(server.address) == certificate.read_text()


def test_a_certificate_that_is_there_only_while_others_are_read_is_not_used(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would stay in use: the files are then those that were read before."""
    certificate, key = authority.issue("server")
    with serve(FakeModel(), tls_certificate=certificate, tls_key=key) as server:
        second, third = ([path.read_bytes() for path in authority.issue(name)] for name in ("2", "3"))
        load, configure = ssl.SSLContext.load_cert_chain, grpc.ssl_server_certificate_configuration

        def put(pair: list[bytes]) -> None:
            certificate.write_bytes(pair[0])
            key.write_bytes(pair[1])

        def load_then_change(context: ssl.SSLContext, *files: Any, **more: Any) -> None:
            load(context, *files, **more)
            put(third)

        def change_back_then_configure(*given: Any) -> Any:
            put(second)
            return configure(*given)

        put(second)
        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_then_change)
        monkeypatch.setattr(grpc, "ssl_server_certificate_configuration", change_back_then_configure)
        with suppress(ssl.SSLError):  # it connects twice, and may be shown two certificates
            shown_certificate(server.address)
        monkeypatch.undo()
        assert shown_certificate(server.address) == certificate.read_text()


def test_files_that_are_replaced_while_they_are_read_change_nothing_yet(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = authority.issue("server")
    with serve(FakeModel(), tls_certificate=certificate, tls_key=key) as server:
        new, new_key = authority.issue("new")
        newest, newest_key = authority.issue("newest")
        certificate.write_bytes(new.read_bytes())
        key.write_bytes(new_key.read_bytes())
        load = ssl.SSLContext.load_cert_chain

        def replaced(context: ssl.SSLContext, *files: object, **more: object) -> None:
            load(context, *files, **more)
            if certificate.read_bytes() == new.read_bytes():
                certificate.unlink()  # the next pair comes, its certificate first
                key.write_bytes(newest_key.read_bytes())

        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", replaced)
        assert shown_certificate(server.address)
        certificate.write_bytes(newest.read_bytes())
        assert shown_certificate(server.address) == newest.read_text()
        assert not [record for record in caplog.records if record.exc_info]


def connect(server: RunningServer, authority: Authority, *own: Path) -> httpx.Client:
    """An HTTPS client that trusts the authority and shows its own certificate, if it has one."""
    context = ssl.create_default_context(cafile=authority.roots)
    if own:
        context.load_cert_chain(*own)
    assert server.server.http_url and server.server.http_url.startswith("https://")
    port = server.server.http_url.rpartition(":")[2]
    return httpx.Client(base_url=f"https://localhost:{port}", verify=context, timeout=PATIENCE_S)


def test_http_takes_the_same_certificates_as_grpc(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    own = authority.issue("client")
    options = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": authority.roots}
    octets = {"content-type": "application/octet-stream"}
    with serve(FakeModel(), http_port=0, **options) as server:
        with connect(server, authority, *own) as known:
            assert known.post("/v1/caption", content=make_image(1), headers=octets).json()["caption"]
            assert "caption" in known.post("/v1/caption:stream", content=make_image(1), headers=octets).text
            with pytest.raises(httpx.HTTPError):
                httpx.get(str(known.base_url).replace("https", "http"), timeout=PATIENCE_S)
        with connect(server, authority) as stranger, pytest.raises(httpx.HTTPError):
            stranger.get("/healthz")


def test_a_new_certificate_is_used_over_http_without_a_restart(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    with serve(FakeModel(), http_port=0, tls_certificate=certificate, tls_key=key) as server:
        address = server.server.http_url.removeprefix("https://")
        assert shown_certificate(address) == certificate.read_text()
        before = certificate.read_bytes()
        time.sleep(0.01)
        other, other_key = authority.issue("other")
        certificate.write_bytes(other.read_bytes())  # only half of it is there yet
        assert shown_certificate(address) == before.decode()
        key.write_bytes(other_key.read_bytes())
        assert shown_certificate(address) == other.read_text()
        with connect(server, authority) as client:
            assert client.get("/healthz").status_code == 200


def test_other_authorities_of_callers_are_taken_over_http_without_a_restart(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    certificate, key = first.issue("server")
    roots = tmp_path / "roots.pem"
    roots.write_bytes(first.roots.read_bytes())
    options = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": roots}
    with serve(FakeModel(), http_port=0, **options) as server:
        with connect(server, first, *second.issue("client")) as new, pytest.raises(httpx.HTTPError):
            new.get("/healthz")
        time.sleep(0.01)
        roots.write_bytes(second.roots.read_bytes())
        with connect(server, first, *second.issue("client")) as new:
            assert new.get("/healthz").status_code == 200
        with connect(server, first, *first.issue("client")) as old, pytest.raises(httpx.HTTPError):
            old.get("/healthz")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_do_not_outlive_the_authority_of_their_caller(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first, second = (Authority(tmp_path / name) for name in ("first", "second"))
    certificate, key = first.issue("server")
    context = ssl.create_default_context(cafile=str(first.roots))
    context.load_cert_chain(*first.issue("client"))
    context.maximum_version = version
    callers = tmp_path / "callers.pem"
    callers.write_bytes(first.roots.read_bytes())
    options = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": callers}

    def call(server: RunningServer, session: ssl.SSLSession | None = None) -> tuple[bytes, Any]:
        assert server.server.http_url
        port = server.server.http_url.rpartition(":")[2]
        with socket.create_connection(("localhost", int(port)), PATIENCE_S) as plain:
            connection = context.wrap_socket(plain, server_hostname="localhost", session=session)
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return connection.recv(15), connection.session

    with serve(FakeModel(), http_port=0, **options) as server:
        answer, session = call(server)
        assert answer == b"HTTP/1.1 200 OK"
        time.sleep(0.01)
        callers.write_bytes(second.roots.read_bytes())
        for one in (None, session):
            with suppress(OSError):
                assert not call(server, one)[0]


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("[::]", False),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_plaintext_stays_on_this_machine_unless_told_otherwise(host: str, local: bool) -> None:
    assert is_local(host) is local


def test_plaintext_for_everybody_is_refused_in_one_line() -> None:
    with pytest.raises(ServerStartError, match="--insecure"), serve(None, host="0.0.0.0"):
        pass
    with serve(FakeModel(), host="0.0.0.0", insecure=True) as server:
        assert probe.main([server.address]) == 0


def test_a_client_says_which_host_the_certificates_of_several_servers_must_name(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = authority.issue("server")
    with serve(FakeModel(), tls_certificate=certificate, tls_key=key) as server:
        options = ClientOptions(root_certificates=authority.roots)
        with CaptionClient(
            ["127.0.0.1:1", server.address.replace("127.0.0.1", "localhost")], options
        ) as client:
            assert client.caption(make_image(1)).text
    assert "must be valid for 127.0.0.1, the first host" in caplog.text


def test_a_client_says_that_its_certificate_has_expired(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The server just closes the connection."""
    certificate, key = authority.issue("server")
    ours, our_key = authority.issue("client", expiry=datetime.datetime.now(datetime.UTC) - DAY)
    options = ClientOptions(
        root_certificates=authority.roots, certificate=ours, key=our_key, wait_s=0, max_attempts=1
    )
    with serve(None, tls_certificate=certificate, tls_key=key, tls_client_ca=authority.roots) as server:
        address = server.address.replace("127.0.0.1", "localhost")
        with CaptionClient(address, options) as client, pytest.raises(ServerUnavailableError):
            client.get_model()
    assert f"the client's certificate {ours} has expired" in caplog.text
    ours.write_text("-----BEGIN CERTIFICATE-----\nMII\N{EM DASH}\n-----END CERTIFICATE-----\n")
    with CaptionClient("127.0.0.1:1", options) as client, pytest.raises(ServerUnavailableError):
        client.get_model()
