"""The deepest features of a pretrained backbone, as a network that `build_features` can cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from captioner.nn.encoder import Backbone, build_backbone
from captioner.training.data.pixel_network import on_pixels, weights_digest
from captioner.training.data.teacher_features import CELLS


class PretrainedFeatures:
    """Runs in ONNX Runtime, several times as fast as PyTorch on a CPU; on a GPU in PyTorch."""

    normalization = "own"

    def __init__(self, encoder: str, image_size: int, device: torch.device) -> None:
        """`encoder` with its published weights. Raises `RuntimeMissingError` if they are not installed."""
        self._backbone = build_backbone(encoder, "imagenet").eval()
        self.name, self.side, self._device = f"{encoder}-pretrained", image_size, device
        self.digest = weights_digest(self._backbone)

    def __call__(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
        """uint8 (batch, side, side, 3) -> float16 "cells" (batch, channels, rows, columns)."""
        [cells] = self._compute(pixels)
        return {CELLS: cells}

    @cached_property
    def _compute(self) -> Callable[[np.ndarray], list[np.ndarray]]:
        """Made when first needed: the export takes longer than reading cached features."""
        return on_pixels(_Deepest(self._backbone), self.side, self._device)


class _Deepest(nn.Module):
    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> list[Tensor]:
        maps = self.backbone.normalize(pixels)
        for segment in self.backbone.segments:
            maps = segment(maps)
        return [maps.half()]
