"""A listing in an object store or a folder, cut into shards that stay the same when it grows a little."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from captioner.errors import DataError, ImageUnreadableError, OutputError
from captioner.folder.items import Found
from captioner.folder.sources import Selection, too_many_bytes


def open_filesystem(uri: str) -> tuple[Any, str]:
    """The `pyarrow.fs.FileSystem` and the path in it that a path, an s3:// or a gs:// URI means."""
    from pyarrow import fs

    try:
        filesystem, path = fs.FileSystem.from_uri(uri) if "://" in uri else (fs.LocalFileSystem(), uri)
    except (OSError, ValueError) as error:
        raise DataError(f"{uri}: {error}") from None
    return filesystem, path.rstrip("/")


class UriSource:
    """The images below a path or URI."""

    keeps_order = sequential = False

    def __init__(self, uri: str, selection: Selection | None = None) -> None:
        self.uri, self._selection = uri, selection or Selection()
        self._filesystem, self._root = open_filesystem(uri)

    def find(self) -> Iterator[Found]:
        from pyarrow import fs

        try:
            infos = self._filesystem.get_file_info(fs.FileSelector(self._root, recursive=True))
        except OSError as error:
            raise DataError(f"{self.uri}: {error}") from None
        for info in infos:
            name = info.path.removeprefix(self._root).lstrip("/")
            if info.type == fs.FileType.File and self._selection.takes_path(name):
                yield Found(name, os.fsencode(name), f"{info.size}-{info.mtime_ns}")

    def read(self, locator: bytes, max_bytes: int) -> tuple[bytes, str]:
        path = f"{self._root}/{os.fsdecode(locator)}"
        try:
            with self._filesystem.open_input_stream(path) as stream:
                content: bytes = stream.read(max_bytes + 1)
        except OSError as error:
            raise ImageUnreadableError(getattr(error, "strerror", None) or "cannot be read") from error
        if len(content) > max_bytes:
            raise too_many_bytes(max_bytes)
        return content, ""


@dataclass(frozen=True, slots=True)
class Shard:
    """Some of the images, and the file that their captions are in. The name of the file tells what it
    was made of: when an image, the model or an option is another, so is the name."""

    file: str
    found: tuple[Found, ...]

    def to_json(self) -> str:
        """For travelling: what Ray's tables hold must be plain."""
        return json.dumps([self.file, [[one.name, one.stamp] for one in self.found]])

    @classmethod
    def from_json(cls, text: str) -> Self:
        file, rows = json.loads(text)
        return cls(file, tuple(Found(name, os.fsencode(name), stamp) for name, stamp in rows))


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


class PartFolder:
    """The folder of finished parts, in any filesystem."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._filesystem, self._root = open_filesystem(uri)

    def create(self) -> None:
        try:
            self._filesystem.create_dir(self._root, recursive=True)
        except OSError as error:
            raise OutputError(f"cannot write {self._uri}: {error}") from None

    def names(self) -> set[str]:
        """Files that are there whole."""
        from pyarrow import fs

        infos = self._filesystem.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        return {info.base_name for info in infos if info.base_name.startswith("part-")}

    def count_failed(self, name: str) -> int:
        """Images of a part that have no caption."""
        from pyarrow import parquet

        with self._filesystem.open_input_file(f"{self._root}/{name}") as file:
            table = parquet.read_table(file, columns=["error_code"])
        return len(table) - int(table["error_code"].null_count)

    def remove(self, name: str) -> None:
        self._filesystem.delete_file(f"{self._root}/{name}")

    def put(self, name: str, content: bytes) -> None:
        """Write a part that appears whole or not at all. An object store does so by itself."""
        local = self._filesystem.type_name == "local"
        path = f"{self._root}/{name}"
        aside = f"{self._root}/.{name}.partial" if local else path
        with self._filesystem.open_output_stream(aside) as stream:
            stream.write(content)
        if local:
            self._filesystem.move(aside, path)
