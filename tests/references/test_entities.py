"""Entities of HTML in captions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioner.references import read_references
from captioner.references.entities import unescape_entities


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("salt &amp; pepper", "salt & pepper"),
        ("a sign: &quot;it&#39;s&#x20;open&quot;", 'a sign: "it\'s open"'),
        ("caf&eacute;&nbsp;&nbsp;at night ", "café at night"),
        ("&amp;lt;", "&lt;"),
        ("&nbsp;", ""),
        ("&#27;[2J&#0;&#xD800;", "[2J\ufffd\ufffd"),
        *((text, text) for text in ("R&D; AT&T", "cats & dogs;", "&copy that", "&copydog; &;", "a  b")),
    ],
)
def test_entities_are_read_as_what_they_stand_for(written: str, meant: str) -> None:
    assert unescape_entities(written) == meant


def test_captions_of_web_pages_are_read(tmp_path: Path) -> None:
    named = {"image": "a.jpg", "caption": ["salt &amp; pepper", "&nbsp;"]}
    (tmp_path / "c.jsonl").write_text(json.dumps(named))
    (tmp_path / "c.csv").write_text("image,caption\na.jpg,salt &amp; pepper\na.jpg,&nbsp;\n")
    (tmp_path / "c.token").write_text("a.jpg#0\tsalt &amp; pepper\na.jpg#1\t&nbsp;\n")
    for name in ("c.jsonl", "c.csv", "c.token"):
        assert [image.captions for image in read_references(tmp_path / name)] == [("salt & pepper",)]
