"""Turns at the processes that decode: what an image costs its caller, whom others do not wait for."""

import os
import signal
import threading

import grpc
import pytest
from support.bombs import scan_bomb
from support.engines import FakeEngine
from support.patience import PATIENCE_S, wait_until
from support.serving import make_image, serve

from captioner.protocol import Pixels
from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.fair_queue import Claim

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
        decode, load = pipeline._decode, pipeline._workers.load
        events: list[tuple[str, bytes]] = []

        async def asked(image: bytes, claim: Claim) -> Pixels:
            events.append(("asked", image))
            return await decode(image, claim)

        def begun(image: bytes) -> Pixels:
            events.append(("begun", image))
            return load(image)

        pipeline._decode, pipeline._workers.load = asked, begun
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
        worker, turns = pipeline._workers._workers[0], pipeline._turns
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
