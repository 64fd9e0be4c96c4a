"""What is hidden of an image in training."""

from __future__ import annotations

import torch

from captioner.training.data.augment import hide


def test_a_share_of_cells_and_features_is_hidden() -> None:
    torch.manual_seed(0)
    grid, mask = hide(torch.ones(8, 500, 500), None, cells=0.3, features=0.25)
    assert mask is not None
    assert abs(float(mask.float().mean()) - 0.7) < 0.03
    kept = grid != 0
    assert abs(float(kept.float().mean()) - 0.75) < 0.03
    assert torch.allclose(grid[kept], torch.tensor(1 / 0.75))
    # A feature is gone from all cells: from a few of them, the mean of the photo would hardly notice.
    assert torch.equal(kept, kept[:, :1].expand_as(kept))
    assert not torch.equal(kept[0], kept[1])


def test_padding_stays_hidden_and_something_is_always_left() -> None:
    torch.manual_seed(0)
    padded = torch.tensor([[True, False, False, False], [True, True, True, False]])
    for _ in range(20):
        _, mask = hide(torch.zeros(2, 4, 3), padded, cells=0.9, features=0.0)
        assert mask is not None
        assert mask.any(dim=1).all()
        assert not (mask & ~padded).any()


def test_nothing_is_hidden_unless_asked() -> None:
    grid = torch.randn(2, 4, 3)
    same, mask = hide(grid, None, cells=0.0, features=0.0)
    assert torch.equal(same, grid)
    assert mask is None
