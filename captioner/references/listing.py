"""The names of the images in a folder or a zip file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from captioner.errors import reason_of
from captioner.files.zip_archive import open_zip
from captioner.images.folders import holds_no_photos, is_of_gallery
from captioner.images.suffixes import PICTURES

_LOG = logging.getLogger(__name__)


def list_images(place: Path) -> list[str]:
    """Paths below the folder or in the archive, with slashes, sorted. RAW files are left out: the JPEG beside
    one has the same name; so are the copies in galleries, and, with a warning, what may not be read. Raises
    `DataError`."""
    if place.is_dir():
        found = (path.relative_to(place).as_posix() for path in _walk(place))
        return sorted(name for name in found if _is_image(PurePosixPath(name)) and _is_file(place / name))
    with open_zip(place) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    return sorted(name for name in names if _is_image(PurePosixPath(name)))


def _walk(folder: Path) -> Iterator[Path]:
    for above, folders, names in os.walk(folder, onerror=_warn):
        folders[:] = [name for name in folders if not is_of_gallery(Path(above, name))]
        yield from (Path(above, name) for name in names)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        _warn(error)
        return False


def _warn(error: OSError) -> None:
    _LOG.warning("%s: %s", error.filename, reason_of(error))


def _is_image(path: PurePosixPath) -> bool:
    return path.suffix.lower().removeprefix(".") in PICTURES and not any(
        one.name.startswith(".") or holds_no_photos(one.as_posix()) for one in (path, *path.parents)
    )
