"""Finds the images of a data set in folders and zip files."""

from __future__ import annotations

import os
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from unicodedata import normalize

from captioner.errors import DataError, ImageError, clip, reason_of
from captioner.files.zip_archive import ZipArchive, open_zip
from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.images.sources import read_file
from captioner.images.suffixes import PICTURES


class ImageFiles:
    """The bytes of images by name, from folders and zip files."""

    def __init__(self, paths: Sequence[Path], limits: ImageLimits = DEFAULT_LIMITS) -> None:
        """Raises `DataError` for a path that is neither a folder nor a zip file, or is damaged."""
        self._limits = limits
        self._folders: list[Path] = []
        self._members: dict[str, list[_Member]] = defaultdict(list)
        """Members of all archives, by the last part of their names."""
        for path in dict.fromkeys(path.resolve() for path in paths):
            if path.is_dir():
                self._folders.append(path)
                continue
            archive = open_zip(path)
            for member in archive.infolist():
                if not member.is_dir():
                    self._members[PurePosixPath(member.filename).name].append(_Member(archive, member))

    def read(self, name: str) -> bytes:
        """The content of the image with this name: matched by full path, then by the end of its path, then
        by its last part. Raises `DataError` if there is none, if several match equally well, and for more
        bytes than the limit."""
        path, read = self._find(name)
        try:
            return read(self._limits)
        except Exception as error:  # zipfile and its decompressors share no base
            reason = error if isinstance(error, ImageError) else "damaged in the archive"
            raise DataError(f"{path}: {reason}") from error

    def places(self, names: Iterable[str]) -> tuple[dict[str, str], dict[str, DataError]]:
        """Where the images with these names are, and why others are not found. Raises `DataError` if two
        names lead to one image, which was taken for the second for want of a better one."""
        found: dict[str, str] = {}
        faults: dict[str, DataError] = {}
        named: dict[str, str] = {}
        for name in names:
            try:
                place, _ = self._find(name)
            except DataError as error:
                faults[name] = error
                continue
            if (other := named.setdefault(place, name)) != name:
                raise DataError(
                    f"{other} and {name} are one photo, {place}: what is given has no others by these paths"
                )
            found[name] = place
        return found, faults

    def _find(self, name: str) -> tuple[str, _Read]:
        for spelling in spellings(name):
            for find in (self._with_path, self._with_end_of_path, self._with_last_part):
                found = find(spelling)
                if len(found) > 1:
                    where = " and ".join(sorted(found)[:2])
                    raise DataError(f"the image {name} is ambiguous: it may be {where}")
                for where, read in found.items():
                    return where, read
        close = self._by_loose_name.get(_loosely(name))
        hint = f"; {close} is no file" if close == name else f"; there is {close}" if close else ""
        raise DataError(f"the image {name} is in none of the folders and archives given{hint}")

    @cached_property
    def _by_loose_name(self) -> dict[str, str]:
        below = (
            Path(root, name).relative_to(folder).as_posix()
            for folder in self._folders
            for root, _, names in os.walk(folder)
            for name in names
        )
        members = (member.name for members in self._members.values() for member in members)
        return {_loosely(name): name for name in (*below, *members) if _suffix(name) in PICTURES}

    def _with_path(self, name: str) -> _Found:
        return {**self._in_folders(name), **self._in_archives(name, lambda member: member == name)}

    def _with_end_of_path(self, name: str) -> _Found:
        return self._in_archives(name, lambda member: member.endswith(f"/{name}"))

    def _with_last_part(self, name: str) -> _Found:
        return {**self._in_folders(Path(name).name), **self._in_archives(name, lambda _: True)}

    def _in_folders(self, name: str) -> _Found:
        paths = (folder / name for folder in self._folders)
        return {str(path): partial(read_file, path) for path in paths if _is_file(path)}

    def _in_archives(self, name: str, matches: Callable[[str], bool]) -> _Found:
        members = self._members.get(PurePosixPath(name).name, ())
        return {str(member): member.read for member in members if matches(member.name)}


def _is_file(path: Path) -> bool:
    """Raises `DataError` where the system does not tell, such as for names that are too long."""
    try:
        return path.is_file()
    except OSError as error:
        raise DataError(f"{clip(str(path))}: {reason_of(error)}") from error


def spellings(name: str) -> Iterable[str]:
    """A name, also with its accents composed or decomposed (as macOS does), and with slashes instead of the
    backslashes of Windows."""
    names = (name, name.replace("\\", "/"))
    forms = (form for text in names for form in (text, normalize("NFC", text), normalize("NFD", text)))
    return dict.fromkeys(forms)


def on_disk(name: str, root: Path) -> str:
    """The one of the `spellings` of a name that is in the folder `root`; the name itself if none is."""
    return next((one for one in spellings(name) if os.path.lexists(root / one)), name)


def _suffix(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _loosely(name: str) -> str:
    """What names have in common that differ in their folder, suffix, spaces around them or capitals."""
    last = normalize("NFC", PurePosixPath(name.replace("\\", "/")).name).strip().casefold()
    return last.rpartition(".")[0] if _suffix(last) in PICTURES else last


class _Member:
    def __init__(self, archive: ZipArchive, info: zipfile.ZipInfo) -> None:
        self.name, self._info, self._archive = info.filename, info, archive

    def read(self, limits: ImageLimits) -> bytes:
        return read_file(self._archive.read_at_most(self._info, limits.max_bytes + 1), limits)

    def __str__(self) -> str:
        return f"{self.name} in {self._archive.path}"


_Read = Callable[[ImageLimits], bytes]
"""Reads an image. Raises an `ImageError`, and others for damage in an archive."""
_Found = dict[str, _Read]
"""Functions that read the images with a name, by their location."""
