"""Prototypes tell pictures of some kinds from others that were not fitted."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from captioner.training.corrections.prototypes import prototypes

BEGIN = 0.5


def pictures(kinds: torch.Tensor, number: int, generator: torch.Generator) -> torch.Tensor:
    """Pictures near one of `kinds` each."""
    chosen = kinds[torch.arange(number) % len(kinds)]
    return F.normalize(chosen + 0.1 * torch.randn(chosen.shape, generator=generator), dim=1)


def test_new_pictures_of_the_kinds_are_told_from_new_others() -> None:
    generator = torch.Generator().manual_seed(0)
    screens, photos = (torch.randn(5, 64, generator=generator) for _ in range(2))
    keys = prototypes(pictures(screens, 150, generator), pictures(photos, 150, generator), 8, BEGIN, 0)
    assert keys.shape == (8, 64)
    assert torch.allclose(keys.norm(dim=1), keys.norm(dim=1)[:1].expand(8), rtol=1e-4)

    def nearest(kinds: torch.Tensor) -> torch.Tensor:
        return F.linear(pictures(kinds, 50, generator), keys).amax(dim=1)

    assert (nearest(screens) > BEGIN).float().mean() > 0.9
    assert (nearest(photos) < BEGIN).float().mean() > 0.9
