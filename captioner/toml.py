"""Configurations in TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from captioner.errors import DataError


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file in UTF-8, with or without a byte order mark. Raises `DataError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"cannot read the configuration {path}: {error.strerror}") from None
    except ValueError as error:  # also bytes that are not UTF-8, and numbers of thousands of digits
        raise DataError(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise DataError(f"{path} is not valid TOML: too many brackets within each other") from None
