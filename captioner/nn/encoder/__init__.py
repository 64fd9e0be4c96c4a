"""Image encoders. A new family is one file with a `build(name, weights) -> Backbone` and one line here."""

from __future__ import annotations

from torch import Tensor

from captioner.errors import DataError
from captioner.nn.encoder import beside, clip, efficientnet_lite, torchvision_cnn
from captioner.nn.encoder.backbone import STRIDES, Backbone
from captioner.nn.encoder.colors import ColorHistogram
from captioner.nn.encoder.grid import GridEncoder
from captioner.nn.encoder.refiner import GridRefiner


def build_backbone(name: str, weights: str | None = "imagenet") -> Backbone:
    """The backbone called `name`: efficientnet_lite0 to 2, clip_vit_b16, clip_lite2 (both side by side), or
    any convolutional network of torchvision.

    `weights` is "imagenet", a path, or None for random ones. Raises `DataError` or `RuntimeMissingError`.
    """
    families = ((efficientnet_lite.SCALES, efficientnet_lite), (clip.SIZES, clip), (beside.PAIRS, beside))
    for known, family in families:
        if name in known:
            return family.build(name, weights)
    return torchvision_cnn.build(name, weights)


def pretrained_classifier(name: str) -> tuple[Tensor, Tensor]:
    """Weight (classes, channels) and bias (classes) of the linear classifier on the mean of the last output.

    Raises `DataError` for a backbone without one, `RuntimeMissingError` when its weights are not installed.
    """
    if name not in efficientnet_lite.SCALES:
        raise DataError(
            f"[model.bonus] classes needs an encoder of {', '.join(efficientnet_lite.SCALES)}, not {name}"
        )
    return efficientnet_lite.classifier(name)


__all__ = [
    "STRIDES",
    "Backbone",
    "ColorHistogram",
    "GridEncoder",
    "GridRefiner",
    "build_backbone",
    "pretrained_classifier",
]
