"""HAProxy with a certificate, with its configuration in `deploy/`: gRPC and HTTP over TLS."""

import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import pytest
from support import topology
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.serving import make_image, serve

from captioner_client import CaptionClient, ClientOptions

trustme = pytest.importorskip("trustme", reason="trustme makes the certificates")
pytestmark = pytest.mark.skipif(topology.HAPROXY is None, reason="haproxy is not installed")


def issue(authority: trustme.CA, folder: Path) -> str:
    """A certificate as `deploy/haproxy/compose-tls.yml` mounts it; returns it."""
    issued = authority.issue_cert("localhost", "127.0.0.1")
    (folder / "tls.crt").write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
    (folder / "tls.key").write_bytes(issued.private_key_pem.bytes())
    return str(issued.cert_chain_pems[0].bytes().decode())


@dataclass(frozen=True)
class Front:
    address: str
    process: subprocess.Popen[bytes]
    authority: trustme.CA
    folder: Path

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def shown(self, protocol: str) -> tuple[str, str | None]:
        """The certificate that a caller sees, and the protocol that is agreed on."""
        context, (host, port) = self.context, self.address.split(":")
        context.set_alpn_protocols([protocol])
        with (
            socket.create_connection((host, int(port)), PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as encrypted,
        ):
            certificate = encrypted.getpeercert(True)
            assert certificate
            return ssl.DER_cert_to_PEM_cert(certificate), encrypted.selected_alpn_protocol()


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder, authority = tmp_path_factory.mktemp("haproxy"), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "roots.pem"))
    issue(authority, folder)
    with serve(FakeModel(), http_port=0) as server:
        assert server.server.http_url
        ports = int(server.address.rpartition(":")[2]), int(server.server.http_url.rpartition(":")[2])
        environment = {"TLS_CERTIFICATE": str(folder / "tls.crt")}
        with topology.haproxy_process([ports], folder, environment) as (address, _, process):
            yield Front(address, process, authority, folder)


def test_grpc_and_http_share_an_encrypted_port(front: Front) -> None:
    options = ClientOptions(root_certificates=front.folder / "roots.pem", timeout_s=PATIENCE_S)
    with CaptionClient(f"localhost:{front.address.rpartition(':')[2]}", options) as client:
        assert client.caption(make_image(1)).text == client.caption([make_image(1)])[0].text
        assert list(client.stream(make_image(1)))
    with httpx.Client(verify=front.context, timeout=PATIENCE_S) as http:
        answer = http.post(f"https://{front.address}/v1/caption", content=make_image(1))
        assert answer.status_code == 200 and answer.json()["caption"]


def test_http_1_and_2_are_agreed_on(front: Front) -> None:
    assert [front.shown(protocol)[1] for protocol in ("h2", "http/1.1")] == ["h2", "http/1.1"]
    if shutil.which("curl"):
        url = f"https://localhost:{front.address.rpartition(':')[2]}/v1/model"
        command = ["curl", "-s", "--http2", "--cacert", str(front.folder / "roots.pem")]
        done = subprocess.run(
            [*command, "-w", "%{http_version}", "-o", "/dev/null", url], capture_output=True
        )
        assert done.stdout == b"2"


def test_nobody_is_served_without_encryption(front: Front) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://{front.address}/v1/model", timeout=PATIENCE_S)
    with grpc.insecure_channel(front.address) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary("/captioner.v1.CaptionService/GetModel")(b"", timeout=PATIENCE_S)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with suppress(ValueError):  # where there is no older version at all
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    host, port = front.address.split(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as plain, pytest.raises(ssl.SSLError):
        old.wrap_socket(plain)


def test_a_renewed_certificate_is_read_on_reload(front: Front) -> None:
    renewed = issue(front.authority, front.folder)
    assert front.shown("h2")[0].split() != renewed.split()
    front.process.send_signal(signal.SIGUSR2)
    wait_until(lambda: front.shown("h2")[0].split() == renewed.split())
    assert (
        httpx.get(f"https://{front.address}/v1/model", verify=front.context, timeout=PATIENCE_S).status_code
        == 200
    )
