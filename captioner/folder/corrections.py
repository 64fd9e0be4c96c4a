"""Decisions about captions from a gallery: approved, edited, rejected."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from captioner.errors import DataError
from captioner.files.destination import check_writable, replacing
from captioner.files.locks import taking_turns
from captioner.folder.outputs.options import Record
from captioner.overlay.text import clean
from captioner.references.bounded import read_text
from captioner.references.tables import REJECTED
from captioner.surrogates import image_of

STATUSES = ("approved", "edited", REJECTED)
_OF_MODEL = frozenset(("error", "words", "alternatives", "keywords", "log_prob", "confidence"))
"""Fields that describe the model's caption, not the one that a person wrote instead."""
_MAX_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class Corrections:
    """Decisions by the photo's name, as the gallery shows it."""

    decisions: Mapping[str, tuple[str, str]]
    """Status and caption."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read lines {"image", "caption", "status"}; the later of two lines about a photo counts.
        Raises `DataError`."""
        return cls({key: decision for key, decision, _ in _read_file(path)})

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


class CorrectionsFile:
    """A file of decisions that changes while people review captions, several at once or in an editor too.
    Lines of other photos stay."""

    def __init__(self, path: Path) -> None:
        """Raises `DataError` if there is a file without decisions, and `OutputError` if it could not be
        written."""
        self.path = path
        check_writable(path)
        self._read()

    def list(self) -> list[dict[str, str]]:
        """Decisions as {"image", "caption", "status"}. Raises `DataError`."""
        return [*self._read().values()]

    def change(self, changes: Iterable[Mapping[str, Any]]) -> None:
        """Write decisions; those without a status are taken back. Raises `DataError` for what is no decision,
        and `OutputError`; nothing has changed then."""
        with taking_turns(self.path):
            lines = self._read()
            for change in changes:
                if change.get("status") is None:
                    lines.pop(_key(change["image"]), None)
                else:
                    key, _, line = _read_line(json.dumps(dict(change)), "a decision")
                    lines[key] = line
            with replacing(self.path) as file:
                file.writelines(json.dumps(line).encode() + b"\n" for line in lines.values())

    def _read(self) -> dict[str, dict[str, str]]:
        return {key: line for key, _, line in _read_file(self.path)} if self.path.exists() else {}


_Line = tuple[str, tuple[str, str], dict[str, str]]
"""The key of a photo, the status and caption, and the line itself."""


def _read_file(path: Path) -> Iterator[_Line]:
    for number, line in enumerate(read_text(path, _MAX_BYTES).split("\n"), 1):
        if line.strip():
            yield _read_line(line, f"{path}, line {number}")


def _read_line(line: str, place: str) -> _Line:
    try:
        record = json.loads(line)
        caption, status = record["caption"], record["status"]
        image = image_of(record)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f'{place}: not a line {{"image": …, "caption": …, "status": …}}') from None
    if status not in STATUSES or not isinstance(image, str) or not isinstance(caption, str):
        raise DataError(f"{place}: the status must be one of {', '.join(STATUSES)}, image and caption text")
    if status != REJECTED and not caption.strip():
        raise DataError(f"{place}: the caption is empty")
    return _key(image), (status, caption), {"image": image, "caption": caption, "status": status}


def _key(name: str) -> str:
    """A photo's name as the gallery shows it, whichever way its slashes and accents are written."""
    return unicodedata.normalize("NFC", clean(name.replace("\\", "/")))
