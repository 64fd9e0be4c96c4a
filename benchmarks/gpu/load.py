"""Throughput, latency and memory by batch size, and the service under load."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import numpy as np
from measures.bench import SEARCHES, Bench, Table
from measures.photos import SIZES, photos, pixels
from serving.common import percentiles_ms, run_clients

from captioner_client import CaptionClient
from captioner_server.inference import grpc_predict_v2_pb2 as oip
from captioner_server.inference.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CLIENTS = 64
LANES = (1, 2, 4)


def throughput(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    captioner = bench.captioner()
    rows = []
    for search, options in SEARCHES.items():
        for size in BATCHES[:2] if bench.quick else BATCHES:
            part = pixels(captioner, size)
            times = bench.times(lambda part=part, options=options: captioner.caption_pixels(part, options))
            row: dict[str, Any] = {
                "search": search,
                "batch": size,
                "photos/s": size / float(np.median(times)),
            }
            row |= {f"{name} ms": value for name, value in percentiles_ms(times).items()}
            row |= {"device MB": device_memory_mb(bench)}
            rows.append(row)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    note = f"Without reading photos. Device memory is that of all processes; {peak:.0f} MB of host memory."
    return [Table("Throughput and latency", rows, note)], {}


def lanes(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    """Several batches at once: while Python builds the captions of one, the GPU can compute another."""
    captioner = bench.captioner()
    rows = []
    for search, options in SEARCHES.items():
        for size in (1,) if bench.quick else (32, 256):
            part = pixels(captioner, size)
            row: dict[str, Any] = {"search": search, "batch": size}
            for count in LANES:
                with ThreadPoolExecutor(count) as pool:
                    batches = [part] * (2 * count)
                    caption = partial(captioner.caption_pixels, options=options)
                    ms = bench.median_ms(lambda: list(pool.map(caption, batches)))  # noqa: B023
                row[f"lanes: {count}, photos/s"] = 1000 * size * len(batches) / ms
            rows.append(row)
    return [Table("Batches at the same time", rows)], {}


def service(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    """Callers who ask again as soon as they are answered."""
    clients, seconds = (4, 0.5) if bench.quick else (CLIENTS, 10.0)
    files = photos(SIZES["500 x 375"])
    captioner = bench.captioner(lanes=None)
    many = [files[number % len(files)] for number in range(clients if bench.quick else 4 * clients)]
    alone = 1000 * len(many) / bench.median_ms(lambda: captioner.caption(many, batch_size=clients))
    with bench.server("--max-batch-size", str(clients)) as server:
        asyncio.run(run_clients(server.address, files, clients, seconds / 10))
        started = time.perf_counter()
        waits, errors = asyncio.run(run_clients(server.address, files, clients, seconds))
        rate = len(waits) / (time.perf_counter() - started)
        row: dict[str, Any] = {"callers": clients, "photos/s": rate, "errors": len(errors)}
        row |= {f"{name} ms": value for name, value in percentiles_ms(waits).items()}
        row |= {"share of the process alone": round(rate / alone, 2), "device MB": device_memory_mb(bench)}
        row["host MB"] = round(server.peak_mib())
        good = server.end() == 0 and not errors
    note = f"Server, callers and decoding share {os.cpu_count()} cores."
    return [Table("captioner serve under load", [row], note)], {"the service answers every call": good}


def protocols(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    """The same photo by gRPC, by HTTP and by the Open Inference Protocol."""
    photo = photos(SIZES["500 x 375"], 1)[0]
    with bench.server("--http-port", "0") as server:
        server.wait_for("http")
        with CaptionClient(server.address) as client:
            said = {"gRPC": client.caption(photo).text}
        url = server.events["http"]["url"].rstrip("/") + "/v1/caption"
        request = urllib.request.Request(url, photo, {"Content-Type": "image/jpeg"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            said["HTTP"] = json.load(answer)["caption"]
        said["Open Inference Protocol"] = _infer(server.address, photo)
        server.end()
    expected = bench.captioner().caption(photo).text
    rows = [{"protocol": protocol, "caption": text} for protocol, text in said.items()]
    checks = {f"{protocol} captions as the process does": text == expected for protocol, text in said.items()}
    return [Table("Protocols", rows)], checks


def _infer(address: str, photo: bytes) -> str:
    """A caption by ModelInfer."""
    request = oip.ModelInferRequest(model_name="captioner")
    tensor = request.inputs.add(name="IMAGE", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(photo)
    request.outputs.add(name="CAPTION")
    with grpc.insecure_channel(address) as channel:
        answer = GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=60)
    if answer.raw_output_contents:
        return answer.raw_output_contents[0][4:].decode()  # after four bytes with the length
    return answer.outputs[0].contents.bytes_contents[0].decode()


def device_memory_mb(bench: Bench) -> int | None:
    """In use on the GPU; None on a CPU, or without NVIDIA's library."""
    if bench.device == "cpu" or not bench.has("pynvml", "device memory"):
        return None
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(bench.device.partition(":")[2] or 0))
        return round(pynvml.nvmlDeviceGetMemoryInfo(handle).used / 1e6)
    finally:
        pynvml.nvmlShutdown()
