"""What an earlier run wrote into the metadata of a photo, so that it can be told from what people wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple, Self

BESIDE, WITHIN = "beside", "within"
"""Where metadata is: in a file beside the photo, or in the photo."""
_KEPT = b"kept"


class Written(NamedTuple):
    """What is ours in the metadata of a photo, embedded or beside it."""

    digest: bytes = b""
    """Digest of the caption."""
    tags: str = ""
    """A letter for each tag: d(escription), a(lt text), k(eywords), w(riter)."""
    keywords: bytes = b""
    """Digest of the keywords."""
    kept: bool = False
    """Whether text of others was kept, so that a rerun can report it without reading the file."""
    asked: bytes = b""
    """Digest of all that was to be written; older versions did not note it."""
    stamp: str = ""
    """That of the photo when we had written into it."""

    @classmethod
    def parse(cls, published: bytes) -> Self:
        """From what `to_bytes` made, or older versions, of which some did not name the tags."""
        if (fields := _read_fields(published)) is not None:
            digest, keywords, asked = (bytes.fromhex(fields[name]) for name in ("text", "keywords", "asked"))
            tags = str(fields["tags"])
            return cls(digest, tags, keywords, not {"d", "a"} <= set(tags), asked, str(fields["stamp"]))
        digest, rest = published[:16], published[16:]
        if rest.startswith(b":"):
            letters, _, keywords = rest[1:].partition(b":")
            tags = letters.decode("ascii", "replace")
            return cls(digest, tags, keywords, not {"d", "a"} <= set(tags))
        return cls(digest, "dak", kept=rest == _KEPT)

    def to_bytes(self) -> bytes:
        fields = {
            "text": self.digest.hex(),
            "tags": self.tags,
            "keywords": self.keywords.hex(),
            "asked": self.asked.hex(),
            "stamp": self.stamp,
        }
        return json.dumps(fields).encode()


def _read_fields(published: bytes) -> dict[str, str] | None:
    """What `Written.to_bytes` wrote; None for a digest of older versions."""
    try:
        fields = json.loads(published)
        return fields if {"text", "tags", "keywords", "asked", "stamp"} <= fields.keys() else None
    except (ValueError, AttributeError, RecursionError):
        return None


def read_places(published: bytes | None) -> dict[str, Written]:
    """What is ours beside a photo and in it, from the bytes in the state. Older versions did not say in which
    of them, so that it may be in either: a text is ours only where it is the one that was written."""
    if not published:
        return {}
    try:
        places = json.loads(published)
        return {name: Written.parse(places[name].encode()) for name in (BESIDE, WITHIN) if name in places}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return dict.fromkeys((BESIDE, WITHIN), Written.parse(published))


def join_places(places: Mapping[str, Written]) -> bytes | None:
    """The bytes for the state; None where nothing is ours."""
    named = {name: written.to_bytes().decode() for name, written in sorted(places.items())}
    return json.dumps(named).encode() if named else None
