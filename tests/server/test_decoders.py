"""Turns at the processes that decode: what an image costs its caller, whom others do not wait for."""

import threading
import time

import grpc
import pytest
from support.bombs import scan_bomb
from support.engines import FakeEngine
from support.serving import RunningServer, make_image, serve

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub

TIMEOUT_S = 300
BOMB = scan_bomb()


def ended(server: RunningServer) -> float:
    """Images that were given up."""
    return server.metric("images_total", outcome="too_large")


def wait_until(condition) -> None:
    limit = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_an_ordinary_image_does_not_wait_for_all_that_take_long() -> None:
    stop = threading.Event()

    def attack(address: str) -> None:
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            while not stop.is_set():
                with pytest.raises(grpc.RpcError):
                    CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=BOMB), timeout=TIMEOUT_S)

    with serve(FakeEngine(), decode_workers=1, max_decode_s=0.1, max_wait_s=TIMEOUT_S) as server:
        attackers = [threading.Thread(target=attack, args=(server.address,)) for _ in range(4)]
        for attacker in attackers:
            attacker.start()
        try:
            wait_until(lambda: ended(server) >= 4)  # each has been seen once
            with grpc.insecure_channel(server.address) as channel:
                for seed in range(2):
                    before = ended(server)
                    request = pb.CaptionRequest(image=make_image(seed))
                    assert CaptionServiceStub(channel).Caption(request, timeout=TIMEOUT_S).caption.text
                    assert ended(server) - before <= 2
        finally:
            stop.set()
            for attacker in attackers:
                attacker.join(TIMEOUT_S)


def test_a_caller_that_hangs_up_keeps_its_place_until_the_process_is_free() -> None:
    with serve(FakeEngine(), decode_workers=1, max_decode_s=1.0) as server:
        pipeline = server.server.models.get()
        worker, turns = pipeline._workers._workers[0], pipeline._turns
        with grpc.insecure_channel(server.address) as channel:
            call = CaptionServiceStub(channel).Caption.future(pb.CaptionRequest(image=BOMB))
            wait_until(lambda: turns.free == 0 and worker.busy_since is not None)
            call.cancel()
            wait_until(lambda: pipeline.admitted == 0)
            while worker.busy_since is not None:
                assert turns.free == 0
                time.sleep(0.005)
            wait_until(lambda: turns.free == 1)
            request = pb.CaptionRequest(image=make_image(1))
            assert CaptionServiceStub(channel).Caption(request, timeout=TIMEOUT_S).caption.text
