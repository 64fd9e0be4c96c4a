"""A gallery page for a folder of captioned photos."""

from __future__ import annotations

from captioner.overlay.gallery.write import GalleryOptions, GallerySummary, write_gallery

__all__ = ["GalleryOptions", "GallerySummary", "write_gallery"]
