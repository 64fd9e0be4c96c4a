"""Many clients at once: errors, throughput beside that of a process of its own, batches, health, memory.

    python benchmarks/serving/load.py --clients 64 --seconds 60 [--model BUNDLE] [--images FOLDER]

First the model captions the same images in a process of its own, in batches as large as the server's,
for half as long: that throughput is the reference. The clients, one process, run on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from contextlib import closing
from itertools import cycle

from common import (
    add_arguments,
    load_images,
    percentiles_ms,
    report,
    run_clients,
    running_server,
    watched_health,
)

SHARE_OF_REFERENCE, MAX_HEALTH_MS = 0.85, 50
BATCH = 16
_BATCHES = ("captioner_batch_size_images_count", "captioner_batch_size_images_sum")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--reference", action="store_true", help=argparse.SUPPRESS)
    add_arguments(parser)
    args = parser.parse_args()
    if args.reference:
        print(json.dumps(measure_reference(args)))
        return 0
    reference = json.loads(subprocess.run(_reference_command(), check=True, capture_output=True).stdout)
    images = load_images(args.images)
    with running_server(args, "--max-batch-size", str(BATCH)) as server:
        before = [server.metric(name) for name in _BATCHES]
        with watched_health(server.address) as health:
            started = time.perf_counter()
            waits, errors = asyncio.run(run_clients(server.address, images, args.clients, args.seconds))
            elapsed_s = time.perf_counter() - started
        batches, batched = (server.metric(name) - was for name, was in zip(_BATCHES, before, strict=True))
        memory_mib = server.peak_mib()
        status = server.end()
    throughput = len(waits) / elapsed_s
    share = throughput / reference["images_per_s"]
    mean_batch = batched / batches
    result = {
        "clients": args.clients,
        "seconds": round(elapsed_s, 1),
        "images": len(waits),
        "errors": errors,
        "images_per_s": round(throughput, 2),
        "reference_images_per_s": round(reference["images_per_s"], 2),
        "share_of_reference": round(share, 3),
        "mean_batch": round(mean_batch, 2),
        "latency_ms": percentiles_ms(waits),
        "health_ms": percentiles_ms(health),
        "health_checks": len(health),
        "peak_memory_mib": round(memory_mib),
    }
    checks = {
        "no error": not errors and status == 0,
        "batches form": mean_batch > 2,
        f"at least {SHARE_OF_REFERENCE} of the reference": share >= SHARE_OF_REFERENCE,
        f"health within {MAX_HEALTH_MS} ms": max(health) * 1000 < MAX_HEALTH_MS,
    }
    return report(result, checks)


def measure_reference(args: argparse.Namespace) -> dict[str, float]:
    """Throughput of the captioner alone, decoding included."""
    from captioner import Captioner

    images = load_images(args.images)
    captioner = Captioner.load(args.model, device=args.device, lanes=None)
    captioner.caption(images[:BATCH], batch_size=BATCH)
    done, started = 0, time.perf_counter()
    with closing(captioner.caption_each(cycle(images), batch_size=BATCH)) as outcomes:
        for _ in outcomes:
            done += 1
            elapsed_s = time.perf_counter() - started
            if elapsed_s >= args.seconds / 2:
                break
    return {"images_per_s": done / elapsed_s}


def _reference_command() -> list[str]:
    flags = sys.argv[1:]
    if "--serve" in flags:
        flags = flags[: flags.index("--serve")]
    return [sys.executable, __file__, *flags, "--reference"]


if __name__ == "__main__":
    sys.exit(main())
