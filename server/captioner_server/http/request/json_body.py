"""JSON bodies with images in base64: parsed within limits, with long texts left as bytes."""

from __future__ import annotations

import binascii
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from captioner_server.errors import RequestError

LONG_TEXT_BYTES = 2**14
"""A longer text is cut out before the body is parsed. In Python, a text takes up to four bytes a character: a
single emoji would make that of an image four times as large."""
_ESCAPES = {
    rb"\/": b"/",
    rb"\n": b"",
    rb"\r": b"",
    rb"\u000a": b"",
    rb"\u000d": b"",
    rb"\u002b": b"+",
    rb"\u002B": b"+",
    rb"\u002f": b"/",
    rb"\u002F": b"/",
    rb"\u003d": b"=",
    rb"\u003D": b"=",
    b" ": b"",
    rb"\t": b"",
}
"""What encoders of JSON write for characters of base64, and what may stand between these."""
_URL_ESCAPES = {
    rb"%2B": b"+",
    rb"%2b": b"+",
    rb"%2F": b"/",
    rb"%2f": b"/",
    rb"%3D": b"=",
    rb"%3d": b"=",
    rb"%0A": b"",
    rb"%0a": b"",
    rb"%0D": b"",
    rb"%0d": b"",
}
"""What encoders of URLs write for them."""
_HEADER_BYTES = 256
"""Most bytes before the comma of a data URL."""


class LongText(str):
    """Stands for a long text of a body, and says in errors that it was one."""

    content: memoryview

    @classmethod
    def of(cls, content: memoryview) -> LongText:
        text = cls(f"a text of {len(content)} bytes")
        text.content = content
        return text


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A parsed body."""

    record: Any
    """What the body says, with a `LongText` for each long text."""
    long_texts: int
    """Their number."""

    def image(self, text: str, field: str) -> bytes:
        """The bytes that a text of the record encodes: base64, in one line or several, or a data URL with
        it. `field` names it in errors. Raises `RequestError`."""
        if isinstance(text, LongText):
            encoded = text.content
        else:
            encoded = memoryview("".join(text.split()).encode("utf-8", "surrogatepass"))
        try:
            return binascii.a2b_base64(_without_header(encoded), strict_mode=True)
        except ValueError:
            raise RequestError(f"{field} is not base64{_what_else(encoded)}", field) from None


def parse_json(body: bytearray, max_values: int, max_rest_bytes: int) -> JsonBody:
    """Parse a body with at most `max_values` values and `max_rest_bytes` bytes beside long texts. Raises
    `RequestError`."""
    too_many = RequestError(
        f"the JSON body has more than {max_values} values; an image is one text, in base64", "body"
    )
    if body.count(b'"') > 4 * max_values:
        raise too_many
    mark = f"@{secrets.token_hex(8)}:"  # drawn now, so no body can hold it
    rest, long_texts = _cut(body, mark)
    if sum(rest.count(mark) for mark in (b",", b"[", b"{")) > max_values:
        raise too_many
    if len(rest) > max_rest_bytes:
        raise RequestError(f"the JSON body has more than {max_rest_bytes} bytes beside images", "body")
    try:
        record = json.loads(rest)
        by_mark = {f"{mark}{number}": LongText.of(text) for number, text in enumerate(long_texts)}
        return JsonBody(_restored(record, by_mark) if by_mark else record, len(long_texts))
    except (ValueError, RecursionError):
        raise RequestError("the body is not JSON", "body") from None


def _restored(value: Any, texts: Mapping[str, LongText]) -> Any:
    """The value with `texts` in place of their marks. Raises `RecursionError`."""
    match value:
        case str():
            return texts.get(value, value)
        case list():
            return [_restored(item, texts) for item in value]
        case dict():
            return {_restored(name, texts): _restored(item, texts) for name, item in value.items()}
    return value


def _cut(body: bytearray, mark: str) -> tuple[bytearray, list[memoryview]]:
    """The body with marks in place of its long texts, and these texts."""
    if len(body) <= LONG_TEXT_BYTES:
        return body, []
    rest = bytearray()
    texts: list[memoryview] = []
    begin = after = 0
    while (quote := body.find(b'"', after)) >= 0:  # where a text begins
        after = quote + 1
        end = _end_of_text(body, after)
        if end - after > LONG_TEXT_BYTES:
            rest += body[begin:after] + f"{mark}{len(texts)}".encode()
            texts.append(_unescaped(body, after, end))
            begin = end
        after = end + 1
    return rest + body[begin:], texts


def _end_of_text(body: bytearray, start: int) -> int:
    """The place of the quote that ends the text which begins at `start`; the end of the body if none does."""
    end = body.find(b'"', start)
    while end >= 0 and _is_escaped(body, start, end):
        end = body.find(b'"', end + 1)
    return end if end >= 0 else len(body)


def _is_escaped(body: bytearray, start: int, quote: int) -> bool:
    """Whether an odd number of backslashes is before a quote, in time that grows with their number only."""
    size = 1
    window = body[max(start, quote - size) : quote]
    while len(window) == size and not window.strip(b"\\"):
        size *= 2
        window = body[max(start, quote - size) : quote]
    return (len(window) - len(window.rstrip(b"\\"))) % 2 == 1


def _unescaped(body: bytearray, start: int, end: int) -> memoryview:
    if body.find(b"\\", start, end) < 0 and body.find(b" ", start, end) < 0:
        return memoryview(body)[start:end]
    return _replaced(bytes(memoryview(body)[start:end]), _ESCAPES)


def _replaced(text: bytes, escapes: Mapping[bytes, bytes]) -> memoryview:
    for escape, plain in escapes.items():
        text = text.replace(escape, plain)  # what is left of escapes is not base64
    return memoryview(text)


def _what_else(encoded: memoryview) -> str:
    """What a text that is no base64 seems to be, as a part of a sentence."""
    head = bytes(encoded[:_HEADER_BYTES])
    if len(encoded) <= _HEADER_BYTES and re.search(rb"[.~\\]", head):
        return ": send the image itself, not the name of its file"
    if re.search(rb"[-_]", encoded):
        return " but base64url: send + and / in place of - and _"
    return ""


def _without_header(encoded: memoryview) -> memoryview:
    """The base64 of a data URL, or all of what is none. Raises `ValueError` for another encoding."""
    head = bytes(encoded[:_HEADER_BYTES])
    if head[:5].lower() != b"data:":
        return encoded
    header, comma, _ = head.partition(b",")
    if not comma or not header.lower().endswith(b";base64"):
        raise ValueError
    data = encoded[len(header) + 1 :]
    return _replaced(bytes(data), _URL_ESCAPES) if re.search(b"%", data) else data
