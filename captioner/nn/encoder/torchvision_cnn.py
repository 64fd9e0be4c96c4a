"""Convolutional networks of torchvision as backbones: ResNet and its family, and every network that is one
chain of layers (MobileNet, EfficientNet, ConvNeXt, RegNet, DenseNet, …)."""

from __future__ import annotations

from pathlib import Path

import torchvision
from torch import nn

from captioner.errors import DataError
from captioner.nn.encoder.backbone import Backbone, split_by_stride
from captioner.nn.weights import read_tensors

# ImageNet statistics of torchvision's own weights, on the 0 to 255 scale.
_MEAN = (123.675, 116.28, 103.53)
_STD = (58.395, 57.12, 57.375)


def build(name: str, weights: str | None) -> Backbone:
    """A torchvision network without its classifier.

    `weights`: "imagenet" (torchvision's default weights, downloaded or from its cache), a path to a
    state dict of the whole network, or None for random ones. Raises `DataError` if they cannot be loaded.
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
    for name in ("features", "layers"):
        if isinstance(whole := getattr(network, name, None), nn.Sequential):
            return list(whole)
    layers: list[nn.Module] = []
    for name, layer in network.named_children():
        if name == "trunk_output":  # all four stages of a RegNet
            layers += layer.children()
        elif name not in ("avgpool", "fc", "classifier", "heads", "head", "aux", "AuxLogits"):
            layers.append(layer)
    return layers


def _load(network: nn.Module, path: Path) -> None:
    try:
        network.load_state_dict(read_tensors(path))
    except (RuntimeError, AttributeError, TypeError):
        raise DataError(f"the weights {path} are not those of this network") from None
