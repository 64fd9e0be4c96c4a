"""Names of files that are not UTF-8, in JSON. Python holds their bytes as lone surrogates."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from typing import Any


def to_unicode(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record as every reader of JSON can read it: bytes of names that are not UTF-8
    become `\\udcNN`, and `image_bytes` is the whole name in base64."""
    written = {key: _to_unicode(value) for key, value in record.items()}
    if written.get("image") != record.get("image"):
        written["image_bytes"] = base64.b64encode(os.fsencode(record["image"])).decode("ascii")
    return written


def image_of(record: Mapping[str, Any]) -> Any:
    """The name of the image in a record, before `to_unicode`."""
    try:
        return os.fsdecode(base64.b64decode(record["image_bytes"], validate=True))
    except (KeyError, TypeError, ValueError):
        return record["image"]


def escape_surrogates(text: str) -> str:
    """The text as UTF-8 can encode it, as `to_unicode` has it."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def restore_surrogates(text: str) -> str:
    """The text before `escape_surrogates`."""
    return re.sub(r"\\u(dc[89a-f][0-9a-f])", lambda escaped: chr(int(escaped[1], 16)), text)


def name_bytes(text: str) -> bytes:
    """The text in UTF-8, whatever names are in it: to compute digests of."""
    return text.encode("utf-8", "surrogatepass")


def _to_unicode(value: Any) -> Any:
    if isinstance(value, str):
        return escape_surrogates(value)
    if isinstance(value, Mapping):
        return {key: _to_unicode(each) for key, each in value.items()}
    return value
