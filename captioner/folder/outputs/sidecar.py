"""A small text file for each photo, beside it or in a tree of the same shape."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from captioner.errors import OptionsError, OutputError
from captioner.folder.items import digest_of
from captioner.folder.outputs.files import partial_path, writing
from captioner.folder.outputs.options import OutputOptions, Record
from captioner.folder.state import Entry, State

_OF_ALL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""Errors that affect all photos."""


class SidecarOutput:
    """One file for each photo. A file that something else wrote or edited is kept, unless
    `OutputOptions.replace_existing` is set."""

    suffix = ".txt"
    keeps_suffix = False
    """Whether the name of the file keeps the suffix of the photo."""

    def __init__(self, path: Path, options: OutputOptions) -> None:
        if options.attention or options.alternatives:
            raise OptionsError(f"{self.suffix} files hold the caption alone; jsonl and parquet hold more")
        self._folder, self._options = path, options
        self.state_path = path / f".captioner{self.suffix}.state"
        self._last = -1
        self.kept = 0
        """Files left unchanged because something else wrote or edited them."""
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)

    def begin(self, state: State) -> None:
        names = state.names()
        first = next(names, None)
        if first is not None and not any(map(_is_below, itertools.chain([first], names))):
            raise OptionsError(
                f"the files of all images would be outside of {self._folder}, as that of {first}: name one "
                "folder alone, or several below the current one, and list names relative to FOLDER",
                "sources",
            )
        self.advance(state)

    def advance(self, state: State) -> None:
        for entry in state.ready(self._last):
            self._last = entry.number
            self.publish(entry, state)

    def finish(self, state: State) -> None:
        self.advance(state)

    def close(self) -> None:
        pass

    def publish(self, entry: Entry, state: State) -> None:
        """Write the file of the photo, or record a failure."""
        record = self._options.transform(entry.record)
        wanted = self.digest(record) if "caption" in record else None
        if wanted is None and entry.published is None:
            return
        if not _is_below(entry.name):
            self.reject(entry, f"its {self.suffix} file would be outside of {self._folder}", state)
            return
        self.put(entry, record, wanted, state)

    def put(self, entry: Entry, record: Record, wanted: bytes | None, state: State) -> None:
        """Write the file, or remove it if `wanted`, the digest of its content, is None."""
        target, published = self.find_target(entry, state)
        try:
            if wanted is None:
                if _is_ours(target, published):
                    target.unlink(missing_ok=True)
            elif self._may_write(target, published):
                if not _is_ours(target, wanted):
                    self.write(target, record)
            elif not _is_ours(target, wanted):
                self.kept += 1
                wanted = published
        except OSError as error:
            self.reject(entry, f"cannot write {target}: {error.strerror or error}", state, error)
            return
        self.settle(entry, wanted, published, state)

    def settle(self, entry: Entry, wanted: bytes | None, published: bytes | None, state: State) -> None:
        """Record what is written for the photo now, where `published` was; an earlier run may have failed to
        write it."""
        if wanted != published:
            state.mark_published(entry.name, wanted)
        if "caption" in entry.record and "error" in entry.record:
            state.recover(entry)

    def find_target(self, entry: Entry, state: State) -> tuple[Path, bytes | None]:
        """The file of a photo, and the digest of what was last written there for it."""
        own = Path(os.path.normpath(entry.name))
        for candidate in self._candidates(own):
            key = candidate.as_posix()
            owner = state.claim_target(key, entry.name)
            if owner == entry.name:
                return self._folder / candidate, entry.published
            if entry.published is None and self._is_gone(owner):  # as when a.png has become a.jpg
                return self._folder / candidate, state.inherit_target(key, entry.name)
        raise AssertionError("there is no end of candidates")

    def _candidates(self, own: Path) -> Iterator[Path]:
        if not self.keeps_suffix:
            yield own.with_suffix(self.suffix)
        yield own.with_name(f"{own.name}{self.suffix}")
        yield from (own.with_name(f"{own.name}.{number}{self.suffix}") for number in itertools.count(2))

    def _is_gone(self, name: str) -> bool:
        root = self._options.root
        return root is not None and not os.path.lexists(root / name)

    def reject(self, entry: Entry, reason: str, state: State, cause: Exception | None = None) -> None:
        """Record that the caption of this photo cannot be written. Raises `OutputError` instead if the
        cause affects all photos, such as a full disk."""
        if isinstance(cause, OSError) and cause.errno in _OF_ALL:
            raise OutputError(f"cannot write {self._folder}: {cause.strerror}") from cause
        if entry.record.get("error", {}).get("message") == reason:
            return  # an earlier run has failed in the same way, which this one reports
        error = OutputError(reason)
        state.fail(entry, error)
        self._options.report(entry.name, error)

    def digest(self, record: Record) -> bytes:
        return digest_of(self.make_content(record))

    def make_content(self, record: Record) -> bytes:
        return f"{record['caption']}\n".encode("utf-8", "surrogateescape")

    def write(self, target: Path, record: Record) -> None:
        # Not synced, which would cost far more than captioning: the system keeps the order of writing and
        # renaming, and a file that a power failure has left empty is written again by the next run.
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_path(target)
        try:
            partial.write_bytes(self.make_content(record))
            partial.replace(target)
        except OSError:
            partial.unlink(missing_ok=True)
            raise

    def _may_write(self, target: Path, published: bytes | None) -> bool:
        return self._options.replace_existing or not _has_content(target) or _is_ours(target, published)


class CaptionOutput(SidecarOutput):
    """The same with the suffix `.caption`."""

    suffix = ".caption"


def _is_below(name: str) -> bool:
    """Whether the image of this name gets its file below the folder of the output."""
    path = Path(os.path.normpath(name))
    return not path.is_absolute() and path.parts[0] != ".."


def _is_ours(target: Path, digest: bytes | None) -> bool:
    return target.is_file() and digest_of(target.read_bytes()) == digest


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
