"""Data of the interactive view: a caption as compact JSON, maps as bytes from 0 to 255."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
from PIL import Image

from captioner.maps.saliency import Map, display_range, fit_photo, resample, stops
from captioner.overlay.scene import OverlayOptions, ShownWord, probability
from captioner.printable import clean
from captioner.results import Caption
from captioner.words.english import is_function_word

MAX_MAP_BYTES = 96 * 1024
"""Limit for all maps of a caption together; finer grids are resampled to fit, so that pages stay small."""


def make_payload(
    caption: Caption,
    words: tuple[ShownWord, ...],
    photo_size: tuple[int, int],
    options: OverlayOptions,
    mode: str | None = "heat",
) -> dict[str, Any]:
    """JSON for `createView().show`; `photo_size` is (width, height), `mode` "heat" or "spotlight"."""
    grid = _grid(words)
    return {
        "caption": clean(caption.text),
        "logProb": _finite(caption.log_prob),
        "confidence": None if caption.confidence is None else round(_finite(caption.confidence), 4),
        "meanProbability": mean_probability(caption.text, caption.log_prob),
        "model": clean(caption.model),
        "width": photo_size[0],
        "height": photo_size[1],
        "grid": list(grid),
        "mode": mode,
        "alpha": options.alpha,
        "colormap": packed_colormap(options.colormap),
        "words": [_word(word, grid) for word in words],
        "alternatives": [
            {"text": clean(other.text), "ratio": _ratio(other.log_prob, caption.log_prob)}
            # The search ranks by its own score, which may count the length; the page shows these numbers.
            for other in sorted(caption.alternatives, key=lambda other: -_finite(other.log_prob))
        ],
    }


def packed_colormap(colormap: str) -> str:
    """The colours of a colour map, six hexadecimal digits each."""
    return "".join(f"{red:02x}{green:02x}{blue:02x}" for red, green, blue in stops(colormap))


def mean_probability(text: str, log_prob: float) -> float:
    """Geometric mean of the probabilities of the words and the end token, 0 to 1: independent of length."""
    return probability(_finite(log_prob) / (len(text.split()) + 1))


def encode_photo(photo: Image.Image, max_side: int, quality: int) -> bytes:
    """A JPEG of at most `max_side` pixels in each direction, without the metadata of the original."""
    if max(photo.size) > max_side:
        photo = fit_photo(photo, max_side, max_side)
    target = io.BytesIO()
    photo.save(target, "JPEG", quality=quality, optimize=True, progressive=True)
    return target.getvalue()


def _grid(words: tuple[ShownWord, ...]) -> tuple[int, int]:
    if not words:
        return 1, 1
    rows, columns = words[0].attention.shape
    shrink = math.sqrt(min(1.0, MAX_MAP_BYTES / (rows * columns * len(words))))
    return max(1, int(rows * shrink)), max(1, int(columns * shrink))


def _word(word: ShownWord, grid: tuple[int, int]) -> dict[str, Any]:
    weights: Map = word.attention if word.attention.shape == grid else resample(word.attention, grid)
    largest = float(weights.max())
    floor, peak = display_range(weights)
    levels = (weights / (largest or 1.0) * 255).round().astype(np.uint8)
    return {
        "text": clean(word.text),
        "small": is_function_word(word.text),
        "probability": round(word.probability, 4),
        "sentinel": None if word.sentinel is None else round(_finite(word.sentinel), 4),
        "max": largest,
        "floor": floor,
        "peak": peak,
        "map": base64.b64encode(levels.tobytes()).decode(),
    }


def _ratio(log_prob: float, best: float) -> float:
    return round(math.exp(min(50.0, _finite(log_prob) - _finite(best))), 4)


def _finite(value: float) -> float:
    return float(value) if math.isfinite(value) else 0.0
