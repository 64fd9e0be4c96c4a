"""Parts of what is cached, enlarged."""

from __future__ import annotations

import torch

from captioner.training.data.augment import enlarge, random_part

CPU = torch.device("cpu")


def ramps(batch: int, side: int) -> torch.Tensor:
    """Maps of two channels that say where each place is: x and y, from -1 to 1."""
    places = (torch.arange(side) + 0.5) / side * 2 - 1
    return torch.stack(torch.meshgrid(places, places, indexing="xy")).expand(batch, -1, -1, -1)


def test_half_are_enlarged_to_a_part_that_is_large_enough() -> None:
    torch.manual_seed(0)
    [shown] = enlarge([ramps(1000, 32)], random_part(1000, 0.6, CPU))
    # From the slope of a ramp: the part's side, as a share of the whole.
    sides = (shown[:, 0, 16, 20] - shown[:, 0, 16, 12]) / (8 / 32 * 2)
    whole = sides > 1 - 1e-4
    assert abs(float(whole.float().mean()) - 0.5) < 0.05
    torch.testing.assert_close(shown[whole], ramps(int(whole.sum()), 32), rtol=0, atol=2e-4)
    areas = sides[~whole] ** 2
    assert 0.6 - 1e-3 < float(areas.min()) < 0.62
    assert float(areas.max()) > 0.98
    # Parts are from everywhere, and none reaches over the edge.
    middles = shown[~whole].mean(dim=(2, 3))
    assert float(middles.abs().max()) > 0.15
    assert (middles.abs() <= 1 - sides[~whole, None] + 1e-2).all()


def test_all_maps_show_the_same_part() -> None:
    torch.manual_seed(0)
    coarse, fine = enlarge([ramps(50, 8), ramps(50, 32)], random_part(50, 0.3, CPU))
    inside = torch.nn.functional.avg_pool2d(fine, 4)[:, :, 1:-1, 1:-1]
    torch.testing.assert_close(coarse[:, :, 1:-1, 1:-1], inside, rtol=0, atol=0.05)


def test_pixels_stay_pixels() -> None:
    torch.manual_seed(0)
    pixels = (ramps(20, 32) * 127 + 128).round().to(torch.uint8)[:, [0, 1, 1]].permute(0, 2, 3, 1)
    [shown] = enlarge([pixels], random_part(len(pixels), 0.5, CPU))
    assert shown.dtype == torch.uint8
    assert shown.shape == pixels.shape
    same = (shown == pixels).flatten(1).all(dim=1)
    assert 0 < int(same.sum()) < 20
