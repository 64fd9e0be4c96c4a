"""A process may open only so many files. Without any left, a server goes on for those who are connected."""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path

import grpc
from support.processes import FAKE_SERVER, ServerProcess, server_process
from support.serving import make_image

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.process.file_limit import say_once_without_files

TIMEOUT_S = 60


def test_the_soft_limit_becomes_the_hard_one_and_a_low_one_is_told() -> None:
    limited = ["bash", "-c", 'ulimit -Sn 200; ulimit -Hn 300; exec "$@"', "-"]
    running = ServerProcess([*limited, sys.executable, str(FAKE_SERVER), "0"])
    try:
        told = running.wait_for("the limit of open files is low")
        assert told["limit"] == 300 < told["needed"]
        running.wait_for("serving")
        assert resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE) == (300, 300)
    finally:
        running.process.kill()
        running.process.wait()


def test_without_files_for_new_connections_the_others_are_served() -> None:
    with server_process(http_port=0, metrics_port=0, decode_workers=1) as running:
        pid = running.process.pid
        host, port = running.address.split(":")
        request = pb.CaptionRequest(image=make_image(1))
        with grpc.insecure_channel(running.address) as channel:
            stub = CaptionServiceStub(channel)
            assert stub.Caption(request, timeout=TIMEOUT_S).caption.text
            highest = max(int(file.name) for file in Path(f"/proc/{pid}/fd").iterdir())
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 11, highest + 11))
            crowd = [socket.create_connection((host, int(port)), TIMEOUT_S) for _ in range(40)]
            for _ in range(3):
                assert stub.Caption(request, timeout=TIMEOUT_S).caption.text
            [decoder] = children(pid)
            os.kill(decoder, signal.SIGKILL)
            with contextlib.suppress(grpc.RpcError):  # another decoder takes files that there may not be
                stub.Caption(request, timeout=TIMEOUT_S)
            for one in crowd:
                one.close()
            answered_within(TIMEOUT_S, stub)
        with grpc.insecure_channel(running.address) as channel:
            answered_within(TIMEOUT_S, CaptionServiceStub(channel))


def answered_within(seconds: float, stub: CaptionServiceStub) -> None:
    limit = time.monotonic() + seconds
    while True:
        try:
            assert stub.Caption(pb.CaptionRequest(image=make_image(2)), timeout=seconds).caption.text
            return
        except grpc.RpcError:
            assert time.monotonic() < limit
            time.sleep(0.1)


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in found for child in file.read_text().split()]


def test_that_no_connection_can_be_accepted_is_said_once(caplog) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        say_once_without_files(loop)
        for _ in range(500):
            error = OSError(24, "Too many open files")
            loop.call_exception_handler(
                {"message": "socket.accept() out of system resource", "exception": error}
            )
        loop.call_exception_handler({"message": "something else"})

    asyncio.run(run())
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "no new HTTP connection" in caplog.text and "something else" in caplog.text
