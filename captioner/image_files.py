"""The images of a data set, wherever it keeps them."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from captioner.errors import DataError


class ImageFiles:
    """The bytes of images by name, from folders and zip files."""

    def __init__(self, places: Sequence[Path]) -> None:
        """Raises `DataError` for a place that is neither a folder nor a zip file."""
        self._archives: dict[str, tuple[zipfile.ZipFile, str]] = {}
        self._folders: list[Path] = []
        for place in places:
            if place.is_dir():
                self._folders.append(place)
            elif zipfile.is_zipfile(place):
                archive = zipfile.ZipFile(place)
                for member in archive.namelist():
                    self._archives[Path(member).name] = (archive, member)
            else:
                raise DataError(f"{place} is neither a folder nor a zip file")

    def read(self, name: str) -> bytes:
        """Raises `DataError` if there is no such image."""
        for folder in self._folders:
            for path in (folder / name, folder / Path(name).name):
                if path.is_file():
                    return path.read_bytes()
        try:
            archive, member = self._archives[Path(name).name]
        except KeyError:
            raise DataError(f"the image {name} is in none of the places named") from None
        return archive.read(member)
