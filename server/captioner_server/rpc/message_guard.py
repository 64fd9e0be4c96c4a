"""Checks the bytes of a message before they are parsed, in bounded time.

Parsing builds an object for every element, so a few megabytes of empty elements cost seconds and gigabytes.
The guard walks the wire format of Protocol Buffers and stops at the first violation. Only
fields of type `bytes` (images) may be large.
"""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from captioner_server.errors import RequestError

MAX_FIELDS = 4096
"""Most fields of a message, including those of nested messages."""
MAX_TEXT_BYTES = 4096
"""Longest text or packed list of numbers, in bytes."""

_VARINT, _FIXED_64, _DELIMITED, _FIXED_32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class Content(NamedTuple):
    """Where a field of type `bytes` is in a message."""

    name: str
    start: int
    """Where the field begins, with its key."""
    content: int
    """Where its bytes begin."""
    end: int
    nested: bool
    """Whether the field belongs to a nested message."""


def check_message(raw: bytes, kind: Descriptor | None) -> list[Content]:
    """The fields of type `bytes`. Raises `RequestError` for more than `MAX_FIELDS` fields, a text that is too
    long, or bytes that are not a message."""
    walk = _Walk(raw)
    walk.message(0, len(raw), kind)
    return [
        Content(field.name, start, content, end, field.containing_type is not kind)
        for field, start, content, end in walk.contents
    ]


class _Walk:
    def __init__(self, raw: bytes) -> None:
        self._raw, self._left = raw, MAX_FIELDS
        self.contents: list[tuple[FieldDescriptor, int, int, int]] = []

    def message(self, position: int, end: int, kind: Descriptor | None) -> None:
        """Walk over the fields of the message from `position` to `end`; a `kind` of None is unknown."""
        while position < end:
            self._left -= 1
            if self._left < 0:
                raise RequestError(f"the message has more than {MAX_FIELDS} fields", "request")
            start = position
            key, position = self._varint(position, end)
            field = None if kind is None else kind.fields_by_number.get(key >> 3)
            wire_type = key & 7
            if wire_type == _VARINT:
                _, position = self._varint(position, end)
            elif wire_type in (_FIXED_32, _FIXED_64):
                position += 4 if wire_type == _FIXED_32 else 8
            elif wire_type == _DELIMITED:
                length, position = self._varint(position, end)
                if position + length > end:
                    raise malformed()
                if field is not None and field.type == FieldDescriptor.TYPE_BYTES:
                    self.contents.append((field, start, position, position + length))
                else:
                    self._delimited(position, length, field)
                position += length
            else:  # groups, which none of our messages have
                raise RequestError("the message is of another type", "request")
        if position != end:
            raise malformed()

    def _delimited(self, position: int, length: int, field: FieldDescriptor | None) -> None:
        if field is not None and field.type == FieldDescriptor.TYPE_MESSAGE:
            self.message(position, position + length, field.message_type)
        elif length > MAX_TEXT_BYTES:
            name = "an unknown field" if field is None else field.name
            raise RequestError(f"{name} has {length} bytes, the limit is {MAX_TEXT_BYTES}", "request")

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        """The number at `position`, and where it ends."""
        value = 0
        for index in range(min(_MAX_VARINT_BYTES, end - position)):
            byte = self._raw[position + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value, position + index + 1
        raise malformed()


def malformed() -> RequestError:
    return RequestError("the request is not a message of this call's type", "request")
