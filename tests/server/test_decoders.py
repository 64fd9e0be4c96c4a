"""Turns at the processes that decode: what an image costs its caller, whom others do not wait for."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import grpc
import pytest
from support.bombs import scan_bomb
from support.engines import FakeEngine
from support.patience import PATIENCE_S, wait_until
from support.serving import RunningServer, make_image, serve

from captioner.protocol import Pixels
from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.fairness.fair_queue import Claim

BOMB, FOREVER = scan_bomb(), scan_bomb(100_000)


def test_an_ordinary_image_does_not_wait_for_all_that_take_long() -> None:
    stop = threading.Event()

    def attack(address: str) -> None:
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            while not stop.is_set():
                with pytest.raises(grpc.RpcError):
                    CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=BOMB), timeout=PATIENCE_S)

    with serve(FakeEngine(), decode_workers=1, max_decode_s=0.1) as server:
        pipeline = server.server.models.get()
        workers = pipeline._decoders._ordinary.workers
        decode, load = pipeline._decode, workers.load
        events: list[tuple[str, bytes]] = []

        async def asked(image: bytes, claim: Claim) -> Pixels:
            events.append(("asked", image))
            return await decode(image, claim)

        def begun(image: bytes, preempt: Callable[[float], bool]) -> Pixels:
            events.append(("begun", image))
            return load(image, preempt)

        pipeline._decode, workers.load = asked, begun
        attackers = [threading.Thread(target=attack, args=(server.address,)) for _ in range(4)]
        for attacker in attackers:
            attacker.start()
        try:
            wait_until(lambda: server.metric("images_total", outcome="too_large") >= 4)  # each was seen once
            with grpc.insecure_channel(server.address) as channel:
                for image in map(make_image, range(2)):
                    request = pb.CaptionRequest(image=image)
                    assert CaptionServiceStub(channel).Caption(request, timeout=PATIENCE_S).caption.text
                    waited = events[events.index(("asked", image)) : events.index(("begun", image))]
                    assert waited.count(("begun", BOMB)) <= 2
        finally:
            stop.set()
            for attacker in attackers:
                attacker.join(PATIENCE_S)


def test_a_caller_that_hangs_up_keeps_its_place_until_the_process_is_free() -> None:
    with serve(FakeEngine(), decode_workers=1, max_decode_s=PATIENCE_S) as server:
        pipeline = server.server.models.get()
        lane = pipeline._decoders._ordinary
        worker, turns = lane.workers._workers[0], lane.turns
        with grpc.insecure_channel(server.address) as channel:
            call = CaptionServiceStub(channel).Caption.future(pb.CaptionRequest(image=FOREVER))
            wait_until(lambda: worker.busy_since is not None)
            call.cancel()
            wait_until(lambda: pipeline.admitted == 0)
            assert turns.free == 0 and worker.busy_since is not None
            os.kill(worker._process.pid, signal.SIGSEGV)
            wait_until(lambda: turns.free == 1)
            assert worker.busy_since is None
            request = pb.CaptionRequest(image=make_image(1))
            assert CaptionServiceStub(channel).Caption(request, timeout=PATIENCE_S).caption.text


@contextmanager
def callers(server: RunningServer, count: int) -> Iterator[list[CaptionServiceStub]]:
    """Callers with a connection each."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    with ExitStack() as channels:
        yield [
            CaptionServiceStub(channels.enter_context(grpc.insecure_channel(server.address, own)))
            for _ in range(count)
        ]


def test_a_new_caller_does_not_wait_for_the_slow_images_of_others() -> None:
    with (
        serve(FakeEngine(), decode_workers=1, max_decode_s=PATIENCE_S) as server,
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
        serve(FakeEngine(), decode_workers=1, max_decode_s=PATIENCE_S) as server,
        callers(server, 4) as stubs,
    ):
        slow = pb.CaptionRequest(image=FOREVER)
        attacks = [stub.Caption.future(slow, timeout=PATIENCE_S) for stub in stubs]
        # One is decoded, one waits for that; of the others one is rejected and the last is not preempted.
        rejected = wait_until(lambda: [attack for attack in attacks if attack.done()])
        assert [attack.code() for attack in rejected] == [grpc.StatusCode.RESOURCE_EXHAUSTED]


def test_a_caller_does_not_preempt_its_own_images() -> None:
    with (
        serve(FakeEngine(), decode_workers=1, max_decode_s=1.0) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = CaptionServiceStub(channel)
        calls = [stub.Caption.future(pb.CaptionRequest(image=FOREVER)) for _ in range(2)]
        for call in calls:
            assert "max_decode_s" in str(call.exception(PATIENCE_S))
        assert server.server.models.get()._decoders._slow.workers._workers[0].starts == 0


def test_what_is_no_image_needs_no_decoder() -> None:
    with serve(FakeEngine()) as server, grpc.insecure_channel(server.address) as channel:
        decoders = server.server.models.get()._decoders
        asked: list[bytes] = []
        load = decoders.load

        async def ask(image: bytes, claim: Claim) -> Pixels:
            asked.append(bytes(image))
            return await load(image, claim)

        decoders.load = ask
        stub, image = CaptionServiceStub(channel), make_image(1)
        for other in (b"%PDF-1.7", b"", bytes(2**20)):
            with pytest.raises(grpc.RpcError) as caught:
                stub.Caption(pb.CaptionRequest(image=other), timeout=PATIENCE_S)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert stub.Caption(pb.CaptionRequest(image=image), timeout=PATIENCE_S).caption.text
        assert asked == [image]


def test_slow_images_of_streams_do_not_stop_the_streams_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioner_server.captioning.bulk_places._SLOW_S", (0.1, 0.1))
    ended = threading.Event()

    def endless(image: bytes) -> Iterator[pb.CaptionBatchRequest]:
        for number in range(24):
            yield pb.CaptionBatchRequest(id=str(number), image=image)
        ended.wait(PATIENCE_S)

    with (
        serve(FakeEngine(), decode_workers=1, max_decode_s=PATIENCE_S, max_batch_size=2) as server,
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
