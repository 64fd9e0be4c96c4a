"""Unlucky moments: a thousand callers at once, deadlines that have nearly passed, a clock that is set."""

import resource
import threading
import time
from contextlib import ExitStack

import grpc
import httpx
import pytest
from support.models import FakeModel
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
        with serve(FakeModel()) as server, ExitStack() as stack:
            for _ in range(1000):
                caller = Stalling(server.address, method)
                stack.callback(caller.socket.close)
                caller.ask(b"")
            wait_until(lambda: calls(server, method, "OK", "RESOURCE_EXHAUSTED") == 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


def test_deadlines_that_have_nearly_passed() -> None:
    with (
        serve(FakeModel(batch_s=0.005), http_port=0) as server,
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


@pytest.mark.parametrize("hours", [6, -6])
def test_a_clock_that_is_set_while_calls_wait(hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set forward, no call ends before its deadline; set back, none waits for longer."""
    model, caller, real = FakeModel(), threading.current_thread(), time.time  # noqa: TID251

    def stepped() -> float:
        """In the threads of the server only: the step comes after the call."""
        return real() + (0 if threading.current_thread() is caller else 3600 * hours)

    with serve(model, http_port=0) as server, grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        monkeypatch.setattr("time.time", stepped)
        assert stub.Caption(REQUEST, timeout=PATIENCE_S).caption.text
        assert list(stub.StreamCaption(pb.StreamCaptionRequest(image=REQUEST.image), timeout=PATIENCE_S))
        url = f"{server.server.http_url}/v1/caption?timeout_s={PATIENCE_S}"
        assert httpx.post(url, content=REQUEST.image, timeout=PATIENCE_S).status_code == 200
        model.hold.clear()
        try:
            with pytest.raises(grpc.RpcError) as caught:
                stub.Caption(pb.CaptionRequest(image=make_image(2)), timeout=0.3)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            wait_until(lambda: server.metric("in_flight_calls") == 0)
        finally:
            model.hold.set()
