"""Images in a folder, those that a list names, and what a file held at which moment."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from captioner.errors import DataError, ImageUnreadableError, reason_of
from captioner.folder.items import ListedImage
from captioner.folder.sources.selection import Selection
from captioner.folder.sources.source import LeftOut
from captioner.images.folders import is_of_gallery
from captioner.images.limits import too_many_bytes
from captioner.images.urls import is_url
from captioner.references.files import on_disk

Stamp = Callable[[os.stat_result], str]
"""Names the state of a file."""


class _Files:
    """Files below `root`. Each is opened when it is read."""

    keeps_order = sequential = False

    def __init__(self, root: Path, stamp: Stamp | None) -> None:
        self.root, self._stamp = root, stamp or stamp_of
        self.left_out = LeftOut()

    def read(self, locator: bytes, max_bytes: int) -> tuple[bytes, str]:
        return read_stamped(self.root / os.fsdecode(locator), max_bytes)

    def close(self) -> None:
        """Nothing is held open."""

    def _look(self, name: str) -> ListedImage:
        path, locator = self.root / name, os.fsencode(name)
        try:
            status = path.stat()
        except (OSError, ValueError) as error:
            reason = reason_of(error, "not a valid path")
            if isinstance(error, FileNotFoundError) and path.is_symlink():
                reason = "a link to a file that is not there"
            elif is_url(name):
                reason = "is a URL: batch reads files; captioner caption --allow-urls fetches it"
            return ListedImage(name, locator, "", reason)
        problem = "" if stat.S_ISREG(status.st_mode) else "not a regular file"
        return ListedImage(name, locator, self._stamp(status), problem)


class FolderSource(_Files):
    """The images in a folder and below it. Links to folders are not followed, so that no image is found
    twice; links to files only if they stay within the folder."""

    def __init__(self, root: Path, selection: Selection | None = None, stamp: Stamp | None = None) -> None:
        super().__init__(root, stamp)
        self.selection = selection or Selection()

    def find(self) -> Iterator[ListedImage]:
        try:
            os.scandir(self.root).close()
        except OSError as error:
            raise DataError(f"{self.root}: {reason_of(error)}") from None
        inside = os.path.join(os.path.realpath(self.root), "")  # noqa: PTH118 (with a separator at the end)
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                entries = os.scandir(self.root / folder)
            except OSError as error:
                yield ListedImage(folder, os.fsencode(folder), "", f"this folder: {reason_of(error)}")
                continue
            with entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if self.selection.takes_folder(name) and not is_of_gallery(entry):
                            folders.append(name)
                    elif _is_folder(entry):
                        self.left_out.links += self.selection.takes_folder(name)
                    elif self.selection.leaves_archive(name):
                        self.left_out.archives += 1
                    elif self.selection.takes_file(name) and not self._leads_out(entry, inside):
                        yield self._look(name)

    def _leads_out(self, entry: os.DirEntry[str], inside: str) -> bool:
        if not entry.is_symlink() or os.path.realpath(entry.path).startswith(inside):
            return False
        self.left_out.links += 1
        return True


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def find_photos(folder: Path) -> list[ListedImage]:
    """The images in `folder` and below, as `captioner batch` finds them, by name. Raises `DataError` if there
    are none."""
    photos = sorted(FolderSource(folder).find(), key=lambda photo: photo.name)
    if not photos:
        raise DataError(f"{folder}: there are no images in this folder")
    return photos


class ListSource(_Files):
    """The files that a list names, in its order, relative to `root`."""

    keeps_order = True

    def __init__(self, names: Iterable[str], root: Path, stamp: Stamp | None = None) -> None:
        super().__init__(root, stamp)
        self.names = names

    def find(self) -> Iterator[ListedImage]:
        for given in self.names:
            yield self._look(on_disk(given, self.root))


def read_names(stream: Iterable[bytes], separator: bytes = b"\n") -> Iterator[str]:
    """The names in a list, separated by newlines or null bytes; empty names are skipped.

    With newlines, a carriage return before one is not part of the name, and blank lines are skipped too, as
    is the byte order mark with which Windows marks UTF-8. Raises `DataError` if names end otherwise.
    """
    of_lines = separator == b"\n"
    for number, name in enumerate(_split(stream, separator)):
        if number == 0 and of_lines:
            name = name.removeprefix(codecs.BOM_UTF8)
        if of_lines and b"\0" in name:
            raise DataError(
                "the list of names has null bytes: if they end names, add -0; otherwise write it as UTF-8"
            )
        if name.strip() if of_lines else name:
            yield os.fsdecode(name.removesuffix(b"\r") if of_lines else name)


def _split(stream: Iterable[bytes], separator: bytes) -> Iterator[bytes]:
    rest, is_split = b"", False
    for chunk in stream:
        *whole, rest = (rest + chunk).split(separator)
        yield from whole
        is_split = is_split or bool(whole)
    if rest.endswith(b"\n") and not is_split:
        raise DataError("the list of names has one on each line: read it without -0")
    yield rest


def read_stamped(path: Path, max_bytes: int) -> tuple[bytes, str]:
    """The content and the stamp of a file, both of the same moment: a file that is being written gets
    another stamp next time."""
    content, status = read_regular(path, max_bytes)
    return content, stamp_of(status)


def read_regular(path: Path, max_bytes: int) -> tuple[bytes, os.stat_result]:
    """The content and the status of a file, both of the same moment. Raises an `ImageError`, also for a pipe
    or a device."""
    try:
        # Non-blocking: opening a pipe without a writer would otherwise block forever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ImageUnreadableError("not a regular file")
            if status.st_size > max_bytes:
                raise too_many_bytes(max_bytes)
            return file.read(status.st_size), status
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise ImageUnreadableError(reason_of(error, "not a valid path")) from error


def stamp_of(status: os.stat_result) -> str:
    """Changes when the file does: copying and archiving tools can restore the modification time, but not the
    time of the last change of the inode (on Windows, that of creation)."""
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"


def stamp_of_content(status: os.stat_result) -> str:
    """As `stamp_of`, but the same for a copy with its modification time, and after a change of permissions or
    links. It misses a new content of the same size with the time of the old one."""
    return f"{status.st_size}-{status.st_mtime_ns}"
