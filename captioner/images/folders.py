"""Folders that hold no photos of their own: what programs made of photos or put aside."""

from __future__ import annotations

import os

_NOT_PHOTOS = frozenset(
    "@eadir #recycle @recycle #snapshot ~snapshot @recently-snapshot @tmp @sharesnap @sharebin "  # noqa: SIM905
    "@transcode @__thumb $recycle.bin recycled recycler lost+found __macosx "
    "files_trashbin files_versions".split()
) | {"system volume information", "network trash folder", "temporary items"}
_NOT_PHOTOS_SUFFIXES = (".lrdata", ".lrcat-data")
_COPIES_OF_APPLE = "/resources/derivatives"  # in the library of Photos
_NOT_PHOTOS_PREFIXES = ("appdata_oc",)  # of Nextcloud, with the number of the server


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
