"""Cuts a list of images into shards that remain stable when the list grows."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from captioner.folder.items import ListedImage, digest_of


@dataclass(frozen=True, slots=True)
class Shard:
    """Some of the images, and the file that holds their captions. The file name is derived from the
    images, the model and the options: a change of any changes the name."""

    file: str
    images: tuple[ListedImage, ...]

    def to_json(self) -> str:
        """JSON, since Ray tables hold plain values."""
        return json.dumps([self.file, [[one.name, one.stamp, one.problem] for one in self.images]])

    @classmethod
    def from_json(cls, text: str) -> Self:
        file, rows = json.loads(text)
        return cls(file, tuple(ListedImage(name, os.fsencode(name), *rest) for name, *rest in rows))


def cut(found: Sequence[ListedImage], asked: str, images_a_shard: int) -> list[Shard]:
    """Cut into non-empty shards of about `images_a_shard` images at most. `asked` tells the model and the
    options.

    The hash of its name assigns an image to a shard, and the number of shards is a power of two: additional
    images change only their own shards until the total doubles.
    """
    count = 1
    while count * images_a_shard < len(found):
        count *= 2
    members: list[list[ListedImage]] = [[] for _ in range(count)]
    for one in found:
        members[int.from_bytes(_hash(one.name)[:8]) % count].append(one)
    return [
        Shard(_file_name(number, count, part, asked), tuple(sorted(part, key=lambda one: one.name)))
        for number, part in enumerate(members)
        if part
    ]


def _file_name(number: int, count: int, found: Sequence[ListedImage], asked: str) -> str:
    lines = sorted(f"{one.name}\0{one.stamp}" for one in found)
    digest = _hash("\n".join([asked, *lines])).hex()[:16]
    return f"part-{number:05}-of-{count:05}-{digest}.parquet"


def _hash(text: str) -> bytes:
    return digest_of(text.encode("utf-8", "surrogateescape"))
