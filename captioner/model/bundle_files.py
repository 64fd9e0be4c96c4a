"""Reads the files of an untrusted bundle: only regular files of bounded size."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from captioner.errors import BundleError

MANIFEST = "bundle.json"
DEFAULT_NAME = "default"
DEFAULT = Path(__file__).parents[1] / "models" / DEFAULT_NAME
"""The embedded model."""
MAX_BYTES = {
    MANIFEST: 4 * 2**20,
    "vocabulary.txt": 16 * 2**20,
    "MODEL_CARD.md": 4 * 2**20,
    "encoder.onnx": 2**31 - 1,
    "decoder.onnx": 2**31 - 1,
    "encoder.int8.onnx": 2**31 - 1,
    "decoder.int8.onnx": 2**31 - 1,
}


def read_bundle_file(path: Path) -> bytes:
    """The content of a file in a bundle. Raises `BundleError` for a link, a device, a pipe and what is too
    large, `FileNotFoundError` where there is none, and other `OSError`s."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        if path.is_symlink():
            raise BundleError(f"{path} is a link; a bundle holds plain files only") from None
        raise
    with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(21, "Is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise BundleError(f"{path} is not a plain file")
        limit = MAX_BYTES[path.name]
        if status.st_size > limit:
            raise BundleError(f"{path} has {status.st_size} bytes, the limit is {limit}")
        return file.read(status.st_size)  # Python reserves as much as is asked for
