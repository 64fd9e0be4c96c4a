"""Unlucky moments: a thousand callers at once, deadlines that have nearly passed."""

import resource
from contextlib import ExitStack

import grpc
import httpx
from support.engines import FakeEngine
from support.patience import PATIENCE_S, wait_until
from support.serving import RunningServer, make_image, serve
from support.stalling import Stalling

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub

CAPTION = "/captioner.v1.CaptionService/Caption"
REQUEST = pb.CaptionRequest(image=make_image(1, (8, 8)))


def calls(server: RunningServer, method: str, *codes: str) -> float:
    return sum(server.metric("calls_total", method=method, code=code) for code in codes)


def test_a_thousand_callers_connect_at_once() -> None:
    """As after a restart: none of their calls is cancelled."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, files[1]), files[1]))
    method = "/captioner.v1.CaptionService/GetModel"
    try:
        with serve(FakeEngine()) as server, ExitStack() as stack:
            for _ in range(1000):
                caller = Stalling(server.address, method)
                stack.callback(caller.socket.close)
                caller.ask(b"")
            wait_until(lambda: calls(server, method, "OK", "RESOURCE_EXHAUSTED") == 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


def test_deadlines_that_have_nearly_passed() -> None:
    with (
        serve(FakeEngine(batch_s=0.005), http_port=0) as server,
        grpc.insecure_channel(server.address) as channel,
        httpx.Client(base_url=server.server.http_url, timeout=PATIENCE_S) as http,
    ):
        stub = CaptionServiceStub(channel)
        futures = [stub.Caption.future(REQUEST, timeout=0.0005 * number) for number in range(1, 100)]
        allowed = (grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert {future.code() for future in futures} <= set(allowed)
        for timeout_s in ("1e-9", "0.0001", "0.001", "0.01"):
            answer = http.post(f"/v1/caption?timeout_s={timeout_s}", content=REQUEST.image)
            assert answer.status_code in (200, 504)
        wait_until(lambda: server.metric("admitted_images") == server.metric("in_flight_calls") == 0)
        assert calls(server, CAPTION, "INTERNAL", "UNKNOWN") == 0
        assert stub.Caption(REQUEST, timeout=PATIENCE_S).caption.text
