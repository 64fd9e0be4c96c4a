"""Make tests/data/tiny-bundle anew: cd tests && python -m support.make_tiny_bundle

The network has learnt nothing of the world: 31 pictures by heart, each with a made-up sentence of 3 to 12
words, so that unlike images get unlike captions which end by themselves. It looks at what is bright.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from captioner.captioner import Captioner
from captioner.export.bundle import export_bundle
from captioner.images.opening import load_pixels
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.options import CaptionOptions
from captioner.training.config.train_options import SourceOptions, StageOptions, TrainOptions
from captioner.training.objectives.cross_entropy import cross_entropy
from captioner.training.weights import checkpoint
from support import tiny_cnn

TESTS = Path(__file__).parents[1]
BUNDLE = TESTS / "data" / "tiny-bundle"
PHOTOS = sorted((TESTS.parent / "examples").glob("*.jpg"))
SIZE, STRIDE = 64, 16

WORDS = """
adjectives    black white brown red green blue yellow small large young old wooden
nouns         man woman boy girl dog cat horse bird car bus train boat bike table plate pizza cake cup ball
places        street road field grass beach water snow tree room city hill river
verbs         sitting standing walking running playing lying waiting
prepositions  on in near behind
small         a is the with
"""
KINDS = {kind: words for kind, *words in map(str.split, WORDS.strip().splitlines())}

OPTIONS = TrainOptions(
    name="tiny",
    model=ModelOptions(
        encoder=tiny_cnn.NAME,
        image_size=SIZE,
        stride=STRIDE,
        features=32,
        attention_hidden=16,
        hidden=40,
        embedding=32,
        dropout=0.0,
    ),
    data=(SourceOptions(name="pictures of the tests", captions="made up", images=("none",)),),
    stages=(StageOptions(name="by heart"),),
    weights="random",
    search=CaptionOptions(max_words=16),
)

CARD = """# tiny

A bundle for the tests of captioner, made by tests/support/make_tiny_bundle.py. It knows 31 pictures by
heart, each with a made-up sentence; its captions say nothing true of any image. It looks at what is bright.
"""


def pictures() -> np.ndarray:
    """Photos, noise, plain colours and bright spots, uint8 (images, SIZE, SIZE, 3)."""
    random = np.random.default_rng(0)
    found = [load_pixels(path, SIZE) for path in PHOTOS]
    found += [random.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8) for _ in range(4)]
    found += [np.full((SIZE, SIZE, 3), value, dtype=np.uint8) for value in (0, 90, 255)]
    for row in range(0, SIZE, STRIDE):
        for column in range(0, SIZE, STRIDE):
            found.append(np.full((SIZE, SIZE, 3), 60, dtype=np.uint8))
            found[-1][row : row + STRIDE, column : column + STRIDE] = 255
    return np.stack(found)


def sentences(count: int) -> list[str]:
    """Made-up sentences, of 3, 5, 8 and 12 words in turn, all different."""
    random = np.random.default_rng(1)
    made: list[str] = []
    while len(made) < count:
        drawn = {kind: random.permutation(words).tolist() for kind, words in KINDS.items()}
        parts = [
            f"a {drawn['adjectives'][0]} {drawn['nouns'][0]}",
            f"is {drawn['verbs'][0]}",
            f"{drawn['prepositions'][0]} the {drawn['places'][0]}",
            f"with a {drawn['adjectives'][1]} {drawn['nouns'][1]}",
        ]
        sentence = " ".join(parts[: 1 + len(made) % 4])
        if sentence not in made:
            made.append(sentence)
    return made


def learn(pixels: np.ndarray, texts: list[str], steps: int = 500) -> tuple[CaptionModel, Vocabulary]:
    """A model that knows these pictures, the better the longer it learns."""
    vocabulary = Vocabulary([*SPECIAL, *(word for words in KINDS.values() for word in words)])
    captions = torch.full((len(texts), 1, 14), Vocabulary.pad_id)
    for row, text in enumerate(texts):
        ids = [Vocabulary.start_id, *vocabulary.encode(text), Vocabulary.end_id]
        captions[row, 0, : len(ids)] = torch.tensor(ids)
    return make_model(torch.from_numpy(pixels), captions, len(vocabulary), steps), vocabulary


def save(path: Path, model: CaptionModel, vocabulary: Vocabulary, options: TrainOptions = OPTIONS) -> None:
    """Write a checkpoint that `export_bundle` takes."""
    contents = {"options": options.to_dict(), "vocabulary": list(vocabulary.words)}
    checkpoint.save(path, {**contents, "model": model.state_dict()})


def make_model(pixels: Tensor, captions: Tensor, vocabulary: int, steps: int) -> CaptionModel:
    torch.manual_seed(0)
    model = CaptionModel(OPTIONS.model, vocabulary)
    with torch.no_grad():
        for parameter in model.encoder.backbone.parameters():
            torch.nn.init.kaiming_normal_(parameter) if parameter.dim() > 1 else parameter.zero_()
        grid = model.encoder(pixels)
        look_at_bright(model, grid, pixels)
    model.decoder.attention.requires_grad_(False)
    trained = [parameter for parameter in model.decoder.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-3, weight_decay=0.0)
    for _ in range(steps):
        logits, _ = model.decoder(captions[:, :, :-1], *model.decoder.prepare(grid))
        loss = cross_entropy(logits, captions[:, :, 1:], label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
    return model


def look_at_bright(model: CaptionModel, grid: Tensor, pixels: Tensor) -> None:
    """Give half of the attention's hidden units the brightness of a cell, as well as the grid tells it."""
    rows, columns = OPTIONS.model.grid
    bright = pixels.view(-1, rows, STRIDE, columns, STRIDE, 3).float().mean(dim=(2, 4, 5)) / 128 - 1
    cells = torch.cat([grid, torch.ones_like(grid[..., :1])], dim=-1).flatten(0, 1)
    direction = torch.linalg.lstsq(cells, bright.view(-1, 1)).solution[:, 0]
    attention = model.decoder.attention
    half = len(attention.key.weight) // 2
    attention.key.weight[:half] = direction[:-1]
    attention.key.bias[:half] = direction[-1]
    attention.score.weight[0, :half] = 0.7
    attention.score.weight[0, half:] *= 3


def main() -> None:
    torch.set_num_threads(1)
    pixels = pictures()
    texts = sentences(len(pixels))
    model, vocabulary = learn(pixels, texts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "best.pt"
        save(path, model, vocabulary)
        shutil.rmtree(BUNDLE, ignore_errors=True)
        print(export_bundle(path, BUNDLE, card=CARD))
    captioner = Captioner.load(BUNDLE, device="cpu")
    for text, caption in zip(texts, captioner.caption_pixels(pixels), strict=True):
        looked = [int(word.attention.argmax()) for word in caption.words if word.attention is not None]
        print(f"{'  ' if caption.text == text else '! '}{caption.text} {caption.log_prob:.2f} {looked}")


if __name__ == "__main__":
    main()
