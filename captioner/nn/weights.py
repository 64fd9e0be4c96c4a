"""Reading files of tensors without ever running code from them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from captioner.errors import DataError, reason_of


def read_tensors(path: Path, device: str | torch.device = "cpu") -> dict[str, Any]:
    """A dictionary of tensors and plain values, as `torch.save` wrote it. Raises `DataError` for anything
    else."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about other programs' files; the error is enough
            contents = torch.load(path, map_location=device, weights_only=True)
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason_of(error)}") from None
    except Exception:  # torch documents no errors for this; damaged files raised eight types
        raise DataError(f"{path} is not a file of tensors and plain values, or is damaged") from None
    if not isinstance(contents, dict):
        raise DataError(f"{path} holds no named tensors")
    return contents


def current_name(name: str) -> str:
    """The name that a weight of a `CaptionModel` has today: the parts of the bonus were the decoder's."""
    part = name.removeprefix("decoder.")
    moved = part != name and part.startswith(("evidence.", "names.", "repetition"))
    return f"decoder.bonus.{part}" if moved else name
