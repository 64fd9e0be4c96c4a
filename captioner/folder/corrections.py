"""Decisions about captions: approved, edited or rejected in a gallery, or changed in a file of
`captioner batch`."""

from __future__ import annotations

import json
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import starmap
from pathlib import Path
from typing import Any, Self

from captioner.errors import REJECTED, DataError, OutputError
from captioner.files.destination import check_writable, replacing
from captioner.files.locks import taking_turns
from captioner.folder.records import parse_line, table_rows
from captioner.folder.transform import Record, Transform, unchanged
from captioner.printable import clean
from captioner.readable_json import dump_json
from captioner.references.bounded import read_text
from captioner.references.tables import is_csv, is_listed
from captioner.surrogates import escape_surrogates, image_of

STATUSES = ("approved", "edited", REJECTED)
_LISTED = "listed"
"""The status of a caption in a file of `captioner batch`. It is a decision if it is not the model's."""
_OF_MODEL = frozenset(("error", "words", "alternatives", "keywords", "log_prob", "confidence"))
"""Fields that describe the model's caption, not the one that a person wrote instead."""
_MAX_BYTES = 2**28
_WANTED = "decisions are read from the JSON lines of a gallery, or the CSV or JSON lines of captioner batch"


class Corrections:
    """Decisions by the photo's name."""

    def __init__(self, decisions: Mapping[str, tuple[str, str]]) -> None:
        self.decisions = decisions
        """Status and caption by the name as it is written."""
        self.unmatched: list[str] = []
        """The names of decisions that are about no photo, in order."""
        self.ambiguous: list[str] = []
        """The names of decisions that may be about several photos, or about a photo as others are."""
        self._meant: dict[str, str] = {}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read lines {"image", "caption", "status"}, of which the later of two about a photo counts, or the
        CSV or JSON lines that `captioner batch` wrote and a person has changed. Raises `DataError`."""
        text = read_text(path, _MAX_BYTES, wanted=_WANTED)
        if is_csv(path, text):
            return cls(dict(_read_table(path, text)))
        return cls(dict(_read_decisions(path, text)))

    def match(self, names: Iterable[str]) -> None:
        """Find the decisions about these photos: those with exactly its name, and where only one photo and
        one decision have names that look the same, this one."""
        written: dict[str, list[str]] = defaultdict(list)
        photos: dict[str, dict[str, None]] = defaultdict(dict)
        for image in self.decisions:
            written[_key(image)].append(image)
        for name in names:
            if (key := _key(name)) in written:
                photos[key][name] = None
        self._meant, self.unmatched, self.ambiguous = {}, [], []
        for key, images in written.items():
            found = photos[key]
            if len(images) == len(found) == 1:
                self._meant[next(iter(found))] = images[0]
                continue
            is_lost = all(name in self.decisions for name in found)
            left = (image for image in images if image not in found)
            (self.unmatched if is_lost else self.ambiguous).extend(left)

    def decide(self, record: Record, reword: Transform = unchanged) -> Record | None:
        """The record after a person's decision; None if there is none. `reword` turns a record into the one
        that the person saw. The error of a caption that could not be written stays."""
        name: str = record["image"]
        decision = self.decisions.get(self._meant.get(name, name))
        if decision is None:
            return None
        status, caption = decision
        of_model = {_plain(one.get("caption", "")) for one in (record, reword(record))}
        is_of_model = _plain(caption) in of_model
        if status == _LISTED:
            if is_of_model:
                return None
            status = "edited" if caption else REJECTED
        unwritten = {"error": record["error"]} if "caption" in record and "error" in record else {}
        if status == REJECTED:
            error = {"code": REJECTED, "message": "rejected by a person"}
            return {"image": record["image"], "error": error, **unwritten}
        left_out = {"error"} if is_of_model else _OF_MODEL
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
        """Decisions as {"image", "caption", "status"}. Raises `DataError` and `OutputError`."""
        return [*self._read().values()]

    def change(self, changes: Iterable[Mapping[str, Any]]) -> None:
        """Write decisions; those without a status are taken back. Raises `DataError` for what is no decision,
        and `OutputError`; nothing has changed then."""
        with taking_turns(self.path):
            lines = self._read()
            for change in changes:
                if change.get("status") is None:
                    lines.pop(change["image"], None)
                else:
                    image, _, line = _read_line(json.dumps(dict(change)), "a decision")
                    lines[image] = line
            with replacing(self.path) as file:
                file.writelines(f"{dump_json(line)}\n".encode() for line in lines.values())

    def _read(self) -> dict[str, dict[str, str]]:
        if not self.path.exists():
            return {}
        if not self.path.is_file():  # reading a pipe would wait for a writer
            why = "it is no file, which could be read again"
            raise OutputError(f"cannot keep decisions in {self.path}: {why}")
        lines = _lines(self.path, read_text(self.path, _MAX_BYTES, wanted=_WANTED))
        return {image: line for image, _, line in starmap(_read_line, lines)}


_Line = tuple[str, tuple[str, str], dict[str, str]]
"""The name of a photo, the status and caption, and the line itself."""


def _read_table(path: Path, text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """The name, status and caption of each row, but of photos that failed."""
    for _, row in table_rows(path, text):
        yield from _listed(row["image"], row["caption"], row.get("error_code", ""))


def _read_decisions(path: Path, text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """The same of each line, which may be a record of `captioner batch`."""
    for line, place in _lines(path, text):
        try:
            record = parse_line(line.encode())
        except ValueError:
            record = {}
        if is_listed(record):
            code = record.get("error", {}).get("code", "")
            yield from _listed(record["image"], record.get("caption", "").strip(), code)
        else:
            image, decision, _ = _read_line(line, place)
            yield image, decision


def _listed(image: str, caption: str, error_code: str) -> Iterator[tuple[str, tuple[str, str]]]:
    if caption or error_code in ("", REJECTED):
        yield image, (_LISTED, caption)


def _lines(path: Path, text: str) -> Iterator[tuple[str, str]]:
    """Each line that is not blank, and where it is."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield line, f"{path}, line {number}"


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
    return image, (status, caption), {"image": image, "caption": caption, "status": status}


def _key(name: str) -> str:
    """A photo's name as the gallery shows it, whichever way its slashes and accents are written."""
    return unicodedata.normalize("NFC", clean(name.replace("\\", "/")))


def _plain(caption: str) -> str:
    """A caption as a spreadsheet shows it, whichever way its accents are written."""
    return unicodedata.normalize("NFC", " ".join(escape_surrogates(caption).split()))
