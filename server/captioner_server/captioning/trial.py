"""Tries a bundle in a process of its own, with limits, before it is loaded beside live traffic.

A graph can take gigabytes or compute for ever although it looks as others do. In the process of the server
that would end, or stop, the calls of everybody.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from captioner.errors import BundleError, CaptionerError, clip

_MEMORY_BYTES = 4 * 2**30
"""Memory that a model may take, beside a multiple of its bundle, in batches of the largest size."""
_BUNDLE_COPIES = 8
_CPU_S = 120
_WALL_S = 900.0
"""Many times the processor time: the machine may be busy with calls."""
_NICENESS = 5


def try_bundle(folder: Path, batch: int) -> None:
    """Load a bundle in each of its precisions and caption a grey image, alone and in a batch of this size, in
    a process that may take `_MEMORY_BYTES` and `_CPU_S` seconds of processor time. Raises `BundleError`."""
    paths = json.dumps([path or os.getcwd() for path in sys.path])  # noqa: PTH109
    code = f"import sys; sys.path[:] = {paths}; from captioner_server.captioning.trial import main; main()"
    command = [sys.executable, "-P", "-c", code, str(folder), str(batch)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_WALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise BundleError(f"the trial of {folder} took more than {_WALL_S:g} s") from None
    except OSError as error:
        raise BundleError(f"cannot start a process to try {folder}: {error.strerror}") from None
    if done.returncode:
        limits = f"it may take {_MEMORY_BYTES >> 30} GiB and {_CPU_S} s of processor time"
        reason = clip(done.stdout.strip()) or f"its process ended with status {done.returncode}; {limits}"
        raise BundleError(f"the trial of {folder} failed: {reason}")


def main() -> None:
    """The process: prints what is wrong as one line, and then exits with status 1."""
    import numpy as np

    from captioner.captioner import Captioner
    from captioner.model.bundle import Bundle

    try:
        _limit(Path(sys.argv[1]))
        for precision in Bundle.load(sys.argv[1]).precisions:
            model = Captioner.load(sys.argv[1], device="cpu", threads=1, precision=precision)
            for images in (1, int(sys.argv[2])):
                model.caption_pixels(np.full((images, *model.preparation.shape), 128, np.uint8))
    except CaptionerError as error:
        sys.exit(_say(str(error)))
    except MemoryError:
        sys.exit(_say("it needs more memory than it may have"))
    except Exception as error:  # whatever ONNX Runtime says about the graphs
        sys.exit(_say(f"{type(error).__name__}: {error}"))


def _say(reason: str) -> int:
    print(" ".join(clip(reason).split()))
    return 1


def _limit(folder: Path) -> None:
    import resource

    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        files = sum(file.stat().st_size for file in folder.iterdir())
        most = pages * resource.getpagesize() + _MEMORY_BYTES + _BUNDLE_COPIES * files
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
