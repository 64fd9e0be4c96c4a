"""Names of image files, by what they end in."""

from __future__ import annotations

PICTURES = tuple(
    "avif bmp gif heic heif j2k jfif jp2 jpe jpeg jpg pbm pgm png pnm ppm tif tiff webp".split()  # noqa: SIM905
)
RAW = tuple("arw cr2 cr3 dng nef nrw orf pef raf rw2 srw".split())  # noqa: SIM905
"""RAW photos; cameras often write a JPEG of the same photo beside each."""
UNSUPPORTED = ("jxl",)
"""Images that cannot be read."""

GALLERY_MARKER = "captioner-gallery.txt"
"""A folder with this file belongs to a gallery, and has copies of photos that need no captions."""
