"""Callers that never read what they are sent: they lose their places, and nobody else waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.serving import RunningServer, make_image, serve
from support.stalling import Stalling

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.rpc.health import NOT_SERVING, SERVING, UNKNOWN

WATCH = "/grpc.health.v1.Health/Watch"


@contextmanager
def health(server: RunningServer) -> Iterator[health_pb2_grpc.HealthStub]:
    with grpc.insecure_channel(server.address) as channel:
        yield health_pb2_grpc.HealthStub(channel)


def ask(service: str = "") -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


def test_a_watch_that_is_not_read_blocks_nobody() -> None:
    model = FakeModel()
    with (
        serve(model, stuck_s=0.3, lame_duck_s=0.0) as server,
        health(server) as stub,
        grpc.insecure_channel(server.address) as channel,
    ):
        unread = Stalling(server.address, WATCH, reads=False)
        unread.ask(ask().SerializeToString())
        watching = stub.Watch(ask(), timeout=PATIENCE_S)
        assert next(watching).status == SERVING
        model.hold.clear()  # the model is stuck
        stuck = CaptionServiceStub(channel).Caption.future(pb.CaptionRequest(image=make_image(1)))
        assert next(watching).status == NOT_SERVING and stub.Check(ask()).status == NOT_SERVING
        model.hold.set()
        assert stuck.result(PATIENCE_S) and next(watching).status == SERVING
        assert server.call(server.server.drain())
        assert next(watching).status == NOT_SERVING


def test_a_watch_that_is_not_read_ends() -> None:
    with serve(FakeModel(), stream_idle_s=0.2) as server:
        unread = Stalling(server.address, WATCH, reads=False)
        unread.ask(ask().SerializeToString())
        wait_until(lambda: server.metric("refused_calls_total", reason="deadline_exceeded"))


def test_a_connection_has_one_watch_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioner_server.rpc.health._MANY_WATCHES", 4)
    with (
        serve(FakeModel()) as server,
        health(server) as stub,
        grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) as other,
    ):
        watches = [stub.Watch(ask(), timeout=PATIENCE_S) for _ in range(4)]
        assert [next(watch).status for watch in watches] == 4 * [SERVING]
        assert next(health_pb2_grpc.HealthStub(other).Watch(ask(), timeout=PATIENCE_S)).status == SERVING
        with pytest.raises(grpc.RpcError) as caught:
            next(stub.Watch(ask(), timeout=PATIENCE_S))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for watch in watches[:2]:
            watch.cancel()

        def free() -> bool:
            try:
                return bool(next(stub.Watch(ask(), timeout=PATIENCE_S)).status == SERVING)
            except grpc.RpcError:
                return False

        wait_until(free)


def test_an_unknown_service_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    with serve(FakeModel()) as server, health(server) as stub:
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(ask("nope"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert next(stub.Watch(ask("nope"))).status == UNKNOWN
        assert "defect" not in caplog.text


METHODS: dict[str, Callable[[], bytes]] = {
    "/captioner.v1.CaptionService/GetModel": lambda: pb.GetModelRequest().SerializeToString(),
    "/captioner.v1.CaptionService/Caption": lambda: pb.CaptionRequest(
        image=make_image(1)
    ).SerializeToString(),
}


@pytest.mark.parametrize("method", METHODS)
def test_answers_that_are_not_read_lose_their_places(method: str) -> None:
    """Within seconds where others need the places; the server can then stop too."""
    with serve(FakeModel(), max_calls=20, lame_duck_s=0.0, grace_s=20.0) as server:
        unread = Stalling(server.address, method, reads=False)
        for _ in range(20):
            unread.ask(METHODS[method]())
        wait_until(lambda: server.server.state.open_calls >= 10)
        started = time.monotonic()
        with grpc.insecure_channel(server.address) as channel:
            stub = CaptionServiceStub(channel)

            def answered() -> bool:
                try:
                    return bool(stub.Caption(pb.CaptionRequest(image=make_image(1))).caption.text)
                except grpc.RpcError as error:
                    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                    return False

            wait_until(answered)
        assert time.monotonic() - started < 0.5 * server.server.options.stream_idle_s
        assert server.server.door.budget.used_bytes < server.server.door.budget.budget_bytes


def test_an_answer_that_is_not_read_ends_in_time() -> None:
    with serve(FakeModel(), stream_idle_s=0.3, lame_duck_s=0.0) as server:
        unread = Stalling(server.address, "/captioner.v1.CaptionService/GetModel", reads=False)
        unread.ask(b"")
        wait_until(lambda: server.server.state.open_calls)
        wait_until(lambda: not server.server.state.open_calls)
        assert server.call(server.server.drain())


def test_answers_that_are_not_read_do_not_delay_the_end() -> None:
    with serve(FakeModel(), lame_duck_s=0.0, grace_s=20.0) as server:
        unread = Stalling(server.address, "/captioner.v1.CaptionService/GetModel", reads=False)
        for _ in range(5):
            unread.ask(b"")
        wait_until(lambda: server.server.state.open_calls == 5)
        assert server.call(server.server.drain())


def test_reflection_that_is_not_read_ends_in_time() -> None:
    with serve(FakeModel(), stream_idle_s=0.3) as server:
        method = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"
        unread = Stalling(server.address, method, reads=False)
        unread.ask(reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString())
        wait_until(lambda: server.metric("refused_calls_total", reason="deadline_exceeded"))


def test_answers_that_wait_to_be_read_count_as_memory() -> None:
    with serve(FakeModel()) as server:
        options = pb.CaptionOptions(attention_size=pb.GridSize(rows=64, columns=64))
        requests = [
            pb.CaptionBatchRequest(id=str(number), image=make_image(number, (8, 8)), options=options)
            for number in range(8)
        ]
        unread = Stalling(server.address, "/captioner.v1.CaptionService/CaptionBatch", reads=False)
        unread.ask(*(request.SerializeToString() for request in requests))
        wait_until(lambda: server.metric("images_total", outcome="ok") == 8)
        budget = server.server.door.budget
        # Beside the room for the next message of the stream.
        assert budget.used_bytes - server.server.options.max_message_bytes > 8 * 64 * 64 * 4
        unread.socket.close()
        wait_until(lambda: not budget.used_bytes)


def test_one_caller_leaves_streams_to_others() -> None:
    with (
        serve(FakeModel(), max_streams=4) as server,
        grpc.insecure_channel(server.address) as channel,
        grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) as other,
    ):
        request = pb.CaptionBatchRequest(id="1", image=make_image(1))
        busy = Stalling(server.address, "/captioner.v1.CaptionService/CaptionBatch")
        for _ in range(3):
            busy.ask(request.SerializeToString())
        wait_until(lambda: server.metric("in_flight_calls") == 3)
        busy.ask(request.SerializeToString())
        busy.wait_for_answer()  # the fourth is rejected
        for one in (channel, other):
            answers = CaptionServiceStub(one).CaptionBatch(iter([request]), timeout=PATIENCE_S)
            assert [answer.id for answer in answers] == ["1"]
