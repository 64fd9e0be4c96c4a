"""The contract of a backbone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from captioner.errors import DataError

STRIDES = (8, 16, 32)


class Backbone(nn.Module):
    """A network cut into three segments that end at strides 8, 16 and 32.

    With segments, a grid can be taken at any of these strides, and training can freeze the first segments
    (and cache their output) while it tunes the rest.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        segments: Sequence[nn.Module],
        channels: tuple[int, int, int],
        mean: tuple[float, float, float],
        std: tuple[float, float, float],
        finest: int = STRIDES[0],
    ) -> None:
        """`channels` at the end of each segment; `mean` and `std` of the pixels, on the 0 to 255 scale;
        `finest`: the smallest stride that a grid can have."""
        super().__init__()
        self.finest = finest
        self.segments = nn.ModuleList(segments)
        self.channels = channels
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    def normalize(self, pixels: Tensor) -> Tensor:
        """uint8 (batch, height, width, 3) -> float32 (batch, 3, height, width)."""
        return (pixels.permute(0, 3, 1, 2).float() - self.mean) / self.std

    def train(self, mode: bool = True) -> Backbone:
        """Keep the ImageNet statistics of batch normalisation: the batches here are too few and too small to
        estimate better ones."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    def set_stochastic_depth(self, share: float) -> None:
        """In training, leave out the last residual block for this share of the images, and those before it
        for less in proportion (Huang et al. 2016, arXiv:1603.09382). Raises `DataError` if the network has
        none that can be left out."""
        blocks = [module for module in self.modules() if isinstance(module, StochasticDepth)]
        if share and not blocks:
            raise DataError("this encoder has no residual blocks that stochastic_depth could leave out")
        for number, block in enumerate(blocks, 1):
            block.p = share * number / len(blocks)


def split_by_stride(layers: list[nn.Module]) -> tuple[list[nn.Sequential], tuple[int, int, int]]:
    """Cut a chain of layers where its stride passes 8, 16 and 32; also the channels at each cut.

    The strides are measured by sending one blank image through the chain. Layers before stride 8 belong to
    the first segment. Raises `ValueError` if the chain does not reach the three strides.
    """
    segments: list[list[nn.Module]] = [[], [], []]
    channels = [0, 0, 0]
    with torch.no_grad():
        maps = torch.zeros(1, 3, 64, 64)
        for layer in layers:
            layer.eval()
            maps = layer(maps)
            stride = max(STRIDES[0], 64 // maps.shape[-1])
            if stride not in STRIDES:
                raise ValueError(f"a layer has stride {stride}; a backbone may go to 32 at most")
            index = STRIDES.index(stride)
            segments[index].append(layer)
            channels[index] = maps.shape[1]
    if not all(segments):
        raise ValueError("the network does not reach the strides 8, 16 and 32")
    return [nn.Sequential(*segment) for segment in segments], (channels[0], channels[1], channels[2])
