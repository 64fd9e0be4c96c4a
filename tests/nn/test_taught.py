"""Corrected photos change the captions of photos like them, and of no others."""

from __future__ import annotations

import torch

from captioner.nn.encoder.taught import RISES, SHARPNESS, TaughtPhotos


def photos(*directions: tuple[float, float, float]) -> torch.Tensor:
    """Deepest outputs whose means lie in these directions from the center."""
    return torch.tensor(directions).view(-1, 3, 1, 1).expand(-1, -1, 2, 2) + 5.0


def taught() -> TaughtPhotos:
    module = TaughtPhotos(2, 3, 4)
    module.center.fill_(5.0)
    module.keys.copy_(torch.eye(3)[:2])
    with torch.no_grad():
        module.vectors.copy_(torch.tensor([[1.0, 2.0, 3.0, 4.0], [-1.0, 0.0, 0.0, 0.0]]))
        module.quiet.fill_(0.75)
    return module


def test_a_corrected_photo_gets_its_vector() -> None:
    module = taught()
    found, near, *_ = module(photos((2.0, 0.0, 0.0), (0.0, 7.0, 0.0)))
    assert torch.equal(near, torch.ones(2, 1)) and found.shape == (2, 1, 4)
    assert torch.allclose(found[:, 0], module.vectors, atol=4 * 2.0**-SHARPNESS + 1e-5)


def test_another_photo_gets_nothing_at_all() -> None:
    module = taught()
    module.rare = torch.ones(2, 3)
    found, near, heard, rare, _ = module(photos((0.0, 0.0, 1.0), (-1.0, -1.0, 0.0), (0.4, 0.0, 1.0)))
    assert torch.equal(found, torch.zeros(3, 1, 4)) and torch.equal(near, torch.zeros(3, 1))
    assert torch.equal(heard, torch.ones(3, 1)) and torch.equal(rare, torch.zeros(3, 3))


def test_a_photo_that_is_a_little_alike_gets_a_part() -> None:
    module = taught()
    side = float(module.begin) + RISES / 2
    [[found]], *_ = module(photos((side, 0.0, (1 - side**2) ** 0.5)))
    assert torch.allclose(found, module.vectors[0] / 2, atol=1e-3)


def test_class_evidence_is_taken_away_from_photos_like_corrected_ones() -> None:
    heard = taught()(photos((2.0, 0.0, 0.0), (0.0, 0.0, 1.0))).heard
    assert torch.allclose(heard, torch.tensor([[0.25], [1.0]]))


def test_rare_words_are_those_of_the_corrections_that_a_photo_is_like() -> None:
    module = taught()
    module.rare = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    rare = module(photos((2.0, 0.0, 0.0), (0.0, 2.0, 0.0))).rare
    assert torch.allclose(rare, torch.eye(2), atol=2 * 2.0**-SHARPNESS)


def test_new_words_are_open_to_photos_like_those_of_their_lesson() -> None:
    module = taught()
    module.brings[1] = 1.0
    found = module(photos((2.0, 0.0, 0.0), (0.0, 2.0, 0.0), (0.0, 0.0, 1.0))).open
    assert torch.allclose(found, torch.tensor([[0.0], [1.0], [0.0]]), atol=2 * 2.0**-SHARPNESS)
