"""The names of the images in a folder or a zip file."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from captioner.errors import DataError
from captioner.images.suffixes import PICTURES, holds_no_photos
from captioner.images.zip_archive import open_zip


def list_images(place: Path) -> list[str]:
    """Paths below the folder or in the archive, with slashes, sorted. RAW files are left out: the JPEG beside
    one has the same name. Raises `DataError`."""
    if place.is_dir():
        try:
            names = [path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()]
        except OSError as error:
            raise DataError(f"{place}: {error.strerror}") from None
    else:
        with open_zip(place) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    return sorted(name for name in names if _is_image(PurePosixPath(name)))


def _is_image(path: PurePosixPath) -> bool:
    return path.suffix.lower().removeprefix(".") in PICTURES and not any(
        part.startswith(".") or holds_no_photos(part) for part in path.parts
    )
