"""The two parts of an encoder: the frozen one, whose outputs are computed once, and the trained one.

The outputs of the frozen part are the input of the first segment that the run trains (the pixels, if nothing
is frozen), for each view of each image, in half precision, with masks for letterboxed photos. Views are the
photo, the photo mirrored, then each crop and the crop mirrored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from captioner.errors import ImageError
from captioner.images.letterbox import Letterbox
from captioner.images.opening import load_pixels, open_image, to_pixels
from captioner.nn.encoder import STRIDES, GridEncoder
from captioner.training.data.augment import crop
from captioner.training.data.examples import Example
from captioner.training.data.pixel_network import on_pixels, weights_digest

Network = Callable[[np.ndarray], list[np.ndarray]]
"""uint8 (batch, height, width, 3) -> maps, float16 (batch, channels, rows, columns), or these pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPart:
    """What features are computed with: the first segments of an encoder, and the views of a photo."""

    encoder: GridEncoder
    name: str
    """The name of the encoder."""
    segments: int
    """Features are the outputs of so many segments; of none, they are the pixels."""
    image_size: int
    letterbox: Letterbox | None = None
    crops: int = 0
    """Parts of each photo that are views, beside the whole."""
    mirrored: bool = True
    """Whether each of these is a view mirrored, too."""

    def identity(self) -> dict[str, Any]:
        """What tells its features from others. Names and defaults stay: caches of earlier runs have them."""
        told: dict[str, Any] = {
            "encoder": self.name,
            "weights": weights_digest(self.encoder.backbone.segments[: self.segments]),
            "image_size": self.image_size,
            "stride": self.encoder.stride,
            "frozen_segments": self.segments,
        }
        if self.letterbox is not None:
            told["letterbox"] = dataclasses.asdict(self.letterbox)
        if self.crops:
            told["crops"] = self.crops
        if not self.mirrored:
            told["mirrored"] = False
        if self.encoder.colors is not None:
            told["colors"] = True
        return told

    def views(self, example: Example) -> np.ndarray | ImageError:
        """uint8 (views, image_size, image_size, channels), or what is wrong with the photo."""
        content, size = example.files.read(example.image.name), self.image_size
        try:
            found = [load_pixels(content, size, letterbox=self.letterbox)]
            if self.crops:
                photo = open_image(content, target=2 * size)
                for number in range(1, self.crops + 1):
                    found.append(to_pixels(crop(photo, example.key, number), size, self.letterbox))
        except ImageError as error:
            return error
        sides = (1, -1)[: self._sides]
        return np.stack([pixels[:, ::side] for pixels in found for side in sides])

    def blank(self) -> np.ndarray:
        """Zeros in the shape of `views`."""
        channels = 3 + (self.letterbox is not None)
        views = self._sides * (1 + self.crops)
        return np.zeros((views, self.image_size, self.image_size, channels), dtype=np.uint8)

    @property
    def _sides(self) -> int:
        return 1 + self.mirrored

    def on(self, device: torch.device) -> Network:
        """What computes its features; pixels if `segments` is 0."""
        if self.segments == 0:
            return lambda pixels: [pixels]
        return on_pixels(_Segments(self.encoder, self.segments), self.image_size, device)


class _Segments(nn.Module):
    def __init__(self, encoder: GridEncoder, segments: int) -> None:
        super().__init__()
        self.encoder, self.segments = encoder, segments

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> list[Tensor]:
        outputs = self.encoder.outputs(self.encoder.inputs(pixels), 0, self.segments)
        return [output.half() for output in outputs]


def trained_outputs(
    encoder: GridEncoder, maps: list[Tensor], frozen_segments: int, tuned_segments: int = 0
) -> list[Tensor]:
    """Outputs of the backbone's segments, (batch, channels, rows, columns) each, from cached maps.

    The run trains all but its `frozen_segments`, the current stage of the run only the last
    `tuned_segments`; what lies between is computed without gradients.
    """
    if frozen_segments == 0:
        maps = encoder.inputs(maps[0])
    # Convolutions are fastest in this layout, above all the backward pass.
    maps = [each.contiguous(memory_format=torch.channels_last) for each in maps]
    still = len(STRIDES) - tuned_segments
    if still > frozen_segments:
        with torch.no_grad():
            maps = encoder.outputs(maps, frozen_segments, still)
    return encoder.outputs(maps, still, len(STRIDES)) if tuned_segments else maps
