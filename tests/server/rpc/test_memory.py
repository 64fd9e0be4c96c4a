"""Memory of a call is free when the call ends, however it ends. None of it waits for the garbage collector,
which knows nothing of `--upload-bytes`."""

import contextlib
import gc
import json
import logging
import time
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import grpc
import pytest
from support.models import FakeModel
from support.serving import RunningServer, make_image, serve

from captioner.v1 import captioner_pb2 as pb
from captioner_server.inference import grpc_predict_v2_pb2 as oip
from captioner_server.rpc.wire import Received

TIMEOUT_S = 60
MIB = 2**20
CAPTION, BATCH = "/captioner.v1.CaptionService/Caption", "/captioner.v1.CaptionService/CaptionBatch"
STREAM = "/captioner.v1.CaptionService/StreamCaption"
INFER = "/inference.GRPCInferenceService/ModelInfer"
CALLS, LARGE = 4, MIB


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serve(FakeModel(), http_port=0, max_image_bytes=LARGE + MIB // 2, max_wait_s=5.0) as running:
        yield running


def tensor(*images: bytes) -> bytes:
    request = oip.ModelInferRequest(model_name="captioner")
    request.inputs.add(name="IMAGE", datatype="BYTES", shape=[len(images)]).contents.bytes_contents[:] = (
        images
    )
    return request.SerializeToString()


REJECTED = {
    "not an image": (CAPTION, pb.CaptionRequest(image=bytes(LARGE)).SerializeToString()),
    "too large": (CAPTION, pb.CaptionRequest(image=bytes(LARGE + MIB)).SerializeToString()),
    "another type": (CAPTION, b"\xff" * LARGE),
    "a long text": (CAPTION, pb.CaptionRequest(model="x" * LARGE).SerializeToString()),
    "another model": (CAPTION, pb.CaptionRequest(image=bytes(LARGE), model="x").SerializeToString()),
    "not an image, in words": (STREAM, pb.StreamCaptionRequest(image=bytes(LARGE)).SerializeToString()),
    "not an image, in a batch": (BATCH, pb.CaptionBatchRequest(image=bytes(LARGE)).SerializeToString()),
    "not images, as tensors": (INFER, tensor(*[bytes(LARGE // 8)] * 8)),
    "to a call without images": ("/captioner.v1.CaptionService/GetModel", b"\x0a\x80\x80\x40" + bytes(LARGE)),
    "to reflection": (
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        b"\x0a\x80\x80\x40" + bytes(LARGE),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REJECTED)
def test_a_rejected_message_is_gone_with_its_call(server: RunningServer, what: str) -> None:
    method, message = REJECTED[what]
    with grpc.insecure_channel(server.address) as channel:
        send = channel.stream_stream(method)

        def call() -> None:
            with contextlib.suppress(grpc.RpcError):
                list(send(iter([message]), timeout=TIMEOUT_S))

        assert_nothing_is_kept(call)


def test_messages_of_failing_batches_are_gone_with_their_calls(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "captioner_server")  # or pytest keeps the errors
    image = make_image(1, format="JPEG") + bytes(LARGE)
    message = pb.CaptionRequest(image=image).SerializeToString()
    with grpc.insecure_channel(server.address) as channel:
        model, send = server.model, channel.unary_unary(CAPTION)
        assert isinstance(model, FakeModel)

        def fail() -> None:
            send(message, timeout=TIMEOUT_S)  # or the server would say that it does not serve
            model.breaks_after = 0
            with pytest.raises(grpc.RpcError) as caught:
                send(message, timeout=TIMEOUT_S)
            model.breaks_after = None
            assert caught.value.code() is grpc.StatusCode.INTERNAL

        def expire() -> None:
            with pytest.raises(grpc.RpcError) as caught:
                send(message, timeout=0.3)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

        assert_nothing_is_kept(lambda: send(message, timeout=TIMEOUT_S))
        assert_nothing_is_kept(fail)
        model.hold.clear()
        try:
            assert_nothing_is_kept(expire)
        finally:
            model.hold.set()


@pytest.mark.parametrize(
    ("kind", "extra"),
    [("image/jpeg", 0), ("image/jpeg", MIB), ("application/json", 0), ("multipart/form-data; boundary=x", 0)],
)
def test_a_rejected_body_is_gone_with_its_request(server: RunningServer, kind: str, extra: int) -> None:
    body = json.dumps({"image": "A" * LARGE}).encode() if "json" in kind else bytes(LARGE + extra)

    def parts() -> Iterator[bytes]:  # without a length, which would give it away
        for start in range(0, len(body), MIB // 4):
            yield body[start : start + MIB // 4]

    def call() -> None:
        request = urllib.request.Request(
            f"{server.server.http_url}/v1/caption", parts(), {"Content-Type": kind}
        )
        with pytest.raises(OSError):
            urllib.request.urlopen(request, timeout=TIMEOUT_S).close()

    assert_nothing_is_kept(call)


def assert_nothing_is_kept(call: Callable[[], object]) -> None:
    """Less than two messages of some calls are still in memory, without the garbage collector."""
    call()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(CALLS):
            call()
        limit = time.monotonic() + TIMEOUT_S
        while (kept := max(tracemalloc.get_traced_memory()[0] // LARGE, parsed_messages())) > 1:
            assert time.monotonic() < limit, f"{kept} messages of {CALLS}"
            time.sleep(0.01)  # callers have their answers before their calls have quite ended
    finally:
        tracemalloc.stop()
        gc.enable()
        gc.collect()


def parsed_messages() -> int:
    """Messages in memory, whose bytes are not Python's."""
    return sum(isinstance(one, Received) and one.message is not None for one in gc.get_objects())
