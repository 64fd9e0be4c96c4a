"""Names of image files and archives, by what they end in."""

from __future__ import annotations

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


def is_archive(name: str) -> bool:
    """Whether the name is that of an archive that can be read."""
    return name.lower().endswith(tuple(ARCHIVE_KINDS))
