"""A listing cut into shards that stay the same when it grows a little."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from captioner.folder.items import Found


@dataclass(frozen=True, slots=True)
class Shard:
    """Some of the images, and the file that their captions are in. The name of the file tells what it
    was made of: when an image, the model or an option is another, so is the name."""

    file: str
    found: tuple[Found, ...]

    def to_json(self) -> str:
        """For travelling: what Ray's tables hold must be plain."""
        return json.dumps([self.file, [[one.name, one.stamp, one.problem] for one in self.found]])

    @classmethod
    def from_json(cls, text: str) -> Self:
        file, rows = json.loads(text)
        return cls(file, tuple(Found(name, os.fsencode(name), *rest) for name, *rest in rows))


def cut(found: Sequence[Found], asked: str, images_a_shard: int) -> list[Shard]:
    """Shards of at most about `images_a_shard`, none of them empty.

    An image belongs to a shard by the hash of its name, and the number of shards is a power of two:
    more images change only the shards they fall into, until there are twice as many.
    """
    count = 1
    while count * images_a_shard < len(found):
        count *= 2
    members: list[list[Found]] = [[] for _ in range(count)]
    for one in found:
        members[int.from_bytes(_hash(one.name)[:8]) % count].append(one)
    return [
        Shard(_file_name(number, count, part, asked), tuple(sorted(part, key=lambda one: one.name)))
        for number, part in enumerate(members)
        if part
    ]


def _file_name(number: int, count: int, found: Sequence[Found], asked: str) -> str:
    lines = sorted(f"{one.name}\0{one.stamp}" for one in found)
    digest = _hash("\n".join([asked, *lines])).hex()[:16]
    return f"part-{number:05}-of-{count:05}-{digest}.parquet"


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()
