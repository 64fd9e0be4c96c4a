"""Outputs of the frozen part of the encoder, computed once and stored on disk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from captioner.errors import ImageError
from captioner.nn.encoder import GridEncoder
from captioner.training.data.examples import Example
from captioner.training.data.frozen_part import FrozenPart, Network, trained_outputs
from captioner.training.data.placing import Features, place, take
from captioner.training.data.stored_arrays import at_once, fill, on_threads

_DAMAGED = "damaged"


class FeatureCache:
    """Maps of examples by index. Files are memory-mapped, so that only what is used is in memory."""

    def __init__(
        self,
        arrays: Sequence[Features],
        masks: Features | None = None,
        damaged: Mapping[int, str] | None = None,
        rows: Tensor | None = None,
    ) -> None:
        """`masks` bool (images, views, cells) of letterboxed photos; `damaged`: what is wrong with images
        that have no features, by index; `rows` int64 (images,): where each image is, by default in order."""
        self._arrays, self._masks, self._rows = arrays, masks, rows
        self.damaged = damaged or {}

    def select(self, rows: Sequence[int]) -> FeatureCache:
        """The cache of these images."""
        if not self.damaged:
            return self
        return FeatureCache(self._arrays, self._masks, rows=torch.tensor(rows, dtype=torch.int64))

    def _places(self, images: Tensor, views: Tensor) -> tuple[Tensor, Tensor]:
        return images if self._rows is None else self._rows[images], views

    def maps(self, images: Tensor, views: Tensor, device: torch.device) -> list[Tensor]:
        """float32 (batch, channels, rows, columns) of each, or [uint8 (batch, height, width, 3)]; of
        int64 images and views, (batch,) each."""
        taken = [take(array, self._places(images, views), device) for array in self._arrays]
        return [maps.float() if maps.is_floating_point() else maps for maps in taken]

    def masks(self, images: Tensor, views: Tensor, device: torch.device) -> Tensor | None:
        """The photos' cells, bool (batch, rows * columns), of letterboxed photos; else None."""
        if self._masks is None:
            return None
        return take(self._masks, self._places(images, views), device)

    def outputs(
        self, encoder: GridEncoder, frozen_segments: int, images: Tensor, device: torch.device
    ) -> tuple[list[Tensor], Tensor | None]:
        """`trained_outputs` for the photos as they are, int64 (batch,), and their `masks`."""
        views = torch.zeros_like(images)
        maps, mask = self.maps(images, views, device), self.masks(images, views, device)
        return trained_outputs(encoder, maps, frozen_segments), mask


def build_cache(
    folder: Path,
    part: FrozenPart,
    examples: Sequence[Example],
    device: torch.device,
    progress: Callable[[int, int], None],
    network: Callable[[], Network] | None = None,
) -> FeatureCache:
    """Compute what the cache in `folder` lacks; `progress(done, total)` is called after each batch. `network`
    gives `part.on(device)`, which takes seconds to make: caches of one network can share it.

    On a GPU, what the cache holds is copied there if it fits. Images that cannot be read have no features
    (`FeatureCache.damaged`). Raises `DataError` for one that is missing, and `OutputError` if there is no
    space for the cache.
    """
    network = network or functools.cache(lambda: part.on(device))

    def compute(some: Sequence[Example]) -> dict[str, np.ndarray]:
        read = on_threads(part.views, some)
        blank = part.blank()
        views = np.concatenate([blank if isinstance(one, ImageError) else one for one in read])
        found = {} if part.letterbox is None else {"mask": part.letterbox.mask(views).reshape(len(views), -1)}
        found |= {f"stage{number}": each for number, each in enumerate(network()(views[..., :3]))}
        rows = {name: array.reshape(len(some), -1, *array.shape[1:]) for name, array in found.items()}
        return rows | {_DAMAGED: np.array([isinstance(one, ImageError) for one in read])}

    kept = fill(folder, part.name, part.identity(), examples, compute, progress, at_once(device))
    rows = np.flatnonzero(kept.get(_DAMAGED, ())).tolist()
    damaged = {row: str(part.views(examples[row])) for row in rows}
    maps = place([array for name, array in kept.items() if name not in ("mask", _DAMAGED)], device)
    return FeatureCache(maps, kept.get("mask"), damaged)
