"""Reading files of tensors without ever running code from them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from captioner.errors import DataError


def read_tensors(path: Path, device: str | torch.device = "cpu") -> dict[str, Any]:
    """What `torch.save` wrote: a dictionary of tensors and plain values. Raises `DataError` for the rest."""
    try:
        with warnings.catch_warnings(action="ignore"):  # remarks on foreign files; the error says it all
            contents = torch.load(path, map_location=device, weights_only=True)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except Exception:  # torch names no set of errors; damaged files raised eight kinds
        raise DataError(f"{path} is not a file of tensors and plain values, or is damaged") from None
    if not isinstance(contents, dict):
        raise DataError(f"{path} holds no named tensors")
    return contents
