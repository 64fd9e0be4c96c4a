"""Finds what pictures of some kinds have in common that others do not."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

ROUNDS = 20
"""Iterations of k-means."""
STEPS, INSIDE, OUTSIDE = 600, 256, 768
"""Steps of Adam, and how many pictures of the kinds and how many others each step takes."""
RATE, SHARPENING = 3e-3, 0.1
"""Learning rates of the prototypes, and of the factor that turns similarities into logits."""
NOISE = 0.02
"""Standard deviation of what is added to each feature, against overfitting."""
HELD_OUT = 10
"""Of so many others, one is left out of the fit. These show how near others come."""


@torch.enable_grad()
def prototypes(inside: Tensor, outside: Tensor, number: int, begin: float, seed: int) -> Tensor:
    """Directions that tell pictures `inside`, float (pictures, channels) each of length 1, from those
    `outside`: float (`number`, channels), all of one length, so that most products with those inside, and
    hardly any with those outside, are above `begin`.

    They start as the centres of k-means, and are fitted as a logistic regression on the greatest product.
    """
    generator = torch.Generator().manual_seed(seed)
    fitted = torch.arange(len(outside)) % HELD_OUT > 0

    def some(pictures: Tensor, count: int) -> Tensor:
        return pictures[torch.randint(len(pictures), (count,), generator=generator)]

    centers = inside[torch.randperm(len(inside), generator=generator)[:number]]
    for _ in range(ROUNDS):
        nearest = (inside @ centers.T).argmax(dim=1)
        sums = torch.zeros_like(centers).index_add_(0, nearest, inside)
        empty = torch.bincount(nearest, minlength=number) == 0
        centers = torch.where(empty.unsqueeze(1), centers, F.normalize(sums, dim=1))
    centers = centers.clone().requires_grad_(True)
    sharpness, border = (torch.tensor(value, requires_grad=True) for value in (20.0, 0.4))
    optimizer = torch.optim.Adam(
        [
            {"params": [centers, border], "lr": RATE},
            {"params": [sharpness], "lr": SHARPENING},
        ]
    )
    for _ in range(STEPS):
        directions = F.normalize(centers, dim=1)
        noisy = some(inside, INSIDE)
        noisy = F.normalize(noisy + NOISE * torch.randn(noisy.shape, generator=generator), dim=1)
        right, wrong = (
            sharpness * ((pictures @ directions.T).amax(dim=1) - border)
            for pictures in (noisy, some(outside[fitted], OUTSIDE))
        )
        loss = F.softplus(-right).mean() + 2 * F.softplus(wrong).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        directions = F.normalize(centers, dim=1)
        nearest = (outside[~fitted] @ directions.T).max()
        return directions * begin / torch.maximum(nearest, border)
