"""Displays a caption: as HTML in a notebook, and as a matplotlib figure."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from captioner.errors import ImageError, RuntimeMissingError
from captioner.images.opening import open_image
from captioner.maps.saliency import blend, fit_photo, mute, relative

PANEL_SIDE = 160
"""Longest side in pixels of a panel in a notebook."""
PLOT_SIDE, PANEL_INCHES = 480, 2.6


class WordLike(Protocol):
    """What is shown of a `captioner.results.Word`, which this package does not import: captions draw
    themselves with it."""

    @property
    def text(self) -> str: ...
    @property
    def probability(self) -> float: ...
    @property
    def attention(self) -> Any: ...


class CaptionLike(Protocol):
    """What is shown of a `captioner.results.Caption`."""

    @property
    def text(self) -> str: ...
    @property
    def words(self) -> Sequence[WordLike]: ...
    @property
    def source(self) -> Any: ...


def to_html(caption: CaptionLike) -> str:
    """The caption with one panel per word below; without scripts, so that every notebook viewer shows it.

    Without the photo or maps, only the words and their probabilities.
    """
    photo = _photo(caption.source, PANEL_SIDE)
    panels = [_panel(photo, word) for word in caption.words]
    if photo is not None and panels:
        panels.insert(0, f"<figure style='{_FIGURE}'>{_image(photo, 'the photo')}</figure>")
    text = html.escape(_encodable(caption.text))
    # Colours are left to the notebook, so that light and dark themes both work.
    return (
        f"<div style='font-family:system-ui,sans-serif'><p dir='auto' style='{_CAPTION}'>{text}</p>"
        f"<div style='display:flex;flex-wrap:wrap;gap:12px'>{''.join(panels)}</div></div>"
    )


_FIGURE = f"margin:0;max-width:{PANEL_SIDE}px"
_CAPTION = "font-size:1.25em;margin:.25em 0 .6em"


def _panel(photo: Image.Image | None, word: WordLike) -> str:
    percent = f"{word.probability:.0%}"
    text = html.escape(_encodable(word.text))
    picture = ""
    if photo is not None and word.attention is not None:
        values = relative(word.attention, (photo.height, photo.width))
        picture = _image(
            blend(mute(photo), values),
            f"where the model looked for {word.text}",
        )
    return (
        f"<figure style='{_FIGURE}'>{picture}<figcaption style='overflow-wrap:anywhere'>"
        f"<bdi>{text}</bdi> <small style='opacity:.7'>{percent}</small></figcaption></figure>"
    )


def _image(picture: Image.Image, alt: str) -> str:
    target = io.BytesIO()
    picture.save(target, "JPEG", quality=82)
    data = base64.b64encode(target.getvalue()).decode()
    described = html.escape(_encodable(alt), quote=True)
    return (
        f"<img style='display:block;border-radius:4px' alt='{described}' src='data:image/jpeg;base64,{data}'>"
    )


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _photo(source: Any, side: int) -> Image.Image | None:
    """The photo, at most `side` pixels in each direction; None if it no longer exists."""
    if source is None:
        return None
    try:
        photo = open_image(source, target=side)
    except ImageError:  # moved or deleted since: the words still show
        return None
    return fit_photo(photo, side, side)


def plot(caption: CaptionLike, columns: int = 5) -> npt.NDArray[np.object_]:
    """Draw with pyplot: the photo, then one panel per word, `columns` per row.

    Returns the axes (rows, columns), whose `.figure` can be saved. Raises `RuntimeMissingError` if matplotlib
    is not installed.
    """
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise RuntimeMissingError("plotting needs matplotlib: pip install matplotlib") from error
    photo = _photo(caption.source, PLOT_SIDE)
    words = [(word, word.attention) for word in caption.words if word.attention is not None]
    rows, columns = -(-(len(words) + 1) // columns), min(len(words) + 1, columns)
    height = PANEL_INCHES * (photo.height / photo.width if photo else 1.0) + 0.4
    figure, axes = pyplot.subplots(
        rows,
        columns,
        squeeze=False,
        layout="constrained",
        figsize=(PANEL_INCHES * columns, height * rows + 0.5),
    )
    figure.suptitle(caption.text, parse_math=False)
    for place in axes.flat:
        place.axis("off")
    if photo is not None:
        axes.flat[0].imshow(np.asarray(photo))
    for place, (word, attention) in zip(
        axes.flat[1:], words, strict=False
    ):  # the last row may have empty places
        place.set_title(f"{word.text}  {word.probability:.0%}", fontsize=10, parse_math=False)
        place.imshow(_map_over(photo, attention))
    return axes


def _map_over(photo: Image.Image | None, attention: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    ground = photo if photo is not None else Image.new("RGB", (240, 240))
    values = relative(attention, (ground.height, ground.width))
    return np.asarray(blend(mute(ground), values))
