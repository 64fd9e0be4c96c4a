"""Arrays with a row for each example, computed once and stored on disk.

An interrupted computation resumes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from filelock import FileLock

from captioner.cores import available_cores
from captioner.errors import OutputError, reason_of
from captioner.files.destination import replacing, writing
from captioner.surrogates import name_bytes
from captioner.training.data.examples import Example

BATCH, BATCH_ON_GPU = 32, 256


def fill(
    folder: Path,
    kind: str,
    identity: Mapping[str, Any],
    examples: Sequence[Example],
    compute: Callable[[Sequence[Example]], dict[str, np.ndarray]],
    progress: Callable[[int, int], None],
    batch: int = BATCH,
) -> dict[str, np.ndarray]:
    """Memory-mapped arrays by name, in order, with a row for each example; missing rows are computed.

    `compute` returns the rows of at most `batch` examples. The arrays are stored in a subfolder that is named
    after their `kind`, their `identity`, and the names and digests of the images, so that a replaced image is
    computed again. Damaged arrays are, too. If several runs need the same arrays, one computes them and the
    others wait. Raises `OutputError` if there is no space, or the folder cannot be written.
    """
    names = "\n".join(f"{example.key}\t{example.digest}" for example in examples)
    images = hashlib.sha256(name_bytes(names)).hexdigest()
    identity = {**identity, "images": images}
    name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    folder = folder / f"{kind}-{name}"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        held = FileLock(folder / "lock").acquire()
    with held:
        _fill(folder, identity, examples, compute, progress, batch)
    return _opened(folder, "r")


def _fill(
    folder: Path,
    identity: Mapping[str, Any],
    examples: Sequence[Example],
    compute: Callable[[Sequence[Example]], dict[str, np.ndarray]],
    progress: Callable[[int, int], None],
    batch: int,
) -> None:
    note, count = folder / "done.json", len(examples)
    done, arrays = _resume(folder, note)
    for start in range(done, count, batch):
        stop = min(start + batch, count)
        computed = compute(examples[start:stop])
        arrays = arrays or {
            name: _make_file(folder / f"{name}.npy", array.dtype, (count, *array.shape[1:]))
            for name, array in computed.items()
        }
        for name, array in computed.items():
            arrays[name][start:stop] = array
        # The count is written after the data, so that after a kill the counted rows exist.
        if start // batch % 16 == 15 or stop == count:
            for array in arrays.values():
                array.flush()  # type: ignore[attr-defined]
            with replacing(note) as file:
                file.write(json.dumps({"done": stop, "arrays": _kinds(arrays), **identity}).encode())
        progress(stop, count)


def _resume(folder: Path, note: Path) -> tuple[int, dict[str, np.ndarray]]:
    """How many rows are there, and the arrays. If these are not what the note says, all is removed."""
    with suppress(OSError, EOFError, ValueError, KeyError, TypeError):
        said = json.loads(note.read_text())
        if said["arrays"] == _kinds(_opened(folder, "r")):  # which rejects a file that is cut short
            return int(said["done"]), _opened(folder, "r+")
    for path in (note, *folder.glob("*.npy")):
        path.unlink(missing_ok=True)
    return 0, {}


def _kinds(arrays: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    return {name: [array.dtype.str, *array.shape] for name, array in arrays.items()}


def _opened(folder: Path, mode: Literal["r", "r+"]) -> dict[str, np.ndarray]:
    return {path.stem: np.load(path, mmap_mode=mode) for path in sorted(folder.glob("*.npy"))}


def _make_file(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """A memory-mapped array whose disk space is allocated in advance. Without that, a full disk would end the
    process with a bus error at the first write."""
    path.unlink(missing_ok=True)  # also a link, which would be followed
    try:
        array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        if hasattr(os, "posix_fallocate"):
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as error:
        path.unlink(missing_ok=True)
        size = f"{math.prod(shape) * dtype.itemsize / 1e6:.1f} MB"
        raise OutputError(f"cannot write {path}, which takes {size}: {reason_of(error)}") from None
    return array


def at_once(device: torch.device) -> int:
    """Images that are computed together."""
    return BATCH if device.type == "cpu" else BATCH_ON_GPU


def on_threads(read: Callable[[Example], Any], examples: Sequence[Example]) -> list[Any]:
    """What `read` returns for each. Most of decoding and resizing a photo does not hold Python's lock."""
    with ThreadPoolExecutor(min(len(examples), available_cores()) or 1) as threads:
        return list(threads.map(read, examples))
