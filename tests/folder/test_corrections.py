"""Decisions of people about captions, matched with their photos."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioner.folder.corrections import Corrections


def write(path: Path, image: str, caption: str) -> Path:
    line = json.dumps({"image": image, "caption": caption, "status": "edited"}, ensure_ascii=False)
    path.write_text(f"{line}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\r"])
def test_what_separates_lines_elsewhere_may_be_in_a_caption(tmp_path: Path, separator: str) -> None:
    caption = f"one{separator}two"
    found = Corrections.read(write(tmp_path / "c.jsonl", "a.jpg", caption))
    assert found.decisions == {"a.jpg": ("edited", caption)}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("cafe\u0301.jpg", "caf\u00e9.jpg"),
        ("caf\u00e9.jpg", "cafe\u0301.jpg"),
        ("dogs\\1.jpg", "dogs/1.jpg"),
        ("dogs/1.jpg", "dogs\\1.jpg"),
    ],
)
def test_a_name_is_the_same_with_other_slashes_and_accents(tmp_path: Path, written: str, name: str) -> None:
    corrections = Corrections.read(write(tmp_path / "c.jsonl", written, "a dog"))
    assert corrections.unmatched([name]) == []
    decided = corrections.decide({"image": name, "caption": "a cat"}, lambda record: record)
    assert decided == {"image": name, "caption": "a dog"}
