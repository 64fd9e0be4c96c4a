"""Image encoders. A new family is one file with a `build(name, weights) -> Backbone` and one line here."""

from __future__ import annotations

from captioner.nn.encoder import efficientnet_lite, torchvision_cnn
from captioner.nn.encoder.backbone import STRIDES, Backbone
from captioner.nn.encoder.colors import ColorHistogram
from captioner.nn.encoder.grid import GridEncoder
from captioner.nn.encoder.refiner import GridRefiner


def build_backbone(name: str, weights: str | None = "imagenet") -> Backbone:
    """The backbone called `name`: efficientnet_lite0 to 2, or any convolutional network of torchvision.

    `weights` is "imagenet", a path, or None for random ones. Raises `DataError` or `RuntimeMissingError`.
    """
    family = efficientnet_lite if name in efficientnet_lite.SCALES else torchvision_cnn
    return family.build(name, weights)


__all__ = ["STRIDES", "Backbone", "ColorHistogram", "GridEncoder", "GridRefiner", "build_backbone"]
