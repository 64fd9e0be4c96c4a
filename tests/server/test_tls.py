"""Encryption and who may call: mutual TLS, files that are read again, tokens with names, no plaintext by
mistake."""

import asyncio
import os
import socket
import ssl
import time
import urllib.request
from pathlib import Path

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.engines import FakeEngine
from support.patience import PATIENCE_S, wait_until
from support.processes import server_process
from support.serving import RunningServer, make_image, serve

from captioner.errors import OptionsError
from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_client import CaptionClient, ClientOptions
from captioner_server import probe
from captioner_server.admission.guessers import address_of
from captioner_server.admission.tokens import Tokens, read_tokens
from captioner_server.errors import ServerStartError, UnauthenticatedError
from captioner_server.options import ServerOptions
from captioner_server.tls import is_local

trustme = pytest.importorskip("trustme", reason="trustme makes the certificates")


class Authority:
    """An authority and its files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._authority = folder, trustme.CA()
        self.roots = folder / "roots.pem"
        self._authority.cert_pem.write_to_path(str(self.roots))

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """A certificate for these hosts, by default localhost, and its key."""
        issued = self._authority.issue_cert(*(hosts or ("localhost", "127.0.0.1")))
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        return certificate, key


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_with_mutual_tls_only_callers_with_a_certificate_come_in(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    ours, our_key = authority.issue("client")
    options = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": authority.roots}
    with serve(FakeEngine(), **options) as server:
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


def test_a_new_certificate_is_used_without_a_restart(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    with serve(FakeEngine(), tls_certificate=certificate, tls_key=key) as server:
        assert shown_certificate(server.address) == certificate.read_text()
        before = certificate.read_bytes()
        time.sleep(0.01)
        other, other_key = authority.issue("other")
        certificate.write_bytes(other.read_bytes())  # only half of it is there yet
        assert shown_certificate(server.address) == before.decode()
        key.write_bytes(other_key.read_bytes())
        assert shown_certificate(server.address) == certificate.read_text()
        assert probe.main([server.address]) == 0


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
    with serve(FakeEngine(), http_port=0, **options) as server:
        with connect(server, authority, *own) as known:
            assert known.post("/v1/caption", content=make_image(1), headers=octets).json()["caption"]
            assert "caption" in known.post("/v1/caption:stream", content=make_image(1), headers=octets).text
            with pytest.raises(httpx.HTTPError):
                httpx.get(str(known.base_url).replace("https", "http"), timeout=PATIENCE_S)
        with connect(server, authority) as stranger, pytest.raises(httpx.HTTPError):
            stranger.get("/healthz")


def test_a_new_certificate_is_used_over_http_without_a_restart(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    with serve(FakeEngine(), http_port=0, tls_certificate=certificate, tls_key=key) as server:
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
    with serve(FakeEngine(), http_port=0, **options) as server:
        with connect(server, first, *second.issue("client")) as new, pytest.raises(httpx.HTTPError):
            new.get("/healthz")
        time.sleep(0.01)
        roots.write_bytes(second.roots.read_bytes())
        with connect(server, first, *second.issue("client")) as new:
            assert new.get("/healthz").status_code == 200
        with connect(server, first, *first.issue("client")) as old, pytest.raises(httpx.HTTPError):
            old.get("/healthz")


def shown_certificate(address: str) -> str:
    found = probe._certificate_of(address)
    assert found
    return found[0]


@pytest.mark.parametrize("host", ["*.example.com", "10.1.2.3"])
def test_the_probe_accepts_any_certificate(authority: Authority, host: str) -> None:
    certificate, key = authority.issue("server", host)
    with serve(FakeEngine(), tls_certificate=certificate, tls_key=key) as server:
        assert probe.main([server.address]) == 0


def test_the_probe_speaks_both(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    with serve(FakeEngine(), tls_certificate=certificate, tls_key=key) as server:
        assert probe.main([server.address]) == 0
        assert probe.main([server.address, "--root-certificates", str(authority.roots)]) == 0
    with serve(FakeEngine()) as server:
        assert probe.main([server.address]) == 0
    assert probe.main([server.address]) == 1


@pytest.mark.parametrize("address", ["localhost", "localhost:", "localhost:abc", "localhost:70000", ":50051"])
def test_the_probe_says_in_one_line_what_is_no_address(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        probe.main([address])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"must be HOST:PORT, got {address!r}")


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
    with serve(FakeEngine(), host="0.0.0.0", insecure=True) as server:
        assert probe.main([server.address]) == 0


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


def test_tokens_have_names_and_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("# who may call\nalice secret-a\n\nbob secret-b\n")

    async def run() -> None:
        tokens = Tokens(path)
        for scheme in ("Bearer", "bearer", "BEARER"):
            assert await tokens.name_of(f"{scheme} secret-a", "ipv4:1.2.3.4:5") == "alice"
        assert await tokens.name_of("Bearer secret-b", "") == "bob"
        for wrong in ("", "secret-a", "Basic secret-a", "Bearer secret", "Bearer secret-a x", "Bearer ü"):
            with pytest.raises(UnauthenticatedError):
                await tokens.name_of(wrong, f"ipv4:10.0.0.{len(wrong)}:1")
        path.write_text("carol secret-c\ndave d\n")
        tokens._checked_s = 0
        assert await tokens.name_of("Bearer secret-c", "") == "carol"
        times = path.stat()
        path.write_text("carol secret-d\ndave d\n")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        tokens._checked_s = 0
        with pytest.raises(UnauthenticatedError):
            await tokens.name_of("Bearer secret-c", "")
        assert await tokens.name_of("Bearer secret-d", "") == "carol"
        path.write_text("one two three\n")
        tokens._checked_s = 0
        assert await tokens.name_of("Bearer secret-d", "") == "carol"  # a broken file changes nothing

    asyncio.run(run())


class Guesses:
    """Tokens and a clock that only sleeping moves; `slept` are the delays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        (folder / "token").write_text("alice secret\n")
        self.now, self.slept = 0.0, list[float]()
        self.tokens = Tokens(folder / "token", lambda: self.now)
        self.sleeping = asyncio.Event()  # holds all who sleep until it is set, as time does
        monkeypatch.setattr("captioner_server.admission.tokens.asyncio.sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.sleeping.wait()
        self.now += seconds

    async def answer(self, token: str, peer: str = "ipv4:1.2.3.4:5") -> str:
        try:
            return await self.tokens.name_of(f"Bearer {token}", peer)
        except UnauthenticatedError as error:
            return f"{type(error).__name__} {error}"

    async def flood(self, count: int, peer: str = "ipv4:1.2.3.4:5") -> list[asyncio.Task[str]]:
        """Different wrong tokens at the same time, whose delays do not end."""
        guesses = [asyncio.create_task(self.answer(f"wrong{number}", peer)) for number in range(count)]
        await asyncio.wait(guesses, timeout=0)
        return guesses


@pytest.fixture
def guesses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Guesses:
    return Guesses(monkeypatch, tmp_path)


def test_guesses_from_one_address_take_longer_each_time(guesses: Guesses) -> None:
    async def run() -> None:
        guesses.sleeping.set()
        for guess in range(8):
            await guesses.answer(str(guess), f"ipv4:1.2.3.4:{guess}")
        await guesses.answer("1", "ipv4:1.2.3.5:1")
        guesses.now += 60
        await guesses.answer("9")

    asyncio.run(run())
    assert guesses.slept[:3] == [0.1, 0.2, 0.4] and guesses.slept[7:] == [5.0, 0.1, 0.1]


def test_beyond_a_few_guesses_right_and_wrong_tokens_get_the_same_answer(guesses: Guesses) -> None:
    async def run() -> None:
        flood = await guesses.flood(50)
        assert len(guesses.slept) == 4
        for guess in flood[:4]:
            guess.cancel()  # hanging up does not allow further guesses
        await asyncio.wait(flood[:4])
        answers = {await guesses.answer(token) for token in ("secret", "wrong0", "new")}
        assert len(answers) == 1 and "try again in 0.1 s" in answers.pop()
        assert await guesses.answer("secret", "ipv4:1.2.3.5:5") == "alice"
        guesses.now += 0.1
        assert await guesses.answer("secret") == "alice"

    asyncio.run(run())


def test_so_many_sleeping_guesses_that_no_further_ones_sleep_are_no_way_around(guesses: Guesses) -> None:
    async def run() -> None:
        for number in range(100):
            await guesses.flood(4, f"ipv4:1.2.3.{number}:5")
        assert len(guesses.slept) == 256
        codes = set()
        for token in ("secret", "wrong9"):
            with pytest.raises(UnauthenticatedError) as caught:
                await guesses.tokens.name_of(f"Bearer {token}", "ipv4:1.2.3.99:5")
            codes.add((caught.value.code, str(caught.value)))
        assert len(codes) == 1 and codes.pop()[0] == "unauthenticated"  # which the alert counts

    asyncio.run(run())


def test_others_behind_the_address_of_a_guesser(guesses: Guesses) -> None:
    async def run() -> None:
        known, other = "ipv4:1.2.3.4:6", "ipv4:1.2.3.4:7"
        old = [asyncio.create_task(guesses.answer("old", other)) for _ in range(20)]
        await asyncio.wait(old, timeout=0)
        assert await guesses.answer("secret", known) == "alice"  # one old token, however often, is one guess
        await guesses.flood(4)
        assert await guesses.answer("secret", known) == "alice"  # accepted before
        assert (await guesses.answer("secret", other)).startswith("TooManyGuessesError")
        assert (await guesses.answer("wrong", known)).startswith("TooManyGuessesError")
        assert (await guesses.answer("secret", known)).startswith("TooManyGuessesError")

    asyncio.run(run())


def test_a_guesser_does_not_get_further_by_changing_its_address(guesses: Guesses) -> None:
    async def run() -> None:
        for number in range(5000):
            guess = asyncio.create_task(guesses.answer("wrong", f"ipv6:[2001:db8:1:{number:x}::1]:5"))
            await asyncio.wait([guess], timeout=0)
        for number in range(4):
            await guesses.flood(1, f"ipv6:%5B2001:db8::{number:x}%5D:5")
            guess = asyncio.create_task(guesses.answer(f"other{number}", "ipv6:[2001:db8::77]:5"))
            await asyncio.wait([guess], timeout=0)
        assert (await guesses.answer("secret", "ipv6:[2001:db8::99]:5")).startswith("TooManyGuessesError")
        assert len(guesses.tokens._guessers) == 4096

    asyncio.run(run())


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:1.2.3.4:5", "1.2.3.4"),
        ("ipv6:[::ffff:1.2.3.4]:5", "1.2.3.4"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:7", "2001:db8:1:2::/64"),
        ("ipv6:[fe80::1%25eth0]:7", "fe80::/64"),
        ("unix:", "unix:"),
        ("ipv4:strange:5", "strange"),
    ],
)
def test_addresses_of_guessers(peer: str, address: str) -> None:
    assert address_of(peer) == address


@pytest.mark.parametrize(
    "content",
    [
        "",
        "# none\n",
        "a b c\n",
        "a b\na c\n",
        "na/me token\nb c\n",
        "a b calls=0\n",
        "a b calls=1.5\n",
        "a b rate=nan\n",
        "a b rate=1 rate=2\n",
        "a b images=\n",
        "a b pixels=3\n",
    ],
)
def test_files_that_hold_no_tokens(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokens").write_text(content)
    with pytest.raises(ServerStartError):
        read_tokens(tmp_path / "tokens")


def test_the_log_names_the_caller_and_never_the_token(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("alice secret-a\nbob secret-b\n")
    with (
        server_process(token_file=str(tmp_path / "tokens")) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = CaptionServiceStub(channel)
        stub.Caption(
            pb.CaptionRequest(image=make_image(1)),
            metadata=[("authorization", "bearer secret-a")],
            timeout=PATIENCE_S,
        )
        assert server.wait_for("call")["caller"] == "alice"
        with pytest.raises(grpc.RpcError):
            stub.Caption(
                pb.CaptionRequest(image=b""), metadata=[("authorization", "Bearer guess")], timeout=PATIENCE_S
            )
        refused = server.wait_for("call")
        assert refused["code"] == "UNAUTHENTICATED" and "127.0.0.1" in refused["peer"]
        assert not any("secret" in line or "guess" in line for line in server.lines)


def test_reflection_and_the_inference_protocol_can_be_switched_off() -> None:
    with (
        serve(FakeEngine(), reflection=False, inference=False) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        for method in (
            "inference.GRPCInferenceService/ServerLive",
            "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        ):
            with pytest.raises(grpc.RpcError) as caught:
                list(channel.stream_stream(f"/{method}")(iter([b""]), timeout=PATIENCE_S))
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_calls_are_accepted_for_a_while_after_health_has_turned() -> None:
    with serve(FakeEngine(), lame_duck_s=600) as server, grpc.insecure_channel(server.address) as channel:
        drained = server.start(server.server.drain())
        stub = health_pb2_grpc.HealthStub(channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        wait_until(lambda: stub.Check(health_pb2.HealthCheckRequest()).status != serving)
        assert CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=make_image(1))).caption.text
        assert not drained.done()
        drained.cancel()


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
def test_every_interface_with_metrics() -> None:
    with server_process(host="[::]", insecure=True, metrics_port=0) as server:
        with urllib.request.urlopen(server.metrics_url.replace("[::]", "[::1]"), timeout=PATIENCE_S) as page:
            assert b"captioner_in_flight_calls" in page.read()
        server.tell()
        assert server.end() == 0


def test_tokens_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(b"\xef\xbb\xbfsecret\n")
    assert read_tokens(path)["token"].secret == b"secret"


def test_a_client_says_which_host_the_certificates_of_several_servers_must_name(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = authority.issue("server")
    with serve(FakeEngine(), tls_certificate=certificate, tls_key=key) as server:
        options = ClientOptions(root_certificates=authority.roots)
        with CaptionClient(
            ["127.0.0.1:1", server.address.replace("127.0.0.1", "localhost")], options
        ) as client:
            assert client.caption(make_image(1)).text
    assert "must be valid for 127.0.0.1, the first host" in caplog.text
