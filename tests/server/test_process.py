"""The server as a process: signals, exit status, logs, metrics."""

import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import grpc
import pytest
from support.patience import PATIENCE_S, wait_until
from support.processes import FAKE_SERVER, ServerProcess, child_environment, server_process
from support.serving import make_image

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server import probe

SIGTERMS = 3  # benchmarks/serving/sigterm.py does twenty


def call_until_told(address: str, stop: threading.Event, outcomes: list[str]) -> None:
    """Caption until the server goes away; `outcomes` are the codes."""
    with grpc.insecure_channel(address, options=[("grpc.enable_retries", 0)]) as channel:
        stub = CaptionServiceStub(channel)
        while not stop.is_set():
            try:
                stub.Caption(pb.CaptionRequest(image=make_image(1)), timeout=PATIENCE_S)
                outcomes.append("OK")
            except grpc.RpcError as error:
                outcomes.append(error.code().name)
                return


def test_sigterm_under_load_loses_no_accepted_request() -> None:
    for _ in range(SIGTERMS):
        with server_process(image_s=0.005) as server:
            stop, outcomes = threading.Event(), []
            callers = [
                threading.Thread(target=call_until_told, args=(server.address, stop, outcomes))
                for _ in range(8)
            ]
            for caller in callers:
                caller.start()
            wait_until(lambda outcomes=outcomes: outcomes.count("OK") > 16)
            server.tell()
            for caller in callers:
                caller.join(PATIENCE_S)
            assert server.end() == 0
            assert outcomes.count("OK") > 8
            assert set(outcomes) <= {"OK", "UNAVAILABLE"}
            assert server.wait_for("stopped")["finished"]


def test_a_second_signal_ends_it_at_once() -> None:
    with (
        server_process(image_s=0.2, max_batch_size=1) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = CaptionServiceStub(channel)
        held = [stub.Caption.future(pb.CaptionRequest(image=make_image(1))) for _ in range(100)]
        held[0].result(PATIENCE_S)
        server.tell()
        server.wait_for("draining")
        server.tell()
        assert server.end() == 128 + signal.SIGTERM  # not 0, as after all calls were answered


def test_signals_that_were_blocked_before_the_start_are_heard() -> None:
    start = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); "
    start += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    server = ServerProcess([sys.executable, "-c", start, str(FAKE_SERVER), "0"])
    server.wait_for("serving")
    server.tell()
    assert server.end() == 0


def test_a_model_that_cannot_be_warmed_up_is_all_that_is_told() -> None:
    server = ServerProcess([sys.executable, str(FAKE_SERVER), "0", "breaks_after=0"])
    assert server.end() == 1
    assert "Exception ignored" not in "".join(server.lines)


def test_a_signal_while_loading_stops_it() -> None:
    server = ServerProcess([sys.executable, str(FAKE_SERVER), "0.3"])
    server.wait_for("listening")
    server.tell(signal.SIGINT)
    assert server.end() == 0
    assert not any("serving" in line for line in server.lines)


def test_a_taken_port_is_one_line_and_exit_status_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, str(FAKE_SERVER), "0", f"port={port}"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, env=child_environment()
        )
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_path_that_is_too_long_for_a_socket_is_said() -> None:
    command = [sys.executable, str(FAKE_SERVER), "0", f"host='unix:/tmp/{'x' * 120}'"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=child_environment()
    )
    assert done.returncode == 2
    assert f"{'x' * 120}: AF_UNIX path too long" in done.stderr


def test_metrics_logs_and_probe_tell_what_happens() -> None:
    with server_process(metrics_port=0) as server:
        assert probe.main([server.address]) == 0
        with grpc.insecure_channel(server.address) as channel:
            CaptionServiceStub(channel).Caption(
                pb.CaptionRequest(image=make_image(1)), metadata=[("x-request-id", "r1")], timeout=PATIENCE_S
            )
        line = server.wait_for("call")
        assert (line["request_id"], line["code"], line["images"]) == ("r1", "OK", 1)
        assert {"decode_ms", "queue_ms", "compute_ms", "image_bytes", "batch_size", "ms"} <= set(line)
        with urllib.request.urlopen(server.metrics_url, timeout=PATIENCE_S) as page:
            metrics = page.read().decode()
        assert 'captioner_images_total{outcome="ok"} 1.0' in metrics
        [model] = [line for line in metrics.splitlines() if line.startswith("captioner_model_info{")]
        for label in ('name="default"', 'model="fake@0123456789ab"', 'device="cpu"', 'precision="float32"'):
            assert label in model
        assert "captioner_batch_size_images_count 1.0" in metrics
        server.tell()
        assert server.end() == 0
    assert probe.main([server.address]) == 1


def test_a_closed_stdout_is_no_failure(tiny_bundle: Path) -> None:
    serving = f"exec {sys.executable} -m captioner serve --port 0 --device cpu --model {tiny_bundle}"
    command = ["sh", "-c", f"{serving} --lame-duck-s 0 --log-format json >&-"]
    server = ServerProcess(command)
    server.wait_for("serving")
    server.tell()
    assert server.end() == 0, "".join(server.lines)


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
def test_every_interface_with_metrics() -> None:
    with server_process(host="[::]", insecure=True, metrics_port=0) as server:
        with urllib.request.urlopen(server.metrics_url.replace("[::]", "[::1]"), timeout=PATIENCE_S) as page:
            assert b"captioner_in_flight_calls" in page.read()
        server.tell()
        assert server.end() == 0
