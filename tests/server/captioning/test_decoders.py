"""Turns at the processes that decode: what an image costs its caller, whom others do not wait for."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import grpc
import pytest
from support.bombs import scan_bomb
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.processes import decoder_pids, processor_s
from support.serving import RunningServer, make_image, serve

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub

BOMB, FOREVER = scan_bomb(), scan_bomb(100_000)


@contextmanager
def callers(server: RunningServer, count: int) -> Iterator[list[CaptionServiceStub]]:
    """Callers with a connection each."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    with ExitStack() as channels:
        yield [
            CaptionServiceStub(channels.enter_context(grpc.insecure_channel(server.address, own)))
            for _ in range(count)
        ]


@contextmanager
def serve_decoding(**options: float) -> Iterator[tuple[RunningServer, Callable[[], list[int]]]]:
    """A server with one decoder, and what tells its processes from those of servers before that still end."""
    before = set(decoder_pids())
    with serve(FakeModel(), decode_workers=1, **options) as server:
        yield server, lambda: [pid for pid in decoder_pids() if pid not in before]


def test_an_ordinary_image_does_not_wait_for_all_that_take_long() -> None:
    stop = threading.Event()

    def attack(stub: CaptionServiceStub) -> None:
        while not stop.is_set():
            calls = [stub.Caption.future(pb.CaptionRequest(image=BOMB)) for _ in range(6)]
            assert all(call.exception(PATIENCE_S) for call in calls)

    with (
        serve(FakeModel(), decode_workers=1, max_decode_s=0.1) as server,
        callers(server, 4) as stubs,
        ThreadPoolExecutor(3) as attackers,
    ):
        attacks = [attackers.submit(attack, stub) for stub in stubs[:-1]]

        def ended() -> float:
            return server.metric("images_total", outcome="too_large")

        try:
            wait_until(lambda: server.metric("admitted_images") == 18)
            wait_until(lambda: ended() >= 4)  # the server knows what they cost
            for seed in range(2):
                before = ended()
                request = pb.CaptionRequest(image=make_image(seed))
                assert stubs[-1].Caption(request, timeout=PATIENCE_S).caption.text
                assert ended() - before <= 6
        finally:
            stop.set()
        assert [one.result(PATIENCE_S) for one in attacks] == 3 * [None]


def test_a_process_is_busy_until_it_is_free_though_its_caller_has_hung_up() -> None:
    with serve_decoding(max_decode_s=PATIENCE_S) as (server, pids), callers(server, 1) as stubs:
        [process] = pids()
        idle_s = processor_s(process)
        call = stubs[0].Caption.future(pb.CaptionRequest(image=FOREVER))
        wait_until(lambda: processor_s(process) > idle_s + 0.1)  # it decodes that image
        call.cancel()
        wait_until(lambda: not server.metric("admitted_images"))
        waiting = stubs[0].Caption.future(pb.CaptionRequest(image=make_image(1)), timeout=PATIENCE_S)
        wait_until(lambda: server.metric("admitted_images"))
        assert not waiting.done()
        os.kill(process, signal.SIGSEGV)
        assert waiting.result().caption.text
        assert server.metric("decoder_restarts_total") == 1


def test_a_new_caller_does_not_wait_for_the_slow_images_of_others() -> None:
    with (
        serve(FakeModel(), decode_workers=1, max_decode_s=PATIENCE_S) as server,
        callers(server, 4) as stubs,
    ):
        slow = pb.CaptionRequest(image=FOREVER)
        attacks = [stub.Caption.future(slow, timeout=PATIENCE_S) for stub in stubs[:-1]]
        wait_until(lambda: server.server.models.get().admitted == len(attacks))
        for seed in range(2):
            request = pb.CaptionRequest(image=make_image(seed))
            assert stubs[-1].Caption(request, timeout=PATIENCE_S).caption.text
        assert not any(attack.done() for attack in attacks)
        assert server.metric("decoder_restarts_total") == 0


def test_only_so_many_slow_images_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioner_server.captioning.decoders._SLOW_WAITING", 1)
    with (
        serve(FakeModel(), decode_workers=1, max_decode_s=PATIENCE_S) as server,
        callers(server, 4) as stubs,
    ):
        slow = pb.CaptionRequest(image=FOREVER)
        attacks = [stub.Caption.future(slow, timeout=PATIENCE_S) for stub in stubs]
        # One is decoded, one waits for that; of the others one is rejected and the last is not preempted.
        rejected = wait_until(lambda: [attack for attack in attacks if attack.done()])
        assert [attack.code() for attack in rejected] == [grpc.StatusCode.RESOURCE_EXHAUSTED]


def test_a_caller_does_not_preempt_its_own_images() -> None:
    with serve_decoding(max_decode_s=1.0) as (server, pids), callers(server, 1) as stubs:
        calls = [stubs[0].Caption.future(pb.CaptionRequest(image=FOREVER)) for _ in range(2)]
        for call in calls:
            assert "max_decode_s" in str(call.exception(PATIENCE_S))
        assert len(pids()) == 1  # no process for slow images was started


def test_what_is_no_image_needs_no_decoder() -> None:
    with serve_decoding() as (server, pids), callers(server, 1) as stubs:
        [process] = pids()
        os.kill(process, signal.SIGSTOP)
        for other in (b"%PDF-1.7", b"", bytes(2**20)):
            with pytest.raises(grpc.RpcError) as caught:
                stubs[0].Caption(pb.CaptionRequest(image=other), timeout=PATIENCE_S)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        os.kill(process, signal.SIGCONT)
        request = pb.CaptionRequest(image=make_image(1))
        assert stubs[0].Caption(request, timeout=PATIENCE_S).caption.text


def test_slow_images_of_streams_do_not_stop_the_streams_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioner_server.intake.bulk._SLOW_S", (0.1, 0.1))
    ended = threading.Event()

    def endless(image: bytes) -> Iterator[pb.CaptionBatchRequest]:
        for number in range(24):
            yield pb.CaptionBatchRequest(id=str(number), image=image)
        ended.wait(PATIENCE_S)

    with (
        serve(FakeModel(), decode_workers=1, max_decode_s=PATIENCE_S, max_batch_size=2) as server,
        callers(server, 4) as stubs,
    ):
        attacks = [stub.CaptionBatch(endless(FOREVER), timeout=PATIENCE_S) for stub in stubs[:-1]]
        try:
            # Six places at once, and three times as many images.
            wait_until(lambda: server.server.models.get().admitted >= 18)
            requests = [pb.CaptionBatchRequest(id=str(seed), image=make_image(seed)) for seed in range(30)]
            answers = list(stubs[-1].CaptionBatch(iter(requests), timeout=PATIENCE_S))
            assert {answer.id for answer in answers if answer.caption.text} == {one.id for one in requests}
        finally:
            ended.set()
            for attack in attacks:
                attack.cancel()


def test_calls_wait_no_longer_than_they_may_for_decoders_that_do_not_run() -> None:
    with serve_decoding(max_wait_s=0.5) as (server, pids), callers(server, 1) as [stub]:
        request = pb.CaptionRequest(image=make_image(1))

        def answered() -> bool:
            with suppress(grpc.RpcError):  # a busy machine may take longer
                return bool(stub.Caption(request, timeout=PATIENCE_S).caption.text)
            return False

        wait_until(answered)
        stopped = pids()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Caption(request, timeout=PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "max_wait_s" in caught.value.details()
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
