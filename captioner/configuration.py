"""Configurations: their TOML, and what they mean by a path."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from captioner.errors import DataError, reason_of

MOST_DEEP = 100
"""Tables and lists within each other. Dotted keys make tables without end, which Python cannot print."""


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file in UTF-8, with or without a byte order mark. Raises `DataError`."""
    try:
        return parse_toml(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"cannot read the configuration {path}: {reason_of(error)}") from None
    except ValueError as error:  # also bytes that are not UTF-8
        raise DataError(f"{path} is not valid TOML: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a text. Raises `ValueError`, also for numbers of thousands of digits, and for more than
    `MOST_DEEP` tables and lists within each other."""
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise ValueError("too many brackets within each other") from None
    level: list[Any] = [values]
    for _ in range(MOST_DEEP):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [value for values_of in inner for value in values_of if isinstance(value, dict | list)]
    if level:
        raise ValueError(f"more than {MOST_DEEP} tables within each other, by dots or brackets")
    return values


def below(folder: Path, place: str | Path) -> Path:
    """What a configuration means by a path: relative to `folder`, unless it is absolute or begins with ~, the
    home folder. Raises `DataError` where the system does not know that."""
    try:
        return folder / Path(place).expanduser()
    except RuntimeError as error:
        raise DataError(f"{place}: {error}") from None
