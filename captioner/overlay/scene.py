"""The validated content of an overlay: the photo, the words with their maps, and how to draw them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from captioner.errors import DataError, OptionsError
from captioner.images.limits import ImageLimits
from captioner.images.opening import open_image
from captioner.images.sources import ImageInput
from captioner.maps.colors import COLORMAPS, DEFAULT_ALPHA, DEFAULT_COLORMAP
from captioner.printable import counted
from captioner.results import Caption, Word

MIN_WIDTH, MAX_WIDTH = 200, 4000
DEFAULT_WIDTH = 1600
"""Width of a still picture in pixels, unless given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayOptions:
    """How to draw an overlay. Raises `OptionsError` if a value is out of range."""

    words: Sequence[int] | None = None
    """Positions in `caption.words` of the words to show, from 0; None shows all."""
    colormap: str = DEFAULT_COLORMAP
    """One of `captioner.maps.colors.COLORMAPS`; all are perceptually uniform."""
    alpha: float = DEFAULT_ALPHA
    """Opacity of the overlay at the peak of a map, 0 to 1."""
    width: int | None = None
    """Width of the picture in pixels, 200 to 4000; None for the default of the kind of picture."""

    def __post_init__(self) -> None:
        if self.colormap not in COLORMAPS:
            known = ", ".join(COLORMAPS)
            raise OptionsError(f"colormap must be one of {known}, got {self.colormap!r}", "colormap")
        if not 0 <= self.alpha <= 1:  # also false for NaN
            raise OptionsError(f"alpha must be from 0 to 1, got {self.alpha}", "alpha")
        if self.width is not None and not MIN_WIDTH <= self.width <= MAX_WIDTH:
            raise OptionsError(f"width must be from {MIN_WIDTH} to {MAX_WIDTH}, got {self.width}", "width")

    @classmethod
    def merge(cls, options: OverlayOptions | None, fields: Mapping[str, Any]) -> OverlayOptions:
        """`options` with single fields replaced: what `render_overlay(photo, caption, width=800)` asks for.
        Raises `OptionsError` for an unknown field."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in known:
                raise OptionsError(f"unknown option {name!r}; options are {', '.join(known)}", name)
        return dataclasses.replace(options or cls(), **fields)


MAX_SIDE = 2**12
"""Most rows or columns of a map that can be drawn: resampling takes memory with their number times that of
the pixels. Maps of other programs may be finer than those of models (`captioner.options.MAX_GRID_SIDE`)."""


@dataclass(frozen=True, slots=True)
class ShownWord:
    """One word of an overlay; unlike `captioner.Word` it always has a map."""

    text: str
    probability: float
    attention: npt.NDArray[np.float32]
    """(rows, columns)"""
    sentinel: float | None


@dataclass(frozen=True, slots=True)
class Scene:
    """A photo, its caption and the words to show."""

    photo: Image.Image
    """RGB, upright."""
    caption: Caption
    words: tuple[ShownWord, ...]
    options: OverlayOptions


def make_scene(
    image: ImageInput, caption: Caption, options: OverlayOptions, default_width: int, limits: ImageLimits
) -> Scene:
    """Open the image, no larger than a picture of `options.width` or `default_width` needs, and select the
    words.

    Raises an `ImageError` for a bad image, `OptionsError` for a word that does not exist and `DataError` for
    a caption without usable attention maps.
    """
    chosen = range(len(caption.words)) if options.words is None else options.words
    for position in chosen:
        if not 0 <= position < len(caption.words):
            raise OptionsError(
                f"there is no word {position + 1}: the caption has {counted(len(caption.words), 'word')}",
                "words",
            )
    words = tuple(show_word(caption.words[position], position + 1) for position in chosen)
    if not words:
        raise DataError("the caption has no words to show; it must be asked for with attention maps")
    photo = open_image(image, limits, options.width or default_width)
    return Scene(photo, caption, words, options)


def show_word(word: Word, number: int) -> ShownWord:
    """Validate the map of a word, the `number`th of its caption from 1; raises `DataError`."""
    if word.attention is None:
        raise DataError("the words have no attention maps; request the caption with attention=True")
    attention = np.asarray(word.attention, dtype=np.float32)
    if not is_map(attention):
        sides = f"at most {MAX_SIDE} rows and columns"
        raise DataError(f"the attention map of word {number} is not a grid of weights, {sides}")
    return ShownWord(word.text, probability(word.log_prob), attention, word.sentinel)


def is_map(attention: npt.NDArray[np.float32]) -> bool:
    """Whether an array is a grid of finite, non-negative weights that can be drawn."""
    return (
        attention.ndim == 2
        and attention.size > 0
        and max(attention.shape) <= MAX_SIDE
        and bool(np.isfinite(attention).all())
        and bool((attention >= 0).all())
    )


def probability(log_prob: Any) -> float:
    """The probability, 0 to 1, for a natural logarithm; 0 for NaN."""
    value = float(np.exp(min(float(log_prob), 0.0)))
    return value if np.isfinite(value) else 0.0
