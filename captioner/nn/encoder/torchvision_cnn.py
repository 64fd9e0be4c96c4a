"""Convolutional networks of torchvision as backbones: ResNet and its family, and every network that is one
chain of `features` (MobileNet, EfficientNet, ConvNeXt, RegNet, DenseNet, …)."""

from __future__ import annotations

from pathlib import Path

import torch
import torchvision
from torch import nn

from captioner.errors import DataError
from captioner.nn.encoder.backbone import Backbone, split_by_stride

# ImageNet statistics of torchvision's own weights, on the 0 to 255 scale.
_MEAN = (123.675, 116.28, 103.53)
_STD = (58.395, 57.12, 57.375)


def build(name: str, weights: str | None) -> Backbone:
    """A torchvision network without its classifier.

    `weights`: "imagenet" (torchvision's default weights, downloaded or from its cache), a path to a
    state dict of the whole network, or None for random ones. Raises `DataError` when they cannot be had.
    """
    try:
        network = torchvision.models.get_model(name, weights="DEFAULT" if weights == "imagenet" else None)
    except ValueError:
        raise DataError(f"torchvision has no network called {name}") from None
    except OSError as error:
        raise DataError(f"the weights of {name} could not be downloaded: {error}") from None
    if weights not in (None, "imagenet"):
        _load(network, Path(weights))
    try:
        segments, channels = split_by_stride(_chain(network))
    except (ValueError, RuntimeError, TypeError) as error:
        raise DataError(f"{name} cannot be an encoder: {error}") from None
    return Backbone(segments, channels, _MEAN, _STD)


def _chain(network: nn.Module) -> list[nn.Module]:
    """The layers before the pooling, in order."""
    features = getattr(network, "features", None)
    if isinstance(features, nn.Sequential):
        return list(features)
    return [
        layer
        for name, layer in network.named_children()
        if name not in ("avgpool", "fc", "classifier", "heads", "head", "aux", "AuxLogits")
    ]


def _load(network: nn.Module, path: Path) -> None:
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"cannot use the weights {path}: {reason}") from None
