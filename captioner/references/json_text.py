"""JSON from files of users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from captioner.errors import DataError


def parse_json(text: str, place: object) -> Any:
    """The value of a JSON text. Raises `DataError`, which names the place."""
    try:
        return json.loads(text)
    except ValueError as error:  # also numbers of thousands of digits
        raise DataError(f"{place}: not JSON ({error})") from None
    except RecursionError:
        raise DataError(f"{place}: not JSON of captions (too many brackets within each other)") from None


def json_lines(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Where each line is that is not blank, and its value. Raises `DataError`."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{path}, line {number}"
            yield place, parse_json(line, place)
