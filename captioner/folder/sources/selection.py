"""Which files of a folder or archive are captioned."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from unicodedata import normalize

from captioner.images.folders import holds_no_photos
from captioner.images.suffixes import PICTURES, RAW, UNSUPPORTED, is_archive

IMAGE_PATTERNS = tuple(f"*.{suffix}" for suffix in sorted((*PICTURES, *RAW, *UNSUPPORTED)))
"""File names taken as images. Unsupported formats (JPEG XL; HEIC without the extra [photos]) are included
so that each such photo is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which files of a folder or archive to caption. Patterns are shell patterns, case-insensitive; `*`
    also matches slashes. A pattern with a slash is matched against the path below the source, any other
    against the file name."""

    patterns: Sequence[str] = IMAGE_PATTERNS
    exclude: Sequence[str] = ()
    """Files to skip, and folders to skip with all their content."""
    hidden: bool = False
    """Whether to include files and folders whose names start with a dot, and folders of thumbnails and trash
    (`holds_no_photos`)."""

    def takes_file(self, name: str) -> bool:
        """Whether to take a file of a folder that is taken."""
        return self._takes(name) and _matches(name, self.patterns)

    def takes_folder(self, name: str) -> bool:
        """Whether to look into a folder."""
        return self._takes(name) and (self.hidden or not holds_no_photos(name))

    def takes_path(self, name: str) -> bool:
        """Whether walking the folder would find the file: its folders are not excluded."""
        return self.takes_file(name) and self._takes_folders_of(name)

    def takes_named(self, path: str) -> bool:
        """Whether to take a file that the user names: also a hidden one, and without patterns any."""
        wanted = self.patterns is IMAGE_PATTERNS or _matches(path, self.patterns)
        return wanted and not _matches(path, self.exclude)

    def leaves_archive(self, path: str) -> bool:
        """Whether it is an archive below the source that would be opened if it was a source itself."""
        return is_archive(path) and self._takes(path) and self._takes_folders_of(path)

    def _takes_folders_of(self, path: str) -> bool:
        parts = path.split("/")
        return all(self.takes_folder("/".join(parts[:end])) for end in range(1, len(parts)))

    def _takes(self, name: str) -> bool:
        own = name.rpartition("/")[2]
        return (self.hidden or not own.startswith(".")) and not _matches(name, self.exclude)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    name = normalize("NFC", name)
    own = name.rpartition("/")[2]
    return any(compiled.match(name if of_path else own) for of_path, compiled in map(_compile, patterns))


@functools.cache
def _compile(pattern: str) -> tuple[bool, re.Pattern[str]]:
    """Whether the pattern is one of paths, and what matches it in a composed name (NFC). A slash at the end,
    as shells complete the name of a folder, and "./" at the start say nothing."""
    plain = normalize("NFC", pattern).removeprefix("./").rstrip("/")
    return "/" in plain, re.compile(fnmatch.translate(plain), re.IGNORECASE)
