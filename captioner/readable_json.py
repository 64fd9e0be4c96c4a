"""JSON that people may read, search and edit: in the characters of its texts, each record on one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from captioner.printable import is_shown
from captioner.surrogates import to_unicode

_NOT_ASCII = re.compile(r"[^\0-\x7f]")


def dump_json(value: Any, **options: Any) -> str:
    r"""JSON that every encoding of Unicode can write, with the `options` of `json.dumps`.

    Escaped as \uNNNN is only what would be lost or misread: lone surrogates, what some readers take for the
    end of a line, and characters that show nothing or change how others are shown.
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    if text.isascii():
        return text
    from captioner.words.tokens import joiners  # not at start-up: it loads regex

    kept = joiners(text)
    return _NOT_ASCII.sub(lambda found: found[0] if found.start() in kept else _escape(found[0]), text)


def dump_record(record: Mapping[str, Any]) -> str:
    """The record of an image as one line of JSON."""
    return dump_json(to_unicode(record))


def _escape(character: str) -> str:
    is_surrogate = "\ud800" <= character <= "\udfff"
    return character if is_shown(character) and not is_surrogate else json.dumps(character)[1:-1]
