"""What the server asks of a captioner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from captioner.images.preparation import Preparation
from captioner.model.calibration import Calibration
from captioner.options import CaptionOptions
from captioner.results import Caption, Word

Pixels = npt.NDArray[np.uint8]


class Engine(Protocol):
    """A loaded model; `captioner.Captioner` is one. Every method may be called from several threads."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str:
        """SHA-256 in hexadecimal."""

    @property
    def model(self) -> str:
        """NAME@DIGEST, the digest cut to 12 digits."""

    @property
    def device(self) -> str:
        """What really computes: "cpu" or "cuda"."""

    @property
    def provider(self) -> str: ...

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the maps; where `grid_varies`, of those of a square image."""

    @property
    def grid_varies(self) -> bool: ...

    @property
    def heads(self) -> int:
        """Maps that a word has."""

    def check_include(self, words: Sequence[str]) -> None:
        """Raises `OptionsError` for a word that the model cannot say."""

    @property
    def calibration(self) -> Calibration | None: ...

    @property
    def defaults(self) -> CaptionOptions: ...

    @property
    def preparation(self) -> Preparation:
        """From an image file to pixels, (size, size, channels)."""

    def caption_pixels(self, pixels: Pixels, options: CaptionOptions | None = None) -> list[Caption]:
        """Captions of a batch, (batch, size, size, channels)."""

    def stream_pixels(
        self, pixels: Pixels, options: CaptionOptions | None = None
    ) -> Iterator[Word | Caption]:
        """Words of one image, (size, size, channels), as they are decoded; last the caption."""
