"""The names of the images in a folder or a zip file."""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath

from captioner.errors import DataError
from captioner.images.suffixes import PICTURES


def list_images(place: Path) -> list[str]:
    """Paths below the folder or in the archive, with slashes, sorted. RAW files are left out: the JPEG beside
    one has the same name. Raises `DataError`."""
    try:
        if place.is_dir():
            names = [path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()]
        else:
            with zipfile.ZipFile(place) as archive:
                names = [name for name in archive.namelist() if not name.endswith("/")]
    except (OSError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or "neither a folder nor a zip file"
        raise DataError(f"{place}: {reason}") from None
    return sorted(name for name in names if _is_image(PurePosixPath(name)))


def _is_image(path: PurePosixPath) -> bool:
    return path.suffix.lower().removeprefix(".") in PICTURES and not any(
        part.startswith((".", "__MACOSX")) for part in path.parts
    )
