"""CLIP beside a convolutional network."""

import torch
from support.tiny_clip import NAME, SIZES

from captioner.nn.encoder import build_backbone
from captioner.nn.encoder.beside import pair
from captioner.nn.encoder.clip import ClipEncoder


def test_channels_of_both_stand_side_by_side() -> None:
    vision, convolutional = (
        build_backbone(NAME, None).eval(),
        build_backbone("efficientnet_lite0", None).eval(),
    )
    both = pair(vision, convolutional).eval()
    side = SIZES[NAME].image_size
    pixels = torch.randint(0, 256, (2, side, side, 3), dtype=torch.uint8)
    with torch.no_grad():
        fine = both.segments[1](both.segments[0](both.normalize(pixels)))
        deep = both.segments[2](fine)
        own_fine = vision.segments[0](vision.normalize(pixels))
        first = convolutional.segments[0](convolutional.normalize(pixels))
        other_fine = convolutional.segments[1](first)
        torch.testing.assert_close(fine, torch.cat([own_fine, other_fine], dim=1), rtol=1e-3, atol=1e-3)
        expected = torch.cat([vision.segments[2](own_fine), convolutional.segments[2](other_fine)], dim=1)
        torch.testing.assert_close(deep, expected, rtol=1e-3, atol=1e-3)
    assert both.channels[1:] == (fine.shape[1], deep.shape[1])


def test_the_pair_is_known_by_name() -> None:
    backbone = build_backbone("clip_lite2", None)
    assert backbone.channels == (1400, 1400, 1792)
    assert any(isinstance(part, ClipEncoder) for part in backbone.modules())
