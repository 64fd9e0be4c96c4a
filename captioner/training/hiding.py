"""Regularization: hides parts of an image, so that the decoder does not memorize images."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from captioner.nn.decoder import Tensors, every_cell


def hide_means(memory: Tensors, state: Tensors, share: float) -> tuple[Tensors, Tensors]:
    """Hide the mean of the photo, and the initial state that is read from it, of a share of the images.

    The decoder then knows the photo only through its attention, so that words depend on their maps.
    """
    if not share:
        return memory, state
    kept = (torch.rand(len(memory["mean"]), 1, device=memory["mean"].device) >= share).to(
        memory["mean"].dtype
    )
    memory = memory | {"mean": memory["mean"] * kept}
    return memory, state | {name: state[name] * kept.unsqueeze(-1) for name in ("hidden", "cell")}


def hide(grid: Tensor, mask: Tensor | None, cells: float, features: float) -> tuple[Tensor, Tensor | None]:
    """Hide a share of the cells, and zero a share of the features in all cells; the same for all captions of
    an image.

    `grid` (batch, cells, features), `mask` bool (batch, cells) or None; returns new ones. Remaining
    features are scaled up (the spatial dropout of Tompson et al. 2015, arXiv:1411.4280): hidden in single
    cells only, they would hardly change a mean over the photo. An image that would lose all cells keeps
    all. Since the image itself is changed, sampled captions and their gradient use the same policy.
    """
    if cells:
        seen = every_cell(grid) if mask is None else mask
        left = seen & (torch.rand(seen.shape, device=grid.device) >= cells)
        mask = torch.where(left.any(dim=1, keepdim=True), left, seen)
    return grid * F.dropout(torch.ones_like(grid[:, :1]), features), mask
