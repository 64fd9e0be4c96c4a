"""Decisions about captions from a gallery: approved, edited, rejected."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from captioner.errors import DataError
from captioner.folder.outputs.options import Record
from captioner.overlay.text import clean

STATUSES = ("approved", "edited", "rejected")
REJECTED = "rejected"
"""The error code of a caption that a person rejected; it does not count as a failure."""
_OF_MODEL = frozenset(("error", "words", "alternatives", "keywords", "log_prob", "confidence"))
"""Fields that describe the model's caption, not the one that a person wrote instead."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """Decisions by the photo's name, as the gallery shows it."""

    decisions: Mapping[str, tuple[str, str]]
    """Status and caption."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read lines {"image", "caption", "status"}; the later of two lines about a photo counts.
        Raises `DataError`."""
        decisions: dict[str, tuple[str, str]] = {}
        try:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: {getattr(error, 'strerror', None) or 'not a text file'}") from error
        for number, line in enumerate(lines, 1):
            if line.strip():
                image, decision = _read_line(line, f"{path}, line {number}")
                decisions[image] = decision
        return cls(decisions)

    def unmatched(self, names: Iterable[str]) -> list[str]:
        """The names of corrections that are none of these, in order."""
        left = dict.fromkeys(self.decisions)
        for name in names:
            left.pop(_key(name), None)
        return list(left)

    def decide(self, record: Record, reword: Callable[[Record], Record]) -> Record | None:
        """The record after a person's decision; None if there is none. `reword` turns a record into the one
        that the person saw. The error of a caption that could not be written stays."""
        decision = self.decisions.get(_key(record["image"]))
        if decision is None:
            return None
        status, caption = decision
        unwritten = {"error": record["error"]} if "caption" in record and "error" in record else {}
        if status == REJECTED:
            error = {"code": REJECTED, "message": "rejected by a person"}
            return {"image": record["image"], "error": error, **unwritten}
        of_model = (record.get("caption"), reword(record).get("caption"))
        left_out = {"error"} if caption in of_model else _OF_MODEL
        kept = {name: value for name, value in record.items() if name not in left_out}
        return {**kept, "caption": caption, **unwritten}


def _read_line(line: str, place: str) -> tuple[str, tuple[str, str]]:
    try:
        record = json.loads(line)
        image, caption, status = record["image"], record["caption"], record["status"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f'{place}: not a line {{"image": …, "caption": …, "status": …}}') from None
    if status not in STATUSES or not isinstance(image, str) or not isinstance(caption, str):
        raise DataError(f"{place}: the status must be one of {', '.join(STATUSES)}, image and caption text")
    if status != REJECTED and not caption.strip():
        raise DataError(f"{place}: the caption is empty")
    return _key(image), (status, caption)


def _key(name: str) -> str:
    """A photo's name as the gallery shows it, whichever way its slashes and accents are written."""
    return unicodedata.normalize("NFC", clean(name.replace("\\", "/")))
