"""A small text file for each photo, beside it or in a tree of the same shape."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from captioner.errors import OptionsError, OutputError, reason_of
from captioner.files.destination import writing
from captioner.files.held_folder import Folder
from captioner.files.partial import remove_stale, replacing_in
from captioner.folder.items import digest_of
from captioner.folder.outputs.options import OutputOptions
from captioner.folder.state import Entry, State
from captioner.folder.transform import Record

_OF_ALL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""Errors that affect all photos."""
_MOST_BYTES = 2**20
"""No caption is as long."""
_MOST_CANDIDATES = 1000


class SidecarOutput:
    """One file for each photo. A file that something else wrote or edited is kept, unless
    `OutputOptions.replace_existing` is set."""

    suffix = ".txt"
    keeps_suffix = False
    """Whether the name of the file keeps the suffix of the photo."""

    files: Sequence[Path] = ()
    """Each of its files holds the caption of one photo."""

    def __init__(self, path: Path, options: OutputOptions) -> None:
        self._folder, self._options = path, options
        self.state_path = path / f".captioner{self.suffix}.state"
        self._last = -1
        self._cleaned: set[PurePath] = set()
        self.kept = 0
        """Files left unchanged because something else wrote or edited them."""
        with writing(path):
            self._root = Folder(path, create=True)  # held open: nobody can put another one in its place

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
        with state.relaxed():
            for entry in state.ready(self._last):
                self._last = entry.number
                self.publish(entry, state)

    def finish(self, state: State) -> None:
        self.advance(state)

    def close(self) -> None:
        self._root.close()

    def publish(self, entry: Entry, state: State) -> None:
        """Write the file of the photo, or record a failure."""
        record = self._options.transform(entry.record)
        wanted = self.digest(record) if "caption" in record else None
        if wanted is None and entry.published is None:
            return
        if not _is_below(entry.name):
            self.reject(entry, f"its {self.suffix} file would be outside of {self._folder}", state)
            return
        self._clean(PurePath(os.path.normpath(entry.name)).parent)
        self.put(entry, record, wanted, state)

    def _clean(self, place: PurePath) -> None:
        """Remove what killed runs have left in the folder of a photo, once."""
        if place not in self._cleaned:
            self._cleaned.add(place)
            with suppress(OSError), self._root.below(*place.parts) as folder:
                remove_stale(folder)

    def put(self, entry: Entry, record: Record, wanted: bytes | None, state: State) -> None:
        """Write the file, or remove it if `wanted`, the digest of its content, is None."""
        target, published = self.find_target(entry, state)
        try:
            written = self._put(target, record, wanted, published)
        except OSError as error:
            place = self._folder / target
            self.reject(entry, f"cannot write {place}: {reason_of(error)}", state, error)
        else:
            self.settle(entry, written, published, state)

    def _put(
        self, target: PurePath, record: Record, wanted: bytes | None, published: bytes | None
    ) -> bytes | None:
        """The digest of what is ours in the file now."""
        if wanted is None and not (self._folder / target.parent).is_dir():
            return None
        with self._root.below(*target.parent.parts, create=wanted is not None) as folder:
            before = whole(folder.read(target.name, _MOST_BYTES))
            digest = digest_of(before) if before else None
            is_ours = digest is not None and digest == published
            if wanted is None:
                if is_ours:
                    folder.remove(target.name)
            elif before and not (is_ours or digest == wanted or self._options.replace_existing):
                self.kept += 1
                return published
            elif digest != wanted:
                # Not synced, which would cost far more than captioning: what a power failure has left without
                # its content is written by the next run.
                with replacing_in(folder, target.name, durable=False) as file:
                    file.write(self.make_content(record))
        return wanted

    def settle(self, entry: Entry, wanted: bytes | None, published: bytes | None, state: State) -> None:
        """Record what is written for the photo now, where `published` was; an earlier run may have failed to
        write it."""
        if wanted != published:
            state.mark_published(entry.name, wanted)
        if "caption" in entry.record and "error" in entry.record:
            state.recover(entry)

    def find_target(self, entry: Entry, state: State) -> tuple[PurePath, bytes | None]:
        """The file of a photo, below the folder, and the digest of what was last written there for it."""
        own = PurePath(os.path.normpath(entry.name))
        for candidate in itertools.islice(self._candidates(own), _MOST_CANDIDATES):
            key = candidate.as_posix()
            owner = state.claim_target(key, entry.name)
            if owner == entry.name:
                return candidate, entry.published
            is_heir = entry.published is None or state.are_same(owner, entry.name)
            if is_heir and self._is_gone(owner):  # as when a.png has become a.jpg
                return candidate, state.inherit_target(key, entry.name)
        raise OutputError(
            f"{state.path} gives all names for the file of {entry.name} to others; move it away"
        )

    def _candidates(self, own: PurePath) -> Iterator[PurePath]:
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
            raise OutputError(f"cannot write {self._folder}: {reason_of(cause)}") from cause
        if entry.record.get("error", {}).get("message") == reason:
            return  # an earlier run has failed in the same way, which this one reports
        error = OutputError(reason)
        state.fail(entry, error)
        self._options.report(entry.name, error)

    def digest(self, record: Record) -> bytes:
        return digest_of(self.make_content(record))

    def make_content(self, record: Record) -> bytes:
        return f"{record['caption']}\n".encode("utf-8", "backslashreplace")


class CaptionOutput(SidecarOutput):
    """The same with the suffix `.caption`."""

    suffix = ".caption"


def _is_below(name: str) -> bool:
    """Whether the image of this name gets its file below the folder of the output."""
    path = Path(os.path.normpath(name))
    return not path.is_absolute() and path.parts[0] != ".."


def whole(content: bytes | None) -> bytes | None:
    """The content of a small file; None if a power failure took it: then there is nothing, or null bytes."""
    return content if content and content.strip(b"\0") else None
