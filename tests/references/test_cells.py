"""What keeps spreadsheets from computing cells is taken away again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from captioner.folder.outputs.csv_file import CsvOutput
from captioner.folder.outputs.options import OutputOptions
from captioner.references import read_references
from captioner.references.cells import escape_path, escape_text, unescape_path, unescape_text


@pytest.mark.parametrize(
    "text",
    [
        *("a dog", "", "it's a dog", "'a dog'", "a;b", "a = b", "x-y", "'; 'a"),
        *("=1", "+1", "-1", "@a", "\uff1d1", "a;=1", "a\n-b", "\t=1", "\n", "a\t@b;;+c"),
    ],
)
def test_text_and_paths_are_the_same_again(text: str) -> None:
    assert unescape_text(escape_text(text)) == unescape_path(escape_path(text)) == text


def test_other_paths_stay() -> None:
    assert [unescape_path(path) for path in ("./a.jpg", "./=a.jpg", ".", "./")] == [
        "./a.jpg",
        "=a.jpg",
        ".",
        "./",
    ]


def test_a_table_that_batch_wrote_has_the_same_names_and_captions(tmp_path: Path) -> None:
    records = [
        {"image": "=1.jpg", "caption": "-a dog; =a cat"},
        {"image": " a.jpg", "caption": "a cat"},
        {"image": "a.jpg", "caption": "a bird"},
        {"image": os.fsdecode(b"lat\xe9.jpg"), "caption": "'a dog'"},
        {"image": "x;=y.jpg", "caption": "a, b"},
    ]
    path = tmp_path / "c.csv"
    with path.open("wb") as file:
        CsvOutput(path, OutputOptions()).write(file, iter(records))
    found = [{"image": one.name, "caption": one.captions[0]} for one in read_references(path)]
    assert found == records
