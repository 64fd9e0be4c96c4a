"""Connections that receive much that belongs to no call are closed; those of calls are not."""

from __future__ import annotations

import sys
from contextlib import suppress

import grpc
import pytest
from support.engines import FakeEngine
from support.patience import PATIENCE_S, wait_until
from support.serving import RunningServer, make_image, serve
from support.stalling import Stalling

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the bytes of a connection")

CAPTION = "/captioner.v1.CaptionService/Caption"


def closed(server: RunningServer) -> float:
    return server.metric("flooded_connections_total")


def test_headers_without_end_close_their_connection() -> None:
    with serve(FakeEngine()) as server:
        attacker = Stalling(server.address, CAPTION)
        with pytest.raises(OSError):
            attacker.continue_headers(10_000)
        wait_until(lambda: closed(server) == 1)


def test_settings_without_end_close_their_connection() -> None:
    with serve(FakeEngine()) as server:
        attacker = Stalling(server.address, CAPTION)
        with pytest.raises(OSError):
            for _ in range(1000):
                attacker.settle(5000)
        wait_until(lambda: closed(server) == 1)


def test_the_images_of_calls_are_no_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those that are captioned, in calls and streams, nor those that are rejected."""
    monkeypatch.setattr("captioner_server.rpc.floods._FREE_BYTES", 4096)
    monkeypatch.setattr("captioner_server.rpc.floods._FREE_BYTES_S", 0)
    monkeypatch.setattr("captioner_server.rpc.floods._INTERVAL_S", 0.001)
    large = make_image(1) + bytes(3_000_000)
    with serve(FakeEngine(), max_calls=2) as server, grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        for _ in range(10):
            assert stub.Caption(pb.CaptionRequest(image=large), timeout=PATIENCE_S).caption.text
        requests = (pb.CaptionBatchRequest(id=str(number), image=large) for number in range(10))
        assert len(list(stub.CaptionBatch(requests, timeout=PATIENCE_S))) == 10
        calls = [stub.Caption.future(pb.CaptionRequest(image=large), timeout=PATIENCE_S) for _ in range(20)]
        codes = set()
        for call in calls:
            with suppress(grpc.RpcError):
                call.result()
            codes.add(call.code())
        assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert not closed(server)
