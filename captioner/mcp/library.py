"""The captions of the photos in the folders, made when they are first asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from captioner.errors import CaptionerError, DataError, ImageError
from captioner.folder.sources.files import stamp_of
from captioner.folder.sources.open import open_sources
from captioner.mcp.folders import AllowedFolders
from captioner.options import CaptionOptions
from captioner.protocol import ImageCaptioner, Outcome
from captioner.results import Caption
from captioner.retrieval import CaptionIndex, CaptionText


@dataclass(frozen=True, slots=True)
class Photo:
    """A photo and its caption, or why it has none."""

    name: str
    """Its path, as short as the folders allow."""
    outcome: Outcome


class Library:
    """Captions photos, and remembers the captions of those that have not changed. Thread-safe."""

    def __init__(self, folders: AllowedFolders, captioner: ImageCaptioner, options: CaptionOptions) -> None:
        self.folders, self.captioner, self.options = folders, captioner, options
        self._known: dict[Path, tuple[str, Outcome]] = {}
        self._lock = threading.Lock()

    def caption(self, name: str) -> Photo:
        """One photo. Raises `DataError`."""
        path = self.folders.find(name)
        if path.is_dir():
            raise DataError(f"{name} is a folder: caption_folder captions its photos")
        return self._caption([path])[0]

    def caption_folder(self, name: str) -> list[Photo]:
        """The photos in a folder and below it, sorted by name. Raises `DataError`."""
        folder = self.folders.find(name)
        if not folder.is_dir():
            raise DataError(f"{name} is no folder: caption_image captions a photo")
        with open_sources([folder]) as [source]:
            return self._caption(sorted(folder / found.name for found in source.find() if found.stamp))

    def search(self, words: str, name: str) -> list[Photo]:
        """The photos of a folder whose captions have some of these words, best first, as `captioner search`
        finds them. Raises a `CaptionerError`."""
        photos = {photo.name: photo for photo in self.caption_folder(name)}
        index = CaptionIndex(CaptionText(name, one.text) for name, one in captioned(photos.values()))
        return [photos[found.photo.image] for found in index.find(words)]

    def _caption(self, paths: list[Path]) -> list[Photo]:
        with self._lock:
            stamps = {path: _stamp(path) for path in paths}
            new = [path for path in paths if self._known.get(path, ("",))[0] != stamps[path]]
            outcomes = self.captioner.caption_each(map(self._read, new), self.options)
            for path, outcome in zip(new, outcomes, strict=True):
                self._known[path] = (stamps[path], outcome)
            return [Photo(self.folders.name(path), self._known[path][1]) for path in paths]

    def _read(self, path: Path) -> bytes | ImageError:
        try:
            return self.folders.read(path)
        except ImageError as error:
            return error


def captioned(photos: Iterable[Photo]) -> Iterator[tuple[str, Caption]]:
    """Names and captions of the photos that have one."""
    for photo in photos:
        if isinstance(photo.outcome, Caption):
            yield photo.name, photo.outcome


def failed(photos: Iterable[Photo]) -> Iterator[tuple[str, CaptionerError]]:
    """Names and errors of the others."""
    for photo in photos:
        if isinstance(photo.outcome, CaptionerError):
            yield photo.name, photo.outcome


def _stamp(path: Path) -> str:
    try:
        return stamp_of(path.stat())
    except OSError:  # it has just been deleted
        return "gone"
