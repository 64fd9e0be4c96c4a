"""Names of image files and archives, by what they end in, and folders that hold no photos."""

from __future__ import annotations

import os

PICTURES = tuple(
    "avif bmp gif heic heif j2k jfif jp2 jpe jpeg jpg pbm pgm png pnm ppm tif tiff webp".split()  # noqa: SIM905
)
RAW = tuple("arw cr2 cr3 dng nef nrw orf pef raf rw2 srw".split())  # noqa: SIM905
"""RAW photos; cameras often write a JPEG of the same photo beside each."""
UNSUPPORTED = ("jxl",)
"""Images that cannot be read."""
ARCHIVE_KINDS = {
    ".zip": "zip",
    ".cbz": "zip",
    ".tar": "tar",
    ".tar.gz": "tar",
    ".tgz": "tar",
    ".tar.bz2": "tar",
    ".tbz2": "tar",
    ".tar.xz": "tar",
    ".txz": "tar",
}
"""The archives that can be read, by the end of their names."""

_NOT_PHOTOS = frozenset(
    "@eadir #recycle @recycle #snapshot ~snapshot @recently-snapshot @tmp @sharesnap @sharebin "  # noqa: SIM905
    "@transcode @__thumb $recycle.bin recycled recycler lost+found __macosx "
    "files_trashbin files_versions".split()
) | {"system volume information", "network trash folder", "temporary items"}
_NOT_PHOTOS_SUFFIXES = (".lrdata", ".lrcat-data")
_COPIES_OF_APPLE = "/resources/derivatives"  # in the library of Photos
_NOT_PHOTOS_PREFIXES = ("appdata_oc",)  # of Nextcloud, with the number of the server


def is_archive(name: str) -> bool:
    """Whether the name is that of an archive that can be read."""
    return name.lower().endswith(tuple(ARCHIVE_KINDS))


def holds_no_photos(folder: str) -> bool:
    """Whether the folder at this path, with slashes, holds what programs made of photos or put aside:
    thumbnails, previews, trash and snapshots of network drives, Nextcloud, systems, Lightroom and Photos."""
    path = folder.casefold()
    name = path.rpartition("/")[2]
    ends = name.startswith(_NOT_PHOTOS_PREFIXES) or name.endswith(_NOT_PHOTOS_SUFFIXES)
    return ends or name in _NOT_PHOTOS or f"/{path}".endswith(_COPIES_OF_APPLE)


GALLERY_MARKER = "captioner-gallery.txt"
"""A folder with this file belongs to a gallery, and has copies of photos that need no captions."""


def is_of_gallery(folder: str | os.PathLike[str]) -> bool:
    """Whether the folder at this path belongs to a gallery."""
    return os.path.exists(os.path.join(folder, GALLERY_MARKER))  # noqa: PTH110 PTH118
