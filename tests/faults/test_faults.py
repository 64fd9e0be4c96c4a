"""Faults under load, every call counted. In short here; in length:

    CAPTIONER_FAULTS=long python -m pytest tests/faults tests/deploy/test_topology.py

The long form loads the server for minutes and opens a thousand connections; CAPTIONER_SOAK_S=3600 makes the
soak an hour. A rolling restart of several servers behind HAProxy is in tests/deploy/test_topology.py, a full
disk under a batch of a folder in tests/folder/test_disks.py.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest
from support import bombs
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.processes import decoder_pids, server_process
from support.serving import RunningServer, make_image, serve

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_client import CaptionClient
from captioner_server.observation.log_writer import LogWriter

LONG = os.environ.get("CAPTIONER_FAULTS") == "long"
LOAD_S = 60.0 if LONG else 2.0
SOAK_S = float(os.environ.get("CAPTIONER_SOAK_S", 600 if LONG else 3))
CONNECTIONS = 1000 if LONG else 100
ROUNDS = 20 if LONG else 1
CALLERS = 4


@contextmanager
def load(address: str) -> Iterator[Counter[str]]:
    """Callers of one image and a stream; the codes of all their answers are counted when the context ends."""
    stop, codes = threading.Event(), Counter[str]()

    def unary(number: int) -> None:
        options = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(address, options) as channel:
            stub = CaptionServiceStub(channel)
            while not stop.is_set():
                try:
                    stub.Caption(pb.CaptionRequest(image=make_image(number)), timeout=PATIENCE_S)
                    codes["OK"] += 1
                except grpc.RpcError as error:
                    codes[error.code().name] += 1

    def requests() -> Iterator[pb.CaptionBatchRequest]:
        number = 0
        while not stop.is_set():
            codes["sent"] += 1
            number += 1
            yield pb.CaptionBatchRequest(id=str(number), image=make_image(number % 7))

    def batch() -> None:
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            for answer in CaptionServiceStub(channel).CaptionBatch(requests(), timeout=LOAD_S + SOAK_S + 300):
                codes["answered"] += 1
                codes[answer.error.reason or "caption"] += 1

    threads = [threading.Thread(target=unary, args=(number,)) for number in range(CALLERS)]
    threads.append(threading.Thread(target=batch))
    for thread in threads:
        thread.start()
    try:
        yield codes
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert codes["answered"] == codes["sent"] > 0  # the stream lost nothing
    assert codes["OK"] > 0


@contextmanager
def serve_quickly(**options: float) -> Iterator[RunningServer]:
    with serve(FakeModel(image_s=0.001), **options) as running:
        yield running
        wait_until(lambda: running.metric("in_flight_calls") == running.metric("admitted_images") == 0)
        wait_until(lambda: running.server.door.budget.used_bytes == 0)


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serve_quickly() as running:
        yield running


def nothing_lost(codes: Counter[str]) -> None:
    assert set(codes) <= {"OK", "sent", "answered", "caption"}, codes


def repeat(fault: Callable[[], object], every_s: float) -> None:
    """Do it again and again while the load runs, three times at least."""
    end = time.monotonic() + LOAD_S
    done = 0
    while done < 3 or time.monotonic() < end:
        fault()
        done += 1
        time.sleep(every_s)


def test_decoding_processes_are_killed(server: RunningServer) -> None:
    def kill() -> None:
        for process in decoder_pids()[:1]:
            os.kill(process, signal.SIGKILL)

    with load(server.address) as codes:
        repeat(kill, 1.5)
    nothing_lost(codes)


def test_images_that_hang_their_decoder_cost_others_nothing() -> None:
    bomb = pb.CaptionRequest(image=bombs.scan_bomb())

    def attack(address: str) -> None:
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
            CaptionServiceStub(channel).Caption(bomb, timeout=PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    with serve_quickly(max_decode_s=0.5) as server, load(server.address) as codes:
        repeat(partial(attack, server.address), 0.1)
    nothing_lost(codes)


def test_one_batch_fails_and_the_next_does_not(server: RunningServer) -> None:
    def fail() -> None:
        server.model.failures = 1
        wait_until(lambda: server.model.failures == 0)

    with load(server.address) as codes:
        repeat(fail, 0.5)
    assert set(codes) <= {"OK", "INTERNAL", "UNAVAILABLE", "sent", "answered", "caption", "internal"}, codes
    assert codes["INTERNAL"] + codes["internal"] > 0


def test_batches_are_out_of_memory(server: RunningServer) -> None:
    def shrink() -> None:
        server.model.memory_images = 1
        time.sleep(0.3)
        server.model.memory_images = None

    with load(server.address) as codes:
        repeat(shrink, 0.3)
    nothing_lost(codes)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_the_disk_under_the_log_is_full(server: RunningServer) -> None:
    import logging

    with Path("/dev/full").open("w") as full:
        writer = LogWriter(full.fileno(), queue_lines=10)
        logger = logging.getLogger("captioner_server")
        logger.addHandler(writer)
        level = logger.level
        logger.setLevel(logging.INFO)
        try:
            with load(server.address) as codes:
                time.sleep(LOAD_S)
            writer.drain(5)
        finally:
            logger.removeHandler(writer)
            logger.setLevel(level)
    nothing_lost(codes)
    assert writer.dropped > 0


def test_callers_never_read(server: RunningServer) -> None:
    stalling = [("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0)]
    large = pb.CaptionOptions(attention_size=pb.GridSize(rows=64, columns=64))
    image = make_image(1)

    def requests() -> Iterator[pb.CaptionBatchRequest]:
        for number in range(1000):
            yield pb.CaptionBatchRequest(id=str(number), image=image, options=large)

    with load(server.address) as codes:
        channels = [grpc.insecure_channel(server.address, stalling) for _ in range(8)]
        calls = [CaptionServiceStub(channel).CaptionBatch(requests()) for channel in channels]
        time.sleep(LOAD_S)
        for call, channel in zip(calls, channels, strict=True):
            call.cancel()
            channel.close()
    nothing_lost(codes)
    wait_until(lambda: server.metric("in_flight_calls") == 0 and server.metric("admitted_images") == 0)


def test_many_connect_at_once(server: RunningServer) -> None:
    options = [("grpc.use_local_subchannel_pool", 1)]
    with load(server.address) as codes:
        channels = [grpc.insecure_channel(server.address, options) for _ in range(CONNECTIONS)]
        request = pb.CaptionRequest(image=make_image(1))
        calls = [
            CaptionServiceStub(channel).Caption.future(request, timeout=PATIENCE_S) for channel in channels
        ]
        outcomes = Counter(call.code().name for call in calls)
        for channel in channels:
            channel.close()
    nothing_lost(codes)
    assert set(outcomes) <= {"OK", "RESOURCE_EXHAUSTED"}, outcomes


def test_a_signal_ends_a_server_under_load_and_our_client_goes_on() -> None:
    for _ in range(ROUNDS):
        with server_process(lame_duck_s=0.5) as first, server_process() as second:
            answered: list[str] = []
            with CaptionClient([first.address, second.address]) as client:
                for _, outcome in client.caption_batch(make_image(number % 7) for number in range(400)):
                    if not answered:
                        first.tell()
                    answered.append(type(outcome).__name__)
            assert first.end() == 0
            assert Counter(answered) == {"Caption": 400}


def test_a_soak_takes_no_more_memory_files_or_threads() -> None:
    with server_process() as server:
        status = Path(f"/proc/{server.process.pid}")
        with load(server.address) as codes:
            wait_until(lambda: codes["OK"] > 100 and codes["answered"] > 100)
            time.sleep(SOAK_S / 4)
            before = usage(status)
            time.sleep(SOAK_S)
            after = usage(status)
        nothing_lost(codes)
    assert after["files"] <= before["files"] + 10
    assert after["threads"] <= before["threads"] + 16
    assert after["kib"] <= before["kib"] + 64 * 1024


def usage(status: Path) -> dict[str, int]:
    """Open files, threads and memory of a process."""
    fields = dict(line.split(":", 1) for line in (status / "status").read_text().splitlines())
    files = len(list((status / "fd").iterdir()))
    return {"files": files, "threads": int(fields["Threads"]), "kib": int(fields["VmRSS"].split()[0])}
