"""Moves outliers of a transformer's activations into its weights, which 8 bits represent better.

A few features of a vision transformer are many times as large as the others. Each feature x[i] is divided by
s[i], and the weights that read it are multiplied by it (SmoothQuant, Xiao et al. 2022, arXiv:2211.10438),
where

    s[i] = max |x[i]|^a / max |w[i]|^(1 - a)

The divisions cost nothing: normalisations, the rows of the values and of the perceptron's first layer take
them. The function of the network stays the same, except that `ByteLinear` weights are rounded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from captioner.images.preparation import Pixels
from captioner.nn.encoder.clip import Block, ByteLinear, ClipEncoder, TextSpace, round_to_bytes
from captioner.nn.model import CaptionModel

_BATCH = 4
_LEAST = 1e-5
_LARGEST = 100.0
"""The most by which a feature is divided, or multiplied, relative to the mean of all."""


class _Place(NamedTuple):
    """Features that are divided."""

    readers: tuple[nn.Linear, ...]
    """They multiply by the factors; their input is measured."""
    divided: tuple[Tensor, ...]
    """Weights and biases whose rows are the features."""
    multiplied: tuple[Tensor, ...]
    share: float
    """a in the equation above; the best of several for CLIP ViT-B/16."""


@torch.no_grad()
def smooth(model: CaptionModel, pixels: Pixels) -> None:
    """Smooth the encoder of `model`, by its activations on photos, uint8 (photos, size, size, 3 or more), if
    it has CLIP's."""
    parts = list(model.encoder.backbone.modules())
    encoder = next((part for part in parts if isinstance(part, ClipEncoder)), None)
    space = next((part for part in parts if isinstance(part, TextSpace)), None)
    if encoder is None or space is None:
        return
    places = list(_places(model, encoder, space))
    with _measuring(place.readers[-1] for place in places) as largest:
        for start in range(0, len(pixels), _BATCH):
            part = torch.from_numpy(pixels[start : start + _BATCH, ..., :3].copy())
            model.encoder.outputs(model.encoder.inputs(part), 0, 3)
    for place in places:
        factors = _factors(largest[place.readers[-1]], place)
        for reader in place.readers:
            reader.weight[:, : len(factors)] *= factors
        for values in place.divided:
            values /= factors if values.dim() == 1 else factors.unsqueeze(1)
        for values in place.multiplied:
            values *= factors
    for module in model.modules():
        if isinstance(module, ByteLinear):
            round_to_bytes(module.weight)


def _places(model: CaptionModel, encoder: ClipEncoder, space: TextSpace) -> Iterator[_Place]:
    blocks = [block for block in encoder.blocks if isinstance(block, Block)]
    for block in blocks:
        # The grid and the space of texts read what the last block does.
        others: list[nn.Linear] = []
        if block is blocks[-1]:
            grid = model.encoder.projections[0]
            assert isinstance(grid, nn.Linear)
            others = [space.value, grid] if model.encoder.first < 2 else [space.value]
        norm, inner = block.attention_norm, block.perceptron_norm
        reading = (*others, block.query, block.value, block.key)
        yield _Place(reading, (norm.weight, norm.bias), (), 0.6)
        yield _Place((block.output,), (block.value.weight, block.value.bias), (), 0.5)
        yield _Place((block.expand,), (inner.weight, inner.bias), (), 0.6)
        expand = block.expand
        yield _Place((block.shrink,), (expand.weight, expand.bias), (block.slope,), 0.7)


def _factors(largest: Tensor, place: _Place) -> Tensor:
    weights = torch.stack([reader.weight[:, : len(largest)].abs().amax(dim=0) for reader in place.readers])
    seen, weight = largest.clamp(min=_LEAST), weights.amax(dim=0).clamp(min=_LEAST)
    factors = seen**place.share / weight ** (1 - place.share)
    return (factors / factors.log().mean().exp()).clamp(1 / _LARGEST, _LARGEST)


@contextmanager
def _measuring(layers: Iterable[nn.Module]) -> Iterator[dict[nn.Module, Tensor]]:
    """The largest magnitude of each feature that the layers read within this context."""
    largest: dict[nn.Module, Tensor] = {}

    def measure(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found = inputs[0].abs().flatten(0, -2).amax(dim=0)
        largest[layer] = torch.maximum(largest[layer], found) if layer in largest else found

    handles = [layer.register_forward_pre_hook(measure) for layer in layers]
    try:
        yield largest
    finally:
        for handle in handles:
            handle.remove()
