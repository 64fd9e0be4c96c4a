"""Answers as JSON, and in pieces."""

import json
import sys

import pytest

from captioner.results import Caption
from captioner_server.errors import RequestError
from captioner_server.http.dialects.answer.reply import Reply, text_of

CAPTION = Caption("a black dog on a beach", -1.0, ())


def test_answers_are_json_in_utf_8() -> None:
    assert text_of(CAPTION, "", {"const": "\ud800 é"}) == '"\\ud800 é"'
    assert text_of(CAPTION, 'JSON: {"caption\ud800": "a"}', None) == f'{{"caption\\ud800": "{CAPTION.text}"}}'
    for number in (float("nan"), float("-inf")):
        with pytest.raises(RequestError, match="not finite"):
            text_of(
                CAPTION,
                "",
                {"type": "object", "properties": {"caption": {"const": number}}, "required": ["caption"]},
            )


def test_answers_have_few_brackets_within_each_other() -> None:
    deep: list = []
    for _ in range(sys.getrecursionlimit()):
        deep = [deep]
    for schema in ({"const": deep}, {"$ref": deep}):
        with pytest.raises(RequestError, match="too many brackets"):
            text_of(CAPTION, "", schema)
    shape = '{"a":' * 900 + "1" + "}" * 900
    assert json.loads(text_of(CAPTION, f"JSON: {shape}", None))["caption"] == CAPTION.text


@pytest.mark.parametrize("text", ["a dog", " a  dog\n", "", '{"a": "b c"}'])
def test_pieces_make_up_the_text(text) -> None:
    assert "".join(Reply(text, 1, 1, {}).pieces) == text
