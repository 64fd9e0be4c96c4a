"""Pixels that are slightly changed."""

from __future__ import annotations

import torch

from captioner.training.data.augment import NOISE, OFFSET, _blurred, disturb


def ramps(batch: int, side: int = 224) -> torch.Tensor:
    """Photos whose red says how far to the right a place is, green how far down; uint8 of 20 to 220."""
    places = (torch.arange(side) + 0.5) / side * 200 + 20
    red, green = torch.meshgrid(places, places, indexing="xy")
    photo = torch.stack([red, green, torch.full_like(red, 128)], dim=-1)
    return photo.round().to(torch.uint8).expand(batch, -1, -1, -1)


def test_a_share_of_the_photos_is_disturbed_and_each_time_otherwise() -> None:
    torch.manual_seed(0)
    photos = ramps(400, side=32)
    shown = disturb(photos, 0.6)
    assert shown.dtype == torch.uint8 and shown.shape == photos.shape
    same = (shown == photos).flatten(1).all(dim=1)
    assert abs(float((~same).float().mean()) - 0.6) < 0.06
    assert not torch.equal(shown, disturb(photos, 0.6))
    assert torch.equal(disturb(photos, 0.0), photos)
    assert not (disturb(photos, 1.0) == photos).flatten(1).all(dim=1).any()


def test_everything_stays_within_two_hundredths_of_its_place() -> None:
    """Found from the slope and middle of the ramps, whatever the light."""
    torch.manual_seed(0)
    photos = ramps(64)
    shown = disturb(photos, 1.0).float()
    light, offset = [], []
    for photo in shown:  # blue is the same everywhere; red and green are that plus where it is
        level = photo[..., 2].mean()
        light.append((photo[..., 0] - photo[..., 1]).diff(dim=1).mean() * 224 / 200)
        offset.append(level - light[-1] * 128)
    factor = torch.stack(light)
    assert 0.85 < float(factor.min()) < 0.93 and 1.07 < float(factor.max()) < 1.13
    assert float(torch.stack(offset).abs().max()) < OFFSET + 4  # of the scale, up to 2% of 128
    clean = (shown[..., 0] - shown[..., 2]) / factor.view(-1, 1, 1) + 128 - 20
    places = clean.mean(dim=1) / 200  # of columns
    moved = (places - (torch.arange(224) + 0.5) / 224).abs()
    assert 0.004 < float(moved.max()) < 0.023  # with what noise is left in the mean of a column


def test_noise_is_bounded() -> None:
    torch.manual_seed(0)
    flat = torch.full((64, 224, 224, 3), 128, dtype=torch.uint8)
    noise = disturb(flat, 1.0).float().std(dim=(1, 2, 3))
    assert float(noise.min()) < 0.5 < NOISE - 1 < float(noise.max()) < NOISE + 0.1


def test_half_of_the_photos_are_blurred() -> None:
    torch.manual_seed(0)
    photos = torch.rand(200, 3, 224, 224)
    contrast = _blurred(photos).std(dim=(1, 2, 3)) / photos.std(dim=(1, 2, 3))
    sharp = contrast > 1 - 1e-6
    assert abs(float(sharp.float().mean()) - 0.5) < 0.1
    assert float(contrast.min()) < 0.6 < 0.9 < float(contrast[~sharp].max())
