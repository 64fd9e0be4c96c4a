"""Where cached features are while a run trains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from captioner.training.data.feature_cache import FeatureCache
from captioner.training.data.placing import place, take

CPU = torch.device("cpu")


def test_features_are_copied_to_the_device_if_all_fit(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(20, 2, 3)).astype(np.float16))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    small = np.arange(20, dtype=np.int64)
    size = mapped.nbytes + small.nbytes
    assert place([mapped, small], CPU, most=size - 1)[0] is mapped
    copied = place([mapped, small], CPU, most=size)
    images, views = torch.tensor([7, 0, 7]), torch.tensor([1, 0, 0])
    for one, other, places in zip(copied, (mapped, small), ((images, views), (images,)), strict=True):
        assert isinstance(one, torch.Tensor)
        assert torch.equal(take(one, places, CPU), take(other, places, CPU))
    # Large arrays are copied in parts.
    large = np.arange(2**25, dtype=np.int64)
    assert np.array_equal(place([large], CPU, most=large.nbytes)[0].numpy(), large)


@pytest.mark.parametrize("damaged", [{}, {2: "no image"}])
def test_a_cache_on_a_device_gives_the_same(damaged: dict[int, str]) -> None:
    maps = np.random.default_rng(0).normal(size=(5, 2, 4, 3, 3)).astype(np.float16)
    masks = np.random.default_rng(1).random((5, 2, 9)) < 0.5
    images, views = torch.tensor([3, 0, 1]), torch.tensor([0, 1, 1])
    caches = [
        FeatureCache(place([maps], CPU, most), place([masks], CPU, most)[0], damaged).select([0, 1, 3, 4])
        for most in (0, 10**6)
    ]
    (one,), (other,) = (cache.maps(images, views, CPU) for cache in caches)
    assert one.dtype == torch.float32 and torch.equal(one, other)
    assert torch.equal(*(cache.masks(images, views, CPU) for cache in caches))
