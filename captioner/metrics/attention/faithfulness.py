"""Tests causally, with controls, whether a word depends on the cells that its map shows.

A map is only worth showing if hiding what it shows changes the caption. For each word, the cells it attended
to most are hidden at that very step, with the preceding words and decoder state unchanged, and the drop of
its log-probability is compared with that for other cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from captioner.errors import BundleError, DataError, OptionsError
from captioner.metrics.attention.maps import correlation, divergence, normalized, perplexity
from captioner.metrics.attention.measured import Measured
from captioner.metrics.bootstrap import SAMPLES, Array, Statistics
from captioner.model.search.choices import Floats, Ints
from captioner.model.vocabulary import Vocabulary
from captioner.words.english import FUNCTION_WORDS

if TYPE_CHECKING:
    from captioner.captioner import Captioner

GROUPS = ("", "content_", "function_")
"""Prefixes of score names: all words, content words, function words."""
FALLS = ("fall_top", "fall_random", "fall_shuffled", "fall_uniform")
_MEANS = (*FALLS, "hidden", "perplexity", "sentinel")
_RATIOS = ("top_to_random", "top_to_shuffled")
_BETWEEN = ("divergence", "correlation")
NAMES = (*(group + name for group in GROUPS for name in (*_MEANS, *_RATIOS)), *_BETWEEN)

MASK = "mask"
"""The part of a memory that masks cells, bool (images, cells)."""
_LEAST_FALL = 1e-4
"""In nats; a smaller drop of a control counts as this much, so that ratios are finite."""

Bools = npt.NDArray[np.bool_]


class Stepper(Protocol):
    """A decoder that has seen a batch of images, and reads captions that it is given."""

    def start(self, beams: int) -> Any:
        """The state before the first word, for `beams` captions of each image."""

    def step(self, tokens: Ints, state: Any) -> tuple[Floats, Floats, Any]:
        """Read the last tokens, (images, beams). Returns the log-probabilities of the next,
        (images, beams, vocabulary), the attention it was decided with, (images, beams, cells), and the
        new state."""


class Probed(Stepper, Protocol):
    """A decoder whose memory of the images can be replaced."""

    @property
    def memory(self) -> Mapping[str, npt.NDArray[Any]]:
        """Parts of the memory by name, each (images, …)."""

    def with_memory(self, changes: Mapping[str, npt.NDArray[Any]]) -> Stepper:
        """The same images with parts of the memory replaced; states are interchangeable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """How cells are hidden. Raises `OptionsError`."""

    share: float = 0.5
    """Cells that together hold this share of the attention of a word are hidden, above 0 and up to 1, but
    …"""
    most: float = 0.25
    """… at most this share of all cells, above 0 and below 1."""
    draws: int = 4
    """Draws of random cells per word."""
    seed: int = 0
    """Seed of the random cells and of the bootstrap."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise OptionsError(
                f"the share of attention to hide must be above 0 and up to 1, got {self.share}"
            )
        if not 0 < self.most < 1:
            raise OptionsError(f"the share of cells to hide must be between 0 and 1, got {self.most}")
        if self.draws < 1 or self.seed < 0:
            raise OptionsError("draws must be at least 1 and the seed at least 0")


class Probe:
    """The test over a data set, one batch of images at a time."""

    def __init__(self, vocabulary: Vocabulary, options: ProbeOptions | None = None) -> None:
        self.options = options or ProbeOptions()
        self._is_function = np.array([word in FUNCTION_WORDS for word in vocabulary.words])
        self._random = np.random.default_rng(self.options.seed)
        self._images: list[Array] = []

    def add(self, stepper: Probed, captions: Sequence[Sequence[int]]) -> None:
        """Test one caption of each image of `stepper`, which it has found itself: its tokens, without start
        and end. Raises `BundleError` for a decoder that shows no mask."""
        memory = stepper.memory
        if MASK not in memory:
            raise BundleError(_TOO_OLD)
        even = stepper.with_memory(without_places(memory))
        maps = _maps(stepper, captions)
        measured: list[list[Array]] = [[] for _ in captions]
        state = stepper.start(1)
        for step, last, said in _steps(captions):
            log_probs, _, after = stepper.step(last, state)
            now = _of(log_probs, said)
            masks, hidden = self._masks(step, maps, memory[MASK])
            falls = [
                now - _of(changed.step(last, state)[0], said)
                for changed in (*(stepper.with_memory({MASK: mask}) for mask in masks), even)
            ]
            top, shuffled, *random, uniform = falls
            columns = np.stack([top, np.mean(random, axis=0), shuffled, uniform, hidden], axis=1)
            for row, caption, rows in zip(columns, captions, measured, strict=True):
                rows += [row] if step < len(caption) else []
            state = after
        for caption, looked, cells, rows in zip(captions, maps, memory[MASK], measured, strict=True):
            if caption:
                self._images.append(self._summary(np.array(caption), looked[:, cells], np.stack(rows)))

    def result(self, samples: int = SAMPLES) -> Measured:
        """`NAMES` over all that was added; `samples` resamples make the intervals. Raises `DataError` when
        nothing was."""
        if not self._images:
            raise DataError("there is no caption to test")
        sums = np.stack(self._images)
        return Measured.of(
            NAMES, Statistics(sums, _combine), int(sums[:, 0].sum()), samples, self.options.seed
        )

    def _masks(self, step: int, maps: Sequence[Floats], allowed: Bools) -> tuple[list[Bools], Array]:
        """What each image may look at when cells are hidden by its own map, by that of another word, and by
        chance; and the share of the cells that is hidden."""
        masks = [allowed.copy() for _ in range(2 + self.options.draws)]
        hidden = np.zeros(len(allowed))
        for image, looked in enumerate(maps):
            if step >= len(looked):
                continue
            cells = np.flatnonzero(allowed[image])
            others = [other for other in range(len(looked)) if other != step] or [step]
            count = self._count(looked[step, cells])
            orders = [looked[step, cells], looked[self._random.choice(others), cells]]
            orders += list(self._random.random((self.options.draws, len(cells))))
            for mask, order in zip(masks, orders, strict=True):
                # Among cells attended alike chance decides: the first of them are the top of the photo.
                first = np.lexsort((self._random.random(len(cells)), -order))[:count]
                mask[image, cells[first]] = False
            hidden[image] = count / len(cells)
        return masks, hidden

    def _count(self, weights: Floats) -> int:
        """The number of cells to hide: those that hold the share of the attention, at least one, never
        all."""
        held = np.cumsum(np.sort(normalized([weights])[0])[::-1])
        enough = int(np.searchsorted(held, self.options.share - 1e-6)) + 1
        return max(1, min(enough, int(self.options.most * len(weights)), len(weights) - 1))

    def _summary(self, caption: Ints, maps: Floats, measured: Array) -> Array:
        """The contribution of one image to the sums."""
        sentinel = np.maximum(0, 1 - maps.sum(axis=1))
        columns = np.column_stack([measured, perplexity(maps), sentinel])
        function = self._is_function[caption]
        sums = [[len(part), *part.sum(axis=0)] for part in (columns, columns[~function], columns[function])]
        between = [divergence(maps), correlation(maps)]
        known = np.isfinite(between)
        return np.array([*np.ravel(sums), *known, *np.where(known, between, 0)])


_TOO_OLD = "cells cannot be hidden from this model, whose graphs are too old for it: export it again"


def check_memory(captioner: Captioner) -> None:
    """Raise `BundleError` for a model whose cells cannot be hidden, before captioning begins. A blank
    image shows what the memory contains."""
    blank = captioner.preprocess(Image.new("RGB", (1, 1)))
    if MASK not in captioner.encode(blank[None]).memory:
        raise BundleError(_TOO_OLD)


def without_places(memory: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The parts of a memory that differ between cells, with each cell replaced by the mean of all: a
    decoder then attends to all alike."""
    cells = memory[MASK].shape[1]
    changed = {}
    for name, value in memory.items():
        axis = next((axis for axis in range(1, value.ndim) if value.shape[axis] == cells), None)
        if name != MASK and axis is not None:
            shown = memory[MASK].reshape(
                [size if place in (0, axis) else 1 for place, size in enumerate(value.shape)]
            )
            mean = value.mean(axis=axis, keepdims=True, where=shown)
            changed[name] = np.ascontiguousarray(np.broadcast_to(mean, value.shape), dtype=value.dtype)
    return changed


def _steps(captions: Sequence[Sequence[int]]) -> Iterator[tuple[int, Ints, Ints]]:
    """Teacher forcing: the number of the step, the last tokens (images, 1), and those that follow (images,);
    the end token where a caption is over."""
    last = np.full(len(captions), Vocabulary.start_id)
    for step in range(max(map(len, captions), default=0)):
        said = [caption[step] if step < len(caption) else Vocabulary.end_id for caption in captions]
        yield step, last[:, None], np.array(said)
        last = np.array(said)


def _maps(stepper: Stepper, captions: Sequence[Sequence[int]]) -> list[Floats]:
    """The maps (words, cells) that the words of each caption are chosen with."""
    state, maps = stepper.start(1), []
    for _, last, _ in _steps(captions):
        _, attention, state = stepper.step(last, state)
        maps.append(attention[:, 0])
    return [
        np.stack([looked[image] for looked in maps[: len(caption)]])
        if caption
        else np.zeros((0, 0), np.float32)
        for image, caption in enumerate(captions)
    ]


def _of(log_probs: Floats, said: Ints) -> Array:
    """(images, 1, vocabulary) at the tokens (images,)."""
    return log_probs[np.arange(len(said)), 0, said].astype(np.float64)


def _combine(sums: Array) -> Array:
    """The values of `NAMES` from sums over images."""
    scores = []
    width = 1 + len(_MEANS)
    for group in range(len(GROUPS)):
        words, *columns = np.moveaxis(sums[..., group * width : (group + 1) * width], -1, 0)
        means = [_divide(column, words) for column in columns]
        scores += [*means, *(means[0] / np.maximum(control, _LEAST_FALL) for control in means[1:3])]
    known, total = sums[..., -4:-2], sums[..., -2:]
    return np.concatenate([np.stack(scores, axis=-1), _divide(total, known)], axis=-1)


def _divide(total: Array, count: Array) -> Array:
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
