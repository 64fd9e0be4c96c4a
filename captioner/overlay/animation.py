"""Animations: the caption appears word by word while its maps move over the photo (GIF or WebP)."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.images.sources import ImageInput
from captioner.maps.saliency import Map, fit_photo, gaze
from captioner.overlay.canvas import INK, MUTED, Canvas, text_width
from captioner.overlay.scene import OverlayOptions, Scene, ShownWord, make_scene
from captioner.overlay.styles import DEFAULT_STYLE, find_style
from captioner.overlay.styles.style import Field, Style
from captioner.overlay.text import font_for, runs_left, truncate
from captioner.printable import clean
from captioner.results import Caption

MAX_ASPECT = 1.5
"""Maximum height over width of the photo; taller photos are fitted into it."""
GIF_COLORS = 64
DITHER_LEVELS = 16
STEP_MS, FIXATION_MS, OPENING_MS, ENDING_MS = 60, 520, 700, 2600


@dataclass(frozen=True, slots=True)
class AnimationFormat:
    """How large animations of a format are made by default."""

    width: int
    steps: int
    """Frames for each word: those of the move to it, and one that rests."""
    saving: Mapping[str, Any]


ANIMATION_FORMATS = {
    # GIF keeps every pixel of every frame: with more of them, files have several megabytes.
    "GIF": AnimationFormat(320, 2, {"optimize": False}),
    "WEBP": AnimationFormat(480, 3, {"quality": 80, "method": 3}),
}


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame and its duration."""

    picture: Image.Image
    duration_ms: int


def render_animation(
    image: ImageInput,
    caption: Caption,
    style: str = DEFAULT_STYLE,
    options: OverlayOptions | None = None,
    *,
    format: Literal["GIF", "WEBP"] = "GIF",
    limits: ImageLimits = DEFAULT_LIMITS,
    **fields: Any,
) -> bytes:
    """The bytes of an endlessly looping animation, 480 pixels wide, as GIF 320, unless `options` say
    otherwise.

    `style` is any style of `render_overlay` except "matrix"; other parameters are the same. The layout of the
    caption is fixed from the start, so that nothing jumps.
    """
    how, kind = find_style(style, "animation"), ANIMATION_FORMATS[format]
    options = OverlayOptions.merge(options, fields)
    options = dataclasses.replace(options, width=options.width or kind.width)
    frames = list(draw_frames(make_scene(image, caption, options, kind.width, limits), how, kind.steps))
    pictures = [frame.picture for frame in frames]
    if format == "GIF":
        pictures = _share_palette(pictures)
    target = io.BytesIO()
    pictures[0].save(
        target,
        format,
        save_all=True,
        append_images=pictures[1:],
        duration=[frame.duration_ms for frame in frames],
        loop=0,
        **kind.saving,
    )
    return target.getvalue()


def _share_palette(pictures: list[Image.Image]) -> list[Image.Image]:
    # One palette for all frames, from a sample of them, and ordered dithering: unchanged pixels stay
    # identical between frames and are not stored again.
    sample = [*pictures[:1] * 3, *pictures[:: max(1, len(pictures) // 12)]]
    small = [picture.resize((160, max(1, picture.height * 160 // picture.width))) for picture in sample]
    sheet = Image.new("RGB", (160, sum(picture.height for picture in small)))
    top = 0
    for picture in small:
        sheet.paste(picture, (0, top))
        top += picture.height
    palette = sheet.quantize(GIF_COLORS, method=Image.Quantize.MEDIANCUT)
    offsets = _bayer(pictures[0].height, pictures[0].width)
    shared = []
    for picture in pictures:
        pixels = np.asarray(picture, dtype=np.float32)
        is_paper = (pixels >= 250).all(axis=2, keepdims=True)
        dithered = np.where(is_paper, 255, pixels + offsets).round().clip(0, 255).astype(np.uint8)
        shared.append(Image.fromarray(dithered).quantize(palette=palette, dither=Image.Dither.NONE))
    return shared


def _bayer(height: int, width: int) -> npt.NDArray[np.float32]:
    """Offsets (height, width, 1) that dither the error of a small palette evenly."""
    pattern = np.zeros((1, 1))
    for _ in range(2):  # Bayer 1973: each matrix of twice the size from the one before
        pattern = np.block([[4 * pattern, 4 * pattern + 2], [4 * pattern + 3, 4 * pattern + 1]])
    centred = (pattern + 0.5) / pattern.size - 0.5
    tiled = np.tile(centred, (height // 4 + 1, width // 4 + 1))[:height, :width]
    return (tiled * DITHER_LEVELS).astype(np.float32)[..., None]


def draw_frames(scene: Scene, style: Style, steps: int) -> Iterator[Frame]:
    """The frames: the photo, then `steps` for each word, a transition and a still, then the photo again."""
    assert style.paint is not None
    layout = _Layout(scene)
    photo, size = layout.photo, layout.size
    yield Frame(layout.draw(photo, -1, 1.0), OPENING_MS)
    before: ShownWord | None = None
    for number, word in enumerate(scene.words):
        resting = style.paint(photo, style.field(word.attention, size, (0.0, 0.0)), scene.options)
        for step in range(1, steps):
            progress = _ease(step / steps)
            if before is None:
                picture = Image.blend(photo, resting, progress)
            else:
                field = travel(before.attention, word.attention, progress, size, style.field)
                picture = style.paint(photo, field, scene.options)
            yield Frame(layout.draw(picture, number, step / steps), STEP_MS)
        yield Frame(layout.draw(resting, number, 1.0), FIXATION_MS)
        before = word
    yield Frame(layout.draw(photo, len(scene.words), 1.0), ENDING_MS)


def _ease(progress: float) -> float:
    return progress * progress * (3 - 2 * progress)


def travel(before: Map, after: Map, progress: float, size: tuple[int, int], field: Field) -> Map:
    """The field between one map and the next: both move along the line between their gazes while one fades
    into the other."""
    (y0, x0), (y1, x1) = gaze(before), gaze(after)
    down, across = y1 - y0, x1 - x0
    rows, columns = before.shape
    old = field(before, size, (down * progress * rows, across * progress * columns))
    rows, columns = after.shape
    new = field(after, size, (down * (progress - 1) * rows, across * (progress - 1) * columns))
    return old * np.float32(1 - progress) + new * np.float32(progress)


class _Layout:
    """The photo above, the caption below, at the same positions in every frame."""

    def __init__(self, scene: Scene) -> None:
        assert scene.options.width
        self.width = scene.options.width
        self.photo = fit_photo(scene.photo, self.width, round(self.width * MAX_ASPECT))
        self.size = (self.photo.height, self.photo.width)
        self.letters = max(16, round(self.width / 25))
        self.margin = max(10, round(self.width / 35))
        self.line_height = round(1.5 * self.letters)
        self.words = [clean(word.text) or "(empty)" for word in scene.words]
        self.probabilities = [word.probability for word in scene.words]
        self.runs_left = runs_left(" ".join(self.words))
        self.places = self._place_words()
        lines = self.places[-1][1] + 1
        self.height = self.photo.height + lines * self.line_height + 2 * self.margin

    def _place_words(self) -> list[tuple[float, int]]:
        """Position (x, line) of every word."""
        room = self.width - 2 * self.margin
        space = text_width("n", self.letters) * 0.55
        places: list[tuple[float, int]] = []
        x, line = 0.0, 0
        for number, word in enumerate(self.words):
            self.words[number] = word = truncate(word, font_for(word, self.letters), room)
            width = text_width(word, self.letters)
            if x > 0 and x + width > room:
                x, line = 0.0, line + 1
            left = self.margin + x
            places.append((self.width - left - width if self.runs_left else left, line))
            x += width + space
        return places

    def draw(self, picture: Image.Image, current: int, typed: float) -> Image.Image:
        """One frame: the words before `current` and the share `typed` of its letters; if `current` is past
        the last word, all words."""
        canvas = Canvas(self.width, self.height)
        canvas.image.paste(picture, ((self.width - picture.width) // 2, 0))
        top = self.photo.height + self.margin
        for number, (x, line) in enumerate(self.places[: current + 1]):
            baseline = top + line * self.line_height + round(1.02 * self.letters)
            word = self.words[number]
            width = text_width(word, self.letters)
            if number == current:
                word = word[: max(1, round(len(word) * typed))]
                underline = baseline + round(0.28 * self.letters)
                canvas.bar(x, underline, width, self.probabilities[number] * typed, max(2, self.letters // 9))
            is_past = number < current < len(self.words)
            begin, anchor = (x + width, "rs") if self.runs_left else (x, "ls")
            canvas.text(begin, baseline, word, self.letters, MUTED if is_past else INK, anchor)
        return canvas.image
