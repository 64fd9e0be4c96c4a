"""The list of images that `--files-from` names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from captioner.cli.commands.batch.request import Request
from captioner.errors import OptionsError, reason_of

_CHUNK_BYTES = 2**16


def read_list(request: Request) -> Iterator[str] | None:
    """The names in the list; None without a list. Raises `OptionsError`."""
    from captioner.folder.sources.files import read_names

    if request.files_from is None:
        return None
    return read_names(_chunks(_open_list(request.files_from)), b"\0" if request.null else b"\n")


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content as it arrives. With null bytes as separators, a line may be as long as the list."""
    read = getattr(file, "read1", file.read)
    while chunk := read(_CHUNK_BYTES):
        yield chunk


def _open_list(name: str) -> BinaryIO:
    if name == "-":
        if sys.stdin is None:  # the shell closed it: <&-
            raise OptionsError("--files-from: stdin is closed", "files_from")
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise OptionsError(f"--files-from: {name}: {reason_of(error)}", "files_from") from error
