"""Reading files of tensors without ever running code from them."""

from __future__ import annotations

import mmap
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from captioner.errors import DataError, reason_of
from captioner.files.zip_archive import ZipArchive

_UNFOLDED = 8
"""How many times its size the values of a file may take: several names may mean one tensor."""
_DEPTH = 100
"""The most tables and lists inside each other."""
_GROWS = b"\nbytearray\n"
"""What a pickle names to make gigabytes of a few bytes. PyTorch accepts it, but does not write it."""


def read_tensors(path: Path, device: str | torch.device = "cpu") -> dict[str, Any]:
    """A dictionary of tensors and plain values, as `torch.save` wrote it. Raises `DataError` for anything
    else."""
    try:
        size = _check_unread(path)
        with warnings.catch_warnings(action="ignore"):  # about other programs' files; the error is enough
            contents = torch.load(path, map_location=device, weights_only=True)
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason_of(error)}") from None
    except Exception:  # torch documents no errors for this; damaged files raised eight types
        raise DataError(f"{path} is not a file of tensors and plain values, or is damaged") from None
    if not isinstance(contents, dict):
        raise DataError(f"{path} holds no named tensors")
    _check_values(path, contents, _UNFOLDED * size)
    return contents


def _check_unread(path: Path) -> int:
    """The size of the file. Raises `DataError` for a pipe, which may wait for a writer, and for what would
    take far more memory than the file has; other errors for a damaged file."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} is not a plain file")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        size, is_zip = len(content), content[:4] == b"PK\3\4"
        if not is_zip and content.find(_GROWS) >= 0:
            raise _unfolding(path)
    if is_zip:
        with ZipArchive(path) as archive:
            _check_members(path, archive, size)
    return size


def _check_members(path: Path, archive: ZipArchive, size: int) -> None:
    members = archive.infolist()
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise DataError(f"{path} has compressed members, which PyTorch does not write")
    # With a comment or other bytes before it, another reader may find other members.
    starts_first = min(member.header_offset for member in members) == 0
    if archive.comment or not starts_first or sum(member.file_size for member in members) > size:
        raise _unfolding(path)
    for member in members:
        if member.filename.endswith(".pkl") and _GROWS in archive.read(member):
            raise _unfolding(path)


def _check_values(path: Path, contents: Any, most: int) -> None:
    """Raise `DataError` for values of more than `most` bytes, each counted as often as something refers to
    it, and for tables without end."""
    left, values = most, [(contents, 0)]
    while values:
        value, depth = values.pop()
        left -= value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 1
        if left < 0 or depth > _DEPTH:
            raise _unfolding(path)
        if isinstance(value, dict):
            value = value.values()
        elif not isinstance(value, (list, tuple, set)):
            continue
        values += ((item, depth + 1) for item in value)


def _unfolding(path: Path) -> DataError:
    return DataError(f"{path} unfolds to more than it has")


def current_name(name: str) -> str:
    """The name that a weight of a `CaptionModel` has today: the parts of the bonus were the decoder's."""
    part = name.removeprefix("decoder.")
    moved = part != name and part.startswith(("evidence.", "names.", "repetition"))
    return f"decoder.bonus.{part}" if moved else name
