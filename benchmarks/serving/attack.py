"""Attack a server as an outsider would, and see how long health and an innocent caller wait.

    python benchmarks/serving/attack.py --seconds 20

Each attack runs for so long on default settings, attacker and server on a core each. It takes a machine with
two cores that does nothing else.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import grpc
from common import add_arguments, load_images, percentiles_ms, report, running_server, watched_health

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.inference import grpc_predict_v2_pb2 as oip

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

_HEALTH_P99_MS, _HEALTH_MAX_MS = 100, 500
_MEMORY_MIB = 4096
CAPTION = "/captioner.v1.CaptionService/Caption"
INFER = "/inference.GRPCInferenceService/ModelInfer"
HEALTH = "/grpc.health.v1.Health/Check"


def shapes() -> tuple[str, bytes]:
    request = oip.ModelInferRequest(model_name="captioner")
    request.inputs.add(name="IMAGE", datatype="BYTES", shape=[2**62] * 60_000)
    return INFER, request.SerializeToString()


def elements() -> tuple[str, bytes]:
    request = oip.ModelInferRequest(model_name="captioner")
    request.inputs.add(name="IMAGE").contents.bytes_contents.extend([b""] * 8_000_000)
    return INFER, request.SerializeToString()


def scans() -> tuple[str, bytes]:
    from support.bombs import scan_bomb

    return CAPTION, pb.CaptionRequest(image=scan_bomb()).SerializeToString()


def maximum() -> tuple[str, bytes]:
    return CAPTION, pb.CaptionRequest(image=b"P5 4000 4000 100\n" + bytes(16_000_000)).SerializeToString()


def memory() -> tuple[str, bytes]:
    from support.bombs import large

    return CAPTION, pb.CaptionRequest(image=large("PNG", 11_000)).SerializeToString()


def health() -> tuple[str, bytes]:
    return HEALTH, b"\x0a\x80\x80\x80\x0f" + bytes(15 * 2**21)


ATTACKS: dict[str, Callable[[], tuple[str, bytes]]] = {
    attack.__name__: attack for attack in (shapes, elements, scans, maximum, memory, health)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="for each attack")
    parser.add_argument("--attack", choices=ATTACKS, action="append", help="default: all")
    parser.add_argument("--callers", type=int, default=8)
    add_arguments(parser)
    args = parser.parse_args()
    image = load_images(args.images, 1)[0]
    server_core, caller_core = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {caller_core})
    result: dict[str, Any] = {}
    checks: dict[str, bool] = {}
    context = multiprocessing.get_context("spawn")
    for name in args.attack or ATTACKS:
        with running_server(args, cores={server_core}) as server, watched_health(server.address) as times:
            stop = context.Event()
            attacker = context.Process(target=_attack, args=(server.address, name, args.callers, stop))
            attacker.start()
            innocent, lost = call(server.address, image, args.seconds)
            stop.set()
            attacker.join()
            resident = server.resident_mib()
        found = {"health_ms": percentiles_ms(times), "innocent_ms": percentiles_ms(innocent or [9e9])}
        result[name] = {**found, "lost": lost, "memory_mib": round(resident)}
        checks[f"{name}: health"] = (
            found["health_ms"]["p99"] <= _HEALTH_P99_MS and found["health_ms"]["max"] <= _HEALTH_MAX_MS
        )
        checks[f"{name}: no innocent call is lost"] = not lost
        checks[f"{name}: memory"] = resident <= _MEMORY_MIB
    return report(result, checks)


def call(address: str, image: bytes, seconds: float) -> tuple[list[float], list[str]]:
    """How long each answer took, in seconds, and how calls failed."""
    times, lost = [], []
    end = time.monotonic() + seconds
    with grpc.insecure_channel(address, [("grpc.enable_retries", 0)]) as channel:
        while (started := time.monotonic()) < end:
            try:
                CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=image), timeout=20)
                times.append(time.monotonic() - started)
            except grpc.RpcError as error:
                lost.append(f"{error.code().name}: {error.details()}")
            time.sleep(0.2)
    return times, lost


def _attack(address: str, name: str, callers: int, stop: Event) -> None:
    from concurrent.futures import ThreadPoolExecutor

    method, message = ATTACKS[name]()

    def one(_: int) -> None:
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            while not stop.is_set():
                with suppress(grpc.RpcError):
                    channel.unary_unary(method)(message, timeout=20)

    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(one, range(callers)))


if __name__ == "__main__":
    sys.exit(main())
