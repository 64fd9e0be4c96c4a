"""Pictures of images in formats that browsers do not show, such as HEIC and RAW."""

from __future__ import annotations

import io
from functools import partial

import numpy as np
from PIL import Image

from captioner.images.letterbox import Letterbox
from captioner.images.preparation import Preparation
from captioner.protocol import Pixels
from captioner_server.captioning.decoders import Decoders
from captioner_server.intake.images import AdmittedImages
from captioner_server.intake.ticket import Ticket
from captioner_server.intake.turns import TurnPool
from captioner_server.options import ServerOptions

_SIDE, _QUALITY = 1280, 85
_FITTED = Letterbox(stride=2, color=(0, 0, 0))


class Pictures:
    """Decodes images as the model's input is decoded, in a process of its own, which starts when it is first
    needed. They have a queue of their own too: captions do not wait for pictures."""

    def __init__(self, options: ServerOptions) -> None:
        preparation = Preparation(_SIDE, _FITTED, options.image_limits)
        self._decoders = Decoders(preparation, 1, options.max_decode_s)
        self._admitted = AdmittedImages(
            options.queue_size,
            1,
            lambda: self._decoders.image_s,
            decoder_wait_s=self._decoders.expected_wait_s,
            decode_s=lambda: self._decoders.image_s,
            max_wait_s=options.max_wait_s,
        )
        self._threads = TurnPool(1, "picture")

    async def make(self, ticket: Ticket, image: bytes) -> bytes:
        """A JPEG whose longer side has 1280 pixels, upright, without metadata. Raises an `ImageError`,
        and `BusyError` if there is no room."""
        with self._admitted.enter(ticket):
            pixels = await self._decoders.load(image, ticket)
            return await self._threads.run(ticket, partial(_encode, pixels), 1.0)

    def close(self) -> None:
        """End the processes."""
        self._decoders.close()
        self._threads.close()


def _encode(pixels: Pixels) -> bytes:
    inside = pixels[..., 3] > 0
    photo = pixels[np.ix_(inside.any(axis=1), inside.any(axis=0))][..., :3]
    target = io.BytesIO()
    Image.fromarray(photo).save(target, "JPEG", quality=_QUALITY)
    return target.getvalue()
