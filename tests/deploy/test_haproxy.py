"""What HAProxy keeps away from the servers behind it, with its configuration in `deploy/`."""

import http.client
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import grpc
import pytest
from support import topology
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.serving import RunningServer, make_image, serve
from support.stalling import Stalling

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_client import CaptionClient, ClientOptions

pytestmark = pytest.mark.skipif(topology.HAPROXY is None, reason="haproxy is not installed")
CAPTION = "/captioner.v1.CaptionService/Caption"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
STRANGER = "127.0.0.9"
"""The address of attackers; ordinary callers have another one."""


@dataclass(frozen=True)
class Front:
    address: str
    server: RunningServer
    metrics: str

    def answers(self, code: str) -> int:
        """How many answers of a kind, such as 2xx, came from the server over HTTP."""
        samples = topology.fetch(self.metrics)
        found = re.search(f'haproxy_backend_http_responses_total{{proxy="http",code="{code}"}} (.*)', samples)
        assert found
        return int(found[1])


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with serve(FakeModel(), http_port=0, queue_size=2000, max_calls=2000) as server:
        assert server.server.http_url
        ports = int(server.address.rpartition(":")[2]), int(server.server.http_url.rpartition(":")[2])
        with topology.haproxy([ports], tmp_path_factory.mktemp("haproxy")) as (address, metrics):
            yield Front(address, server, metrics)


def caption(address: str) -> str:
    """A caption for somebody who connects now."""
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = CaptionServiceStub(channel)
        return stub.Caption(pb.CaptionRequest(image=make_image(1)), timeout=PATIENCE_S).caption.text


def post(address: str) -> int:
    """The status of a caption over HTTP."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    connection.request("POST", "/v1/caption", make_image(1), {"Content-Type": "image/png"})
    status = connection.getresponse().status
    connection.close()
    return status


def test_calls_streams_and_http_share_a_port(front: Front) -> None:
    with CaptionClient(front.address, ClientOptions(timeout_s=PATIENCE_S)) as client:
        assert client.caption(make_image(1)).text == client.caption([make_image(1)])[0].text
        assert list(client.stream(make_image(1)))
    assert post(front.address) == 200


def test_streams_of_small_messages_are_not_held_back(front: Front) -> None:
    """An answer comes before the stream of requests ends."""
    with grpc.insecure_channel(front.address) as channel:
        ended = False

        def requests() -> Iterator[bytes]:
            yield b"\x3a\x00"  # list_services
            while not ended:
                yield b"\x3a\x00"

        call = channel.stream_stream(REFLECTION)(requests(), timeout=PATIENCE_S)
        assert b"captioner.v1.CaptionService" in next(call)
        ended = True
        call.cancel()


def test_compressed_messages_are_refused(front: Front) -> None:
    with grpc.insecure_channel(front.address, compression=grpc.Compression.Gzip) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=make_image(1)), timeout=PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("kind", ["application/grpc-web+proto", "application/grpc-web-text"])
def test_grpc_web_is_told_what_there_is_instead(front: Front, kind: str) -> None:
    """Servers reset such calls over gRPC: 502, for which callers try again."""
    connection = http.client.HTTPConnection(front.address, timeout=PATIENCE_S)
    connection.request("POST", CAPTION, bytes(5), {"Content-Type": kind})
    answer = connection.getresponse()
    assert answer.status == 404 and b"is not here" in answer.read()
    connection.close()


def test_paths_that_are_no_text_reach_no_server(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    caller = Stalling(front.address, "/\udcff", source=STRANGER)
    caller.ask(b"")
    assert caller.wait_for_answer() == b"no such call"
    assert caption(front.address) and "started again" not in caplog.text


def test_callers_keep_connections_of_their_own(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    """So that a server can be fair to callers without tokens."""
    with caplog.at_level("INFO", "captioner_server.calls"), ExitStack() as stack:

        def peers() -> list[str]:
            """The connections of failed calls, which the server logs."""
            fields = [getattr(record, "fields", {}) for record in caplog.records]
            return [each["peer"] for each in fields if "peer" in each]

        for _ in range(2):
            channel = grpc.insecure_channel(front.address, [("grpc.use_local_subchannel_pool", 1)])
            stub = CaptionServiceStub(stack.enter_context(channel))
            for _ in range(3):
                with suppress(grpc.RpcError):
                    stub.Caption(pb.CaptionRequest(image=b"no image"), timeout=PATIENCE_S)
        wait_until(lambda: len(peers()) == 6)
        assert list(Counter(peers()).values()) == [3, 3]


def test_calls_that_are_cancelled_at_once_reach_no_server(front: Front) -> None:
    calls = front.server.metric("calls_total", method="Caption", code="CANCELLED")
    attacker = Stalling(front.address, CAPTION, source=STRANGER)
    with suppress(ConnectionError):
        attacker.reset(300)
    assert caption(front.address)
    attacker.socket.close()
    assert front.server.metric("calls_total", method="Caption", code="CANCELLED") == calls


@pytest.mark.parametrize(
    "flood",
    [
        lambda attacker: attacker.settle(5000),
        lambda attacker: attacker.ping(5000),
        lambda attacker: attacker.continue_headers(100),
        lambda attacker: attacker.reset(500, 100),
    ],
    ids=["settings", "pings", "headers", "resets"],
)
def test_beside_floods_new_callers_get_captions(front: Front, flood: Callable[[Stalling], None]) -> None:
    for _ in range(5):
        with suppress(OSError):
            attacker = Stalling(front.address, CAPTION, source="127.0.0.8")
            flood(attacker)
            assert caption(front.address)
            attacker.socket.close()
    assert post(front.address) == 200


def test_an_address_has_a_limited_number_of_connections(front: Front) -> None:
    host, port = front.address.split(":")
    ended = 0
    with ExitStack() as stack:
        held = []
        for _ in range(100):
            try:
                one = socket.create_connection((host, int(port)), PATIENCE_S, ("127.0.0.7", 0))
                held.append(stack.enter_context(one))
            except ConnectionError:
                ended += 1
        for one in held:
            one.settimeout(0.02)
            with suppress(TimeoutError):
                try:
                    ended += not one.recv(1)
                except ConnectionError:
                    ended += 1
        assert ended == 100 - 64
        assert caption(front.address)  # of another address


@pytest.mark.parametrize(
    ("stranger", "request_line", "answer"),
    [
        ("127.0.0.6", b"GET / HTTP/1.1", "2xx"),
        ("127.0.0.5", b"POST /nothing HTTP/1.1\r\nContent-Length: 0", "4xx"),
    ],
)
def test_an_address_that_sends_too_many_requests_is_told_to_wait(
    front: Front, stranger: str, request_line: bytes, answer: str
) -> None:
    """Once; then its connection is closed, with the requests that it has sent besides."""
    host, port = front.address.split(":")
    answers, before = b"", front.answers(answer)
    with socket.create_connection((host, int(port)), PATIENCE_S, (stranger, 0)) as attacker:
        attacker.sendall((request_line + b"\r\nHost: x\r\n\r\n") * 1000)
        with suppress(ConnectionError):
            while more := attacker.recv(2**16):
                answers += more
    # The system may drop answers that have not been read, so HAProxy is asked how many there were.
    assert 250 < front.answers(answer) - before < 600
    assert answers.count(b"HTTP/1.1 429 ") <= 1
    with socket.create_connection((host, int(port)), PATIENCE_S, (stranger, 0)) as attacker:
        attacker.sendall(request_line + b"\r\nHost: x\r\n\r\n")
        assert attacker.recv(100).startswith(b"HTTP/1.1 429 ")
    assert post(front.address) == 200


def test_an_address_has_a_limited_number_of_open_requests(front: Front) -> None:
    """While the body of a request is awaited, HAProxy keeps a buffer for it."""
    stranger = "127.0.0.4"
    message = pb.CaptionRequest(image=make_image(1)).SerializeToString()
    with ExitStack() as stack:

        def connect() -> Stalling:
            attacker = Stalling(front.address, CAPTION, source=stranger)
            stack.callback(attacker.socket.close)
            attacker.socket.settimeout(PATIENCE_S)
            return attacker

        for _ in range(3):
            connect().announce(90)

        def refused() -> bool:
            try:
                one = connect()
                one.ask(message)
                return b"too many requests" in one.wait_for_answer()
            except ConnectionError:
                return True

        wait_until(refused)
        assert caption(front.address)  # of another address
        assert post(front.address) == 200
        stack.pop_all().close()
        wait_until(lambda: not refused())


def test_a_photo_that_is_uploaded_slowly_arrives(front: Front) -> None:
    message = pb.CaptionRequest(image=make_image(1, (100, 100))).SerializeToString()
    caller = Stalling(front.address, CAPTION, source="127.0.0.3")
    with caller.socket:
        caller.socket.settimeout(PATIENCE_S)
        caller.trickle(message, 8, 0.2)
        assert b"fake@" in caller.wait_for_answer()


def test_a_thousand_callers_that_connect_at_once_get_captions(front: Front) -> None:
    """As after a restart of HAProxy. Each has an address of its own."""
    message = pb.CaptionRequest(image=make_image(1)).SerializeToString()
    text = caption(front.address).encode()
    with ExitStack() as stack:
        callers = [
            Stalling(front.address, CAPTION, source=f"127.0.{1 + number // 250}.{1 + number % 250}")
            for number in range(1000)
        ]
        for caller in callers:
            stack.callback(caller.socket.close)
            caller.socket.settimeout(PATIENCE_S)
            caller.ask(message)
        assert all(text in caller.wait_for_answer() for caller in callers)
