"""Opens TIFF files, also those of 16 bits whose colours lie in planes, which Pillow reads as 8 bits."""

from __future__ import annotations

from typing import IO

from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import BITSPERSAMPLE, II, TiffImageFile

from captioner.images.formats import raw


def open_tiff(stream: IO[bytes]) -> TiffImageFile | JpegImageFile:
    """A TIFF file as a Pillow image, its header read; of a RAW file its preview. Raises what Pillow raises
    for damaged files, and `NotAnImageError` for a RAW file without a preview."""
    image = TiffImageFile(stream)
    if raw.is_raw(image):
        return raw.open_preview(stream)
    if set(image.tag_v2.get(BITSPERSAMPLE, ())) == {16}:
        depth = ";16L" if image.tag_v2.prefix == II else ";16B"
        image.tile = [
            tile._replace(args=(tile.args[0] + depth, *tile.args[1:]))
            if tile.codec_name == "raw" and tile.args[0] in image.getbands()
            else tile
            for tile in image.tile
        ]
    return image
