"""Make tests/data/tiny-bundle anew: python tests/support/make_tiny_bundle.py

The network has learnt nothing. Its weights are random, but scaled so that unlike images get unlike
captions of unlike lengths, which it ends by itself, and so that it looks at what is bright.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from captioner.decoding import Hypothesis, search  # noqa: E402
from captioner.image import load_pixels  # noqa: E402
from captioner.nn.model import CaptionModel, ModelOptions  # noqa: E402
from captioner.nn.stepper import TorchStepper  # noqa: E402
from captioner.options import CaptionOptions  # noqa: E402
from captioner.training.options import SourceOptions, StageOptions, TrainOptions  # noqa: E402
from captioner.vocabulary import SPECIAL, Vocabulary  # noqa: E402
from support import tiny_cnn  # noqa: E402

BUNDLE = TESTS / "data" / "tiny-bundle"
PHOTOS = sorted((TESTS.parent / "examples").glob("*.jpg"))
WORDS = ["a", "the", "on", "in", "of", "with", "and", "is", "are", "two", "three", "man", "woman", "boy", "girl", "child", "people", "dog", "cat", "horse", "bird", "car", "bus", "train", "boat", "bike", "street", "road", "field", "grass", "beach", "water", "snow", "tree", "table", "plate", "food", "pizza", "cake", "cup", "red", "blue", "green", "black", "white", "brown", "yellow", "small", "large", "young", "sitting", "standing", "walking", "running", "playing", "holding", "looking"]

CARD = """# tiny

A bundle for the tests of captioner, made by tests/support/make_tiny_bundle.py. Its weights are random:
it has learnt nothing, and its captions say nothing of the image. It looks at what is bright.
"""

OPTIONS = TrainOptions(
    name="tiny",
    model=ModelOptions(
        encoder=tiny_cnn.NAME,
        image_size=64,
        stride=16,
        features=32,
        attention_hidden=16,
        hidden=32,
        embedding=32,
    ),
    data=(SourceOptions(name="none", captions="none", images=("none",)),),
    stages=(StageOptions(name="none"),),
    weights="random",
    max_words=16,
    no_repeat_ngram=2,
)


def sample_pixels() -> np.ndarray:
    """Photos and simple pictures, uint8 (images, size, size, 3)."""
    size = OPTIONS.model.image_size
    random = np.random.default_rng(0)
    pictures = [load_pixels(path, size) for path in PHOTOS]
    pictures += [random.integers(0, 256, (size, size, 3), dtype=np.uint8) for _ in range(4)]
    pictures += [np.full((size, size, 3), value, dtype=np.uint8) for value in (0, 90, 255)]
    pictures += [spot(row, column) for row in range(4) for column in range(4)]
    return np.stack(pictures)


def spot(row: int, column: int) -> np.ndarray:
    """A bright square on grey, over one cell of the grid."""
    size, stride = OPTIONS.model.image_size, OPTIONS.model.stride
    picture = np.full((size, size, 3), 60, dtype=np.uint8)
    picture[row * stride : (row + 1) * stride, column * stride : (column + 1) * stride] = 255
    return picture


@torch.no_grad()
def make_model(seed: int, pixels: np.ndarray) -> CaptionModel:
    torch.manual_seed(seed)
    model = CaptionModel(OPTIONS.model, len(WORDS) + len(SPECIAL)).eval()
    for parameter in model.encoder.backbone.parameters():
        if parameter.dim() > 1:
            torch.nn.init.kaiming_normal_(parameter, nonlinearity="relu")
        else:
            parameter.zero_()
    decoder = model.decoder
    grid = model.encoder(torch.from_numpy(pixels))
    mean = grid.mean(dim=1)
    for linear, scale in ((decoder.mean, 1.0), (decoder.initial, 2.0)):
        torch.nn.init.normal_(linear.weight)
        out = mean @ linear.weight.t()
        linear.weight.mul_(scale / out.std(dim=0).unsqueeze(1))
        linear.bias.copy_(-(mean @ linear.weight.t()).mean(dim=0))
    torch.nn.init.normal_(decoder.embedding.weight, std=0.8)
    for weight in (decoder.lstm.weight_ih_l0, decoder.lstm.weight_hh_l0):
        torch.nn.init.normal_(weight, std=0.5)
    torch.nn.init.normal_(decoder.output.weight, std=0.2)
    decoder.bias[Vocabulary.end_id] = END_BIAS
    _look_at_bright(model, grid, pixels)
    return model


def _look_at_bright(model: CaptionModel, grid: torch.Tensor, pixels: np.ndarray) -> None:
    """Give half of the attention's hidden units the brightness of a cell, as well as the grid tells it."""
    rows, columns = OPTIONS.model.grid
    stride = OPTIONS.model.stride
    bright = pixels.reshape(len(pixels), rows, stride, columns, stride, 3).mean(axis=(2, 4, 5)) / 128 - 1
    cells = torch.cat([grid.flatten(0, 1), torch.ones(grid[..., 0].numel(), 1)], dim=1)
    direction = torch.linalg.lstsq(cells, torch.from_numpy(bright).float().reshape(-1, 1)).solution[:, 0]
    attention = model.decoder.attention
    half = attention.query.weight.shape[0] // 2
    attention.key.weight[:half] = direction[:-1]
    attention.key.bias[:half] = direction[-1]
    attention.score.weight[0, :half] = 1.0


@torch.inference_mode()
def caption(model: CaptionModel, pixels: np.ndarray) -> list[Hypothesis]:
    options = CaptionOptions(beam_size=3, max_words=40, no_repeat_ngram=2, length_normalization=0.0)
    stepper = TorchStepper(model.decoder, *model.encode(torch.from_numpy(pixels)))
    return [best[0] for best in search(stepper, len(pixels), options)]


END_BIAS = 0.0


def main() -> None:
    pixels = sample_pixels()
    vocabulary = Vocabulary([*SPECIAL, *WORDS])
    global END_BIAS
    rated = []
    for seed in range(200):
        for END_BIAS in (0.0, 1.0, 2.0):
            found = caption(make_model(seed, pixels), pixels)
            lengths = [len(one.tokens) for one in found]
            good = sum(3 <= n <= 12 for n in lengths)
            rated.append(
                (
                    good,
                    len({one.tokens for one in found}),
                    len(set(lengths)),
                    seed,
                    END_BIAS,
                    min(lengths),
                    max(lengths),
                )
            )
    rated.sort(reverse=True)
    print(len(pixels), *rated[:15], sep="\n")
    seed, END_BIAS = rated[0][3:5]
    for one in caption(make_model(seed, pixels), pixels):
        print(
            round(one.log_prob, 2),
            " ".join(vocabulary.decode(one.tokens)),
            [int(a.argmax()) for a in one.attention],
        )


if __name__ == "__main__":
    main()
