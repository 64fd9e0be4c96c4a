"""Pictures of images in formats that browsers do not show, such as HEIC and RAW."""

from __future__ import annotations

import asyncio
import io

import numpy as np
from PIL import Image

from captioner.images.letterbox import Letterbox
from captioner.images.preparation import Preparation
from captioner.protocol import Pixels
from captioner_server.captioning.decoders import Decoders
from captioner_server.intake.ticket import Ticket
from captioner_server.options import ServerOptions

_SIDE, _QUALITY = 1280, 85
_FITTED = Letterbox(stride=2, color=(0, 0, 0))


class Pictures:
    """Decodes images as the model's input is decoded, in a process of its own, which starts when it is first
    needed."""

    def __init__(self, options: ServerOptions) -> None:
        preparation = Preparation(_SIDE, _FITTED, options.image_limits)
        self._decoders = Decoders(preparation, 1, options.max_decode_s)

    async def make(self, ticket: Ticket, image: bytes) -> bytes:
        """A JPEG whose longer side has 1280 pixels, upright, without metadata. Raises an `ImageError`."""
        pixels = await self._decoders.load(image, ticket)
        return await asyncio.to_thread(_encode, pixels)

    def close(self) -> None:
        """End the processes."""
        self._decoders.close()


def _encode(pixels: Pixels) -> bytes:
    inside = pixels[..., 3] > 0
    photo = pixels[np.ix_(inside.any(axis=1), inside.any(axis=0))][..., :3]
    target = io.BytesIO()
    Image.fromarray(photo).save(target, "JPEG", quality=_QUALITY)
    return target.getvalue()
