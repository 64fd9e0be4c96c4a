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
        for number, tile in enumerate(image.tile):
            match tile.codec_name, tile.args:
                case "raw", (str(band), *rest) if band in image.getbands():
                    image.tile[number] = tile._replace(args=(band + depth, *rest))
    return image
