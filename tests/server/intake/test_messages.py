"""Messages on their way in: bounded in bytes and in time, whoever sends them and however slowly."""

import asyncio
import math
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.processes import peak_mib, server_process
from support.serving import RunningServer, make_image, serve
from support.stalling import Stalling
from support.virtual_time import Clock

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.errors import BusyError, DeadlineError
from captioner_server.intake.door import _LATE_SMALL_MESSAGES, Door
from captioner_server.intake.messages import ByteBudget, SmallMessages
from captioner_server.intake.state import Phase, ServerState
from captioner_server.intake.ticket import Kind, Ticket
from captioner_server.options import ServerOptions

MIB = 2**20
APART = [("grpc.use_local_subchannel_pool", 1)]
"""A connection of its own, which is a caller of its own."""


async def forever() -> None:
    await asyncio.Event().wait()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """By which messages are late."""
    clock = Clock()
    monkeypatch.setattr("captioner_server.intake.messages.time", clock)
    return clock


def test_room_is_handed_on_and_never_more_than_there_is(clock: Clock) -> None:
    async def run() -> None:
        budget, most = ByteBudget(300, 100, 10), 0

        async def message(number: int) -> None:
            nonlocal most
            async with budget.hold(ticket := Ticket(str(number % 3))):
                await budget.arrive(ticket, asyncio.sleep(0))
                budget.settle(ticket, number)
                most = max(most, budget.used_bytes)
                await asyncio.sleep(0.001)

        tasks = [asyncio.create_task(message(number)) for number in range(100)]
        await asyncio.sleep(0.002)
        for task in tasks[::7]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert 0 < most <= 300
        assert budget.used_bytes == 0

    clock.run(run())


def test_what_does_not_arrive_loses_its_room_when_others_wait(clock: Clock) -> None:
    async def run() -> None:
        budget = ByteBudget(100, 100, PATIENCE_S, contended_s=0.1)

        async def silent() -> None:
            async with budget.hold(ticket := Ticket("a")):
                await budget.arrive(ticket, forever())

        task = asyncio.create_task(silent())
        await asyncio.sleep(0.15)
        assert not task.done()  # as long as nobody waits
        async with budget.hold(Ticket("b")):
            pass
        with pytest.raises(BusyError):
            await task
        assert budget.used_bytes == 0

    clock.run(run())


def test_what_never_arrives_is_not_waited_for(clock: Clock) -> None:
    async def run() -> None:
        budget = ByteBudget(1000, 100, 0.05)
        with pytest.raises(DeadlineError, match="upload_s"):
            async with budget.hold(ticket := Ticket("a")):
                await budget.arrive(ticket, forever())
        assert budget.used_bytes == 0

    clock.run(run())


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serve(FakeModel(), max_calls=20, upload_bytes=4 * 34 * MIB, upload_s=3.0) as running:
        yield running


def test_calls_that_stall_are_counted_and_ended(server: RunningServer) -> None:
    stalling = Stalling(server.address, "/captioner.v1.CaptionService/Caption", 30 * MIB)
    for _ in range(30):
        stalling.call(1000)
    with grpc.insecure_channel(server.address) as channel:
        wait_until(lambda: server.server.door.receiving >= 20)
        assert server.server.door.receiving == 20  # max_calls
        assert server.server.door.budget.used_bytes <= server.server.door.budget.budget_bytes
        wait_until(lambda: server.server.door.receiving == server.server.door.budget.used_bytes == 0)
        request = pb.CaptionRequest(image=make_image(1))
        assert CaptionServiceStub(channel).Caption(request, timeout=PATIENCE_S).caption.text


def test_one_connection_cannot_take_all_calls() -> None:
    with serve(FakeModel(), max_calls=20, upload_bytes=4 * 34 * MIB, upload_s=600) as running:
        stalling = Stalling(running.address, "/captioner.v1.CaptionService/Caption", 30 * MIB)
        for _ in range(30):
            stalling.call(1000)
        wait_until(lambda: running.server.door.receiving == 20)  # max_calls
        with grpc.insecure_channel(running.address) as channel:
            for number in range(3):
                request = pb.CaptionRequest(image=make_image(number))
                assert CaptionServiceStub(channel).Caption(request, timeout=PATIENCE_S).caption.text


def test_messages_that_wait_for_room_take_no_memory() -> None:
    with server_process(upload_bytes=1) as running, grpc.insecure_channel(running.address) as channel:
        before = peak_mib(running.process.pid)
        method = "/captioner.v1.CaptionService/Caption"
        stalling = [Stalling(running.address, method, 30 * MIB) for _ in range(15)]
        for one in stalling:
            one.call(0)  # has the room for 2 s, one after the other
        for _ in range(20):  # meanwhile these calls have come
            CaptionServiceStub(channel).GetModel(pb.GetModelRequest(), timeout=PATIENCE_S)
        request = pb.CaptionRequest(image=bytes(8 * MIB))
        calls = [CaptionServiceStub(channel).Caption.future(request, timeout=PATIENCE_S) for _ in range(12)]
        time.sleep(1)
        assert not any(call.done() for call in calls)
        assert peak_mib(running.process.pid) - before < 40
        for call in calls:
            call.cancel()


def stall_small_messages(server: RunningServer, stalling: Sequence[Stalling], calls: int, sent: int) -> None:
    """Until as many messages are late as may be. A busy machine may take a while for those that were sent at
    once: late is only what takes longer than that."""
    door = server.server.door
    door._small = late = SmallMessages(_LATE_SMALL_MESSAGES, prompt_s=2.0)
    for one in stalling:
        for _ in range(calls):
            one.call(sent)
    wait_until(lambda: not late._free)


def test_health_answers_beside_health_checks_that_stall() -> None:
    """Callers without a token have no name, and may open connections at will."""
    with serve(FakeModel()) as server:
        stalling = [Stalling(server.address, "/grpc.health.v1.Health/Check", 30 * MIB) for _ in range(100)]
        stall_small_messages(server, stalling, 3, 1000)
        with grpc.insecure_channel(server.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for _ in range(4):
                for one in stalling:
                    for _ in range(3):
                        one.call(1000)
                status = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S).status
                assert status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    "method",
    [
        "grpc.health.v1.Health/Check",
        "captioner.v1.CaptionService/GetModel",
        "inference.GRPCInferenceService/ServerLive",
        "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
def test_only_calls_that_bring_images_may_be_large(server: RunningServer, method: str) -> None:
    field = b"\x0a" + b"\x80\x80\x40" + bytes(MIB)  # field 1, a string of 1 MiB
    with grpc.insecure_channel(server.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            list(channel.stream_stream(f"/{method}")(iter([field]), timeout=PATIENCE_S))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, caught.value.details()


def test_without_a_token_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    with serve(FakeModel(), token_file=tmp_path / "token") as server:
        for method in ("captioner.v1.CaptionService/Caption", "inference.GRPCInferenceService/ModelInfer"):
            stalling = Stalling(server.address, f"/{method}", 30 * MIB)
            stalling.call(1000)
        time.sleep(0.3)
        assert server.server.door.budget.used_bytes == 0


def test_streams_hold_no_more_images_than_the_queue_and_one_each() -> None:
    model = FakeModel()
    with (
        serve(model, queue_size=2, max_batch_size=1) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        model.hold.clear()
        image = make_image(1, (600, 600))
        requests = [pb.CaptionBatchRequest(id=str(n), image=image) for n in range(30)]
        calls = [
            CaptionServiceStub(channel).CaptionBatch(iter(requests), timeout=PATIENCE_S) for _ in range(3)
        ]
        time.sleep(1)
        held = server.server.door.budget.used_bytes
        assert held <= (2 + 3) * (len(image) + 100)
        model.hold.set()
        assert [len(list(call)) for call in calls] == [30, 30, 30]


def test_silent_streams_make_room_for_others() -> None:
    ended = threading.Event()

    def silence() -> Iterator[pb.CaptionBatchRequest]:
        ended.wait()
        yield from ()

    with (
        serve(FakeModel(), max_streams=4, upload_s=600, stream_idle_s=600) as server,
        grpc.insecure_channel(server.address) as channel,
        grpc.insecure_channel(server.address, APART) as other,
    ):
        stub = CaptionServiceStub(channel)
        silent = [
            CaptionServiceStub(one).CaptionBatch(silence()) for one in (channel, other) for _ in range(2)
        ]
        wait_until(lambda: server.metric("in_flight_calls") == 4)
        requests = [pb.CaptionBatchRequest(id=str(n), image=make_image(n)) for n in range(10)]

        def answered() -> bool:
            try:
                return len(list(stub.CaptionBatch(iter(requests), timeout=PATIENCE_S))) == 10
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                return False

        wait_until(answered)
        ended.set()
        for call in silent:
            call.cancel()


@pytest.mark.parametrize("method", ["grpc.health.v1.Health/Check", "captioner.v1.CaptionService/GetModel"])
def test_small_messages_that_stall_take_no_calls(method: str) -> None:
    with serve(FakeModel(), max_calls=20) as running:
        stalling = [Stalling(running.address, f"/{method}", 1000) for _ in range(4)]
        stall_small_messages(running, stalling, 10, 10)
        with grpc.insecure_channel(running.address) as channel:
            stub = CaptionServiceStub(channel)
            for number in range(4):
                for one in stalling:
                    for _ in range(10):
                        one.call(10)
                request = pb.CaptionRequest(image=make_image(number))
                assert stub.Caption(request, timeout=PATIENCE_S).caption.text
                assert stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_S).name


def test_a_small_message_that_stalls_loses_its_call_when_others_do_too(clock: Clock) -> None:
    async def run() -> None:
        small = SmallMessages(1, PATIENCE_S, prompt_s=0.01)
        first = asyncio.create_task(small.arrive(forever()))
        await asyncio.sleep(0.02)
        with pytest.raises(BusyError):
            await small.arrive(forever())
        assert await small.arrive(asyncio.sleep(0, 7)) == 7
        assert not first.done()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(DeadlineError):
            await SmallMessages(1, 0.02, prompt_s=0.01).arrive(forever())

    clock.run(run())


def test_no_call_gives_way_to_one_that_is_rejected(clock: Clock) -> None:
    async def run() -> None:
        state = ServerState(1.0)
        state.phase = Phase.SERVING
        overloaded = False

        def overload(ticket: Ticket) -> BusyError | None:
            return BusyError("overloaded", 1.0) if overloaded else None

        door = Door(state, ServerOptions(max_calls=4, max_streams=1, upload_bytes=1), overload)
        async with door.admit("other", Kind.BATCH, math.inf):
            calls = [asyncio.create_task(stall(door, "many")) for _ in range(4)]
            await asyncio.sleep(0.01)
            overloaded = True
            for kind in (Kind.IMAGE, Kind.WORDS, Kind.BATCH):
                with pytest.raises(BusyError):
                    async with door.admit("few", kind, math.inf):
                        pass
        await asyncio.sleep(0.01)
        assert not any(call.done() for call in calls)
        overloaded = False
        async with door.admit("few", Kind.IMAGE, math.inf):
            await asyncio.sleep(0.01)
            assert [call.done() for call in calls] == [False, False, False, True]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def stall(door: Door, caller: str) -> None:
        async with (
            door.admit(caller, Kind.IMAGE, math.inf) as ticket,
            door.receive(ticket, forever, lambda _: 0),
        ):
            pass

    clock.run(run())


def test_one_connection_gets_a_share_of_the_calls() -> None:
    """This limits what calls that are cancelled at once (rapid reset) cost."""
    with serve(FakeModel()) as running:
        stalling = Stalling(running.address, "/captioner.v1.CaptionService/Caption", 30 * MIB)
        for _ in range(300):
            stalling.call(10)
        with grpc.insecure_channel(running.address) as channel:
            wait_until(lambda: running.server.door.receiving >= 100)
            request = pb.CaptionRequest(image=make_image(1))
            assert CaptionServiceStub(channel).Caption(request, timeout=PATIENCE_S).caption.text
        assert running.server.door.receiving == 100
