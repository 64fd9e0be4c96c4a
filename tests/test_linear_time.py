"""Texts and files of strangers take time with their length, not with its square."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from captioner.errors import ImageError
from captioner.folder.outputs.coco import _number
from captioner.folder.outputs.xmp.tags import DESCRIPTION, _others
from captioner.images.keywords import read_keywords
from captioner.images.opening import open_image
from captioner.metrics.tokenizer import tokenize

CAT = Path(__file__).parents[1] / "examples" / "cat.jpg"


def read_jpeg(filling: str) -> None:
    """Its scan is cut short, and what looks like markers follows."""
    content = CAT.read_bytes()
    with pytest.raises(ImageError):
        open_image(content[: len(content) // 2] + filling.encode("latin-1"))


def read_nested_keywords(filling: str) -> None:
    """Each keyword is within those before it."""
    names = (
        'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    )
    ends = "</dc:subject>" * filling.count("<dc:subject>")
    read_keywords(f"<rdf:RDF {names}>{filling}{ends}</rdf:RDF>".encode())


def describe(text: str) -> None:
    assert _others(DESCRIPTION, {"IFD0:ImageDescription": text}) == [text]


@pytest.mark.parametrize(
    ("read", "part", "end"),
    [
        pytest.param(read_jpeg, "\xff", "\0", id="JPEG"),
        pytest.param(read_nested_keywords, "<dc:subject><rdf:li>a</rdf:li>", "", id="keywords"),
        pytest.param(describe, " ", "!", id="description of spaces"),
        pytest.param(describe, "a digital ", "!", id="description of words"),
        pytest.param(_number, "1", "a", id="number in a name"),
        pytest.param(tokenize, "&amp;", "", id="caption with marks"),
        pytest.param(tokenize, "a'", "", id="caption with apostrophes"),
    ],
)
def test_the_time_is_linear(read: Callable[[str], object], part: str, end: str) -> None:
    start = time.process_time()
    read(part * 20_000 + end)
    assert time.process_time() - start < 5
