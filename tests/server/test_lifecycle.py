"""Loading, serving, draining: as health checks and callers see it."""

import asyncio
import dataclasses
import math
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.serving import make_image, serve

from captioner.options import CaptionOptions
from captioner.results import Caption
from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.server import SERVICES

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def health(channel: grpc.Channel, service: str = "") -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    return health_pb2_grpc.HealthStub(channel).Check(request, timeout=PATIENCE_S).status


def test_it_is_ready_only_when_the_model_is_loaded_and_warm() -> None:
    with serve(None, max_batch_size=6) as server, grpc.insecure_channel(server.address) as channel:
        assert {health(channel, name) for name in ("", *SERVICES)} == {NOT_SERVING}
        with pytest.raises(grpc.RpcError) as caught:
            CaptionServiceStub(channel).GetModel(pb.GetModelRequest(), timeout=PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        model = FakeModel()
        server.call(server.server.open({"default": model}))
        assert {health(channel, name) for name in ("", *SERVICES)} == {SERVING}
        assert [size for size, _ in model.batches] == [1, 2, 4, 6]
        assert model.streams == 1


def test_health_can_be_watched() -> None:
    with serve(FakeModel()) as server, grpc.insecure_channel(server.address) as channel:
        request = health_pb2.HealthCheckRequest(service=SERVICES[0])
        watch = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=PATIENCE_S)
        assert next(watch).status == SERVING
        drained = server.start(server.server.drain())
        assert next(watch).status == NOT_SERVING
        assert drained.result(PATIENCE_S)


def test_reflection_lists_every_service(channel: grpc.Channel) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    assert {*SERVICES, "grpc.health.v1.Health"} <= set(database.get_services())
    file = database.FindFileContainingSymbol("captioner.v1.CaptionService")
    assert file.package == "captioner.v1"
    file = database.FindFileContainingSymbol("inference.GRPCInferenceService")
    assert "ModelInferRequest" in [message.name for message in file.message_type]


def test_health_answers_while_the_model_is_busy() -> None:
    model = FakeModel()
    with serve(model) as server, grpc.insecure_channel(server.address) as channel:
        model.hold.clear()
        held = CaptionServiceStub(channel).Caption.future(pb.CaptionRequest(image=make_image(1)))
        wait_until(lambda: server.metric("admitted_images") == 1)
        assert health(channel) == SERVING
        model.hold.set()
        assert held.result().caption.text


def test_draining_finishes_what_is_open_and_refuses_what_is_new() -> None:
    model = FakeModel()
    with serve(model) as server, grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        model.hold.clear()
        held = [stub.Caption.future(pb.CaptionRequest(image=make_image(n))) for n in range(5)]
        stream = stub.StreamCaption(pb.StreamCaptionRequest(image=make_image(9)))
        more = threading.Event()

        def images():
            yield pb.CaptionBatchRequest(id="read before", image=make_image(10))
            more.wait(PATIENCE_S)
            yield pb.CaptionBatchRequest(id="read after", image=make_image(11))

        batch = stub.CaptionBatch(images())
        wait_until(lambda: server.metric("admitted_images") == 7)
        drained = server.start(server.server.drain())
        wait_until(lambda: not server.server.state.serving)
        assert health(channel) == NOT_SERVING
        with pytest.raises(grpc.RpcError) as caught:
            stub.Caption(pb.CaptionRequest(image=make_image(6)), timeout=PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert int(dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"]) > 0
        model.hold.set()
        assert all(future.result(PATIENCE_S).caption.text for future in held)
        assert len(list(stream)) == 6
        assert next(batch).id == "read before"
        with pytest.raises(grpc.RpcError) as caught:
            next(batch)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert drained.result(PATIENCE_S)
        more.set()


def test_the_grace_period_ends() -> None:
    model = FakeModel()
    with serve(model, grace_s=0.1) as server, grpc.insecure_channel(server.address) as channel:
        model.hold.clear()
        held = CaptionServiceStub(channel).Caption.future(pb.CaptionRequest(image=make_image(1)))
        wait_until(lambda: server.metric("admitted_images") == 1)
        assert not server.call(server.server.drain())
        assert held.exception(PATIENCE_S) is not None
        model.hold.set()


def test_who_keeps_calling_while_the_port_closes_is_told_that_it_is_unavailable() -> None:
    async def call_until_closed(address: str) -> Counter[str]:
        codes: Counter[str] = Counter()

        async def call(stub: CaptionServiceStub) -> None:
            while "connect" not in codes:
                try:
                    await stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_S)
                    codes["OK"] += 1
                except grpc.aio.AioRpcError as error:
                    codes["connect" if "connect" in error.details() else error.code().name] += 1

        async with grpc.aio.insecure_channel(address, [("grpc.enable_retries", 0)]) as channel:
            await asyncio.gather(*[call(CaptionServiceStub(channel)) for _ in range(32)])
        return codes

    with serve(FakeModel()) as server, ThreadPoolExecutor(1) as caller:
        codes = caller.submit(asyncio.run, call_until_closed(server.address))
        asked = "/captioner.v1.CaptionService/GetModel"
        wait_until(lambda: server.metric("calls_total", method=asked, code="OK") > 100)
        assert server.call(server.server.drain())
        assert set(codes.result(PATIENCE_S)) == {"OK", "UNAVAILABLE", "connect"}


class TalkativeModel(FakeModel):
    """What it says fits in no buffer on the way."""

    def describe(self, pixels: np.ndarray, options: CaptionOptions | None = None) -> Caption:
        return dataclasses.replace(super().describe(pixels, options), text="word " * 4_000_000)


@contextmanager
def narrow_way(address: str) -> Iterator[tuple[str, threading.Event]]:
    """An address that leads to another, and an event: before it is set, next to nothing comes back."""
    opened, socks = threading.Event(), []

    def pump(source: socket.socket, sink: socket.socket, free_bytes: float) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                free_bytes -= len(data)
                if free_bytes < 0:
                    opened.wait()
                sink.sendall(data)

    host, port = address.split(":")
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(3) as pumps:

        def lead() -> None:
            with suppress(OSError):
                near, _ = listener.accept()
                socks.extend((near, far := socket.create_connection((host, int(port)))))
                pumps.submit(pump, near, far, math.inf)
                pumps.submit(pump, far, near, 100_000)

        pumps.submit(lead)
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", opened
        finally:
            opened.set()
            for sock in socks:
                sock.close()


def test_an_answer_that_is_still_on_its_way_is_waited_for() -> None:
    unlimited = [("grpc.max_receive_message_length", -1)]
    with (
        serve(TalkativeModel()) as server,
        narrow_way(server.address) as (address, opened),
        grpc.insecure_channel(address, unlimited) as channel,
    ):
        answer = CaptionServiceStub(channel).Caption.future(pb.CaptionRequest(image=make_image(1)))
        wait_until(lambda: server.metric("images_total", outcome="ok") == 1)
        time.sleep(0.05)
        assert server.server.state.open_calls == 1
        drained = server.start(server.server.drain())
        time.sleep(0.05)
        opened.set()
        assert answer.result(PATIENCE_S).caption.text.endswith("word ")
        assert drained.result(PATIENCE_S)


def test_reflection_and_the_inference_protocol_can_be_switched_off() -> None:
    with (
        serve(FakeModel(), reflection=False, inference=False) as server,
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
    with serve(FakeModel(), lame_duck_s=600) as server, grpc.insecure_channel(server.address) as channel:
        drained = server.start(server.server.drain())
        stub = health_pb2_grpc.HealthStub(channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        wait_until(lambda: stub.Check(health_pb2.HealthCheckRequest()).status != serving)
        assert CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=make_image(1))).caption.text
        assert not drained.done()
        drained.cancel()
