"""Tries the bundle of a stranger in a process of its own, with limits, before it is loaded into this one.

A graph can take gigabytes or compute for ever although it looks as others do. Here that would end, or stop,
everything; in a server, the calls of everybody. What has passed is noted in the user's cache, by its digest.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from captioner.errors import BundleError, CaptionerError, clip, reason_of
from captioner.model.bundle import Bundle
from captioner.model.graphs.cache import is_ours, user_folder
from captioner.model.installed import installed_models

_IMAGES = 4
"""A batch that is large enough to tell: encoders compute as many images at once on a CPU."""
_MEMORY_BYTES = 2 * 2**30
"""Memory that a model may take, beside a multiple of its bundle."""
_BUNDLE_COPIES = 8
_CPU_S, _CPU_S_PER_MIB = 20.0, 0.25
"""Processor time that a model may take: about ten times that of the installed ones on an ordinary core."""
_NO_MEMORY = "it needs more memory than it may have"
_ALLOCATION = "allocate memory", "bad_alloc", "BFCArena"
"""In what ONNX Runtime says about a lack of memory."""
_WALL_S = 1800.0
"""Many times the processor time: the machine may be busy."""
_NICENESS = 5


def load_bundle(folder: Path | None) -> Bundle:
    """Load a bundle (None: the embedded one) and try it, unless it is one of the installed models or has
    passed before. Raises `BundleError`."""
    bundle = Bundle.load(folder)
    if folder is None or folder in installed_models().values():
        return bundle
    passed = _passed(bundle)
    is_noted = passed is not None and os.path.exists(passed)  # noqa: PTH110 (False also where it may not be reached)
    if passed is None or not is_noted or not is_ours(passed.parent):
        try_bundle(folder, bundle.digest)
        if passed is not None:
            with suppress(OSError):  # it is then tried again
                passed.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                passed.touch()
    return bundle


def try_bundle(folder: Path, digest: str) -> None:
    """Load the bundle of this digest in each of its precisions and caption a grey image, alone and in a
    batch, in a process with limits of memory and processor time. Raises `BundleError`."""
    paths = json.dumps([path or os.getcwd() for path in sys.path])  # noqa: PTH109
    code = f"import sys; sys.path[:] = {paths}; from captioner.trial import main; main()"
    size = sum(file.stat().st_size for file in folder.iterdir())
    memory_bytes = _MEMORY_BYTES + _BUNDLE_COPIES * size
    cpu_s = math.ceil(_CPU_S + _CPU_S_PER_MIB * size / 2**20)
    command = [sys.executable, "-P", "-c", code, str(folder), digest, str(memory_bytes), str(cpu_s)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_WALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise BundleError(f"the trial of {folder} took more than {_WALL_S:g} s") from None
    except OSError as error:
        raise BundleError(f"cannot start a process to try {folder}: {reason_of(error)}") from None
    if done.returncode:
        limits = f"it may take {memory_bytes / 2**30:.1f} GiB and {cpu_s} s of processor time"
        reason = clip(done.stdout.strip()) or f"its process ended with status {done.returncode}; {limits}"
        raise BundleError(f"the trial of {folder} failed: {reason}")


def main() -> None:
    """The process: prints what is wrong as one line, and then exits with status 1."""
    import numpy as np

    from captioner.captioner import Captioner
    from captioner.model.runtime import Runtime

    folder, digest = Path(sys.argv[1]), sys.argv[2]
    try:
        _limit(*map(int, sys.argv[3:]))
        bundle = Bundle.load(folder)
        if bundle.digest != digest:
            sys.exit(_say("it has changed meanwhile"))
        for precision in bundle.precisions:
            model = Captioner(bundle, Runtime(bundle, "cpu", 1, precision))  # nothing is cached
            for images in (1, _IMAGES):
                model.caption_pixels(np.full((images, *model.preparation.shape), 128, np.uint8))
    except CaptionerError as error:
        sys.exit(_say(str(error)))
    except MemoryError:
        sys.exit(_say(_NO_MEMORY))
    except Exception as error:  # whatever ONNX Runtime says about the graphs
        if any(word in str(error) for word in _ALLOCATION):
            sys.exit(_say(_NO_MEMORY))
        sys.exit(_say(f"{type(error).__name__}: {error}"))


def _passed(bundle: Bundle) -> Path | None:
    """The file that notes that a bundle has passed; None without a cache."""
    cache = user_folder()
    return None if cache is None else cache.with_name("tried") / bundle.digest


def _say(reason: str) -> int:
    print(" ".join(clip(reason).split()))
    return 1


def _limit(memory_bytes: int, cpu_s: int) -> None:
    if os.name == "nt":  # which ends it only when it takes too long
        return
    import resource

    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + memory_bytes
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
