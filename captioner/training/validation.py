"""Free-running captions of the validation images, their scores, and how likely the references are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from captioner.decoding import Hypothesis, search
from captioner.metrics import evaluate_captions
from captioner.nn.decoder import Tensors
from captioner.nn.model import CaptionModel
from captioner.nn.stepper import TorchStepper
from captioner.options import CaptionOptions
from captioner.training.cache import FeatureCache, trained_part
from captioner.training.data import CAPTIONS_PER_GROUP, Example, chunks, encode
from captioner.training.objectives import log_likelihoods
from captioner.vocabulary import Vocabulary

BATCH = 64


@torch.inference_mode()
def validate(
    model: CaptionModel,
    cache: FeatureCache,
    examples: Sequence[Example],
    vocabulary: Vocabulary,
    frozen_segments: int,
    options: CaptionOptions,
    device: torch.device,
) -> dict[str, dict[str, float]]:
    """What `score` says of the captions found with `options`, resolved, and `perplexity`: of a word of the
    first five references of each image, by teacher forcing without a checklist. It tells models apart that
    CIDEr cannot."""
    assert options.max_words  # resolved
    found: list[Hypothesis] = []
    totals: dict[str, Tensor] = {}
    for images, memory, state in _prepared(model, cache, len(examples), frozen_segments, device):
        found += _search(model, memory, state, len(images), options)
        shown = [examples[i] for i in images.tolist()]
        captions = _captions(shown, vocabulary, options.max_words).to(device)
        logits, _ = model.decoder(captions[:, :, :-1], memory, state)
        for example, total in zip(shown, log_likelihoods(logits, captions[:, :, 1:]), strict=True):
            totals[example.source] = totals.get(example.source, torch.zeros_like(total)) + total
    scores = score(examples, found, vocabulary)
    for source, (log_probs, words) in totals.items():
        scores[source]["perplexity"] = float(torch.exp(-log_probs / words))
    return scores


@torch.inference_mode()
def caption_cached(
    model: CaptionModel,
    cache: FeatureCache,
    count: int,
    frozen_segments: int,
    options: CaptionOptions,
    device: torch.device,
) -> list[Hypothesis]:
    """The best hypothesis for each of the first `count` images of a cache; `options` resolved."""
    found: list[Hypothesis] = []
    for images, memory, state in _prepared(model, cache, count, frozen_segments, device):
        found += _search(model, memory, state, len(images), options)
    return found


def score(
    examples: Sequence[Example], found: Sequence[Hypothesis], vocabulary: Vocabulary
) -> dict[str, dict[str, float]]:
    """Scores of each source, times 100, by its name; with the mean length in words."""
    scores = {}
    for source in dict.fromkeys(example.source for example in examples):
        rows = [i for i, example in enumerate(examples) if example.source == source]
        candidates = {examples[i].key: " ".join(vocabulary.decode(found[i].tokens)) for i in rows}
        references = {examples[i].key: examples[i].image.captions for i in rows}
        scores[source] = evaluate_captions(candidates, references, meteor=False).to_dict()
        scores[source]["length"] = float(np.mean([len(found[i].tokens) for i in rows]))
    return scores


def _prepared(
    model: CaptionModel, cache: FeatureCache, count: int, frozen_segments: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensors, Tensors]]:
    """The first images of a cache in batches: their numbers, memory and first state."""
    model.eval()
    for images in chunks(count, BATCH):
        as_it_is = torch.zeros_like(images)
        maps, mask = cache.maps(images, as_it_is, device), cache.masks(images, as_it_is, device)
        grid = trained_part(model.encoder, maps, frozen_segments, 3 - frozen_segments, mask)
        yield (images, *model.decoder.prepare(grid, mask))


def _search(
    model: CaptionModel, memory: Tensors, state: Tensors, count: int, options: CaptionOptions
) -> list[Hypothesis]:
    return [best[0] for best in search(TorchStepper(model.decoder, memory, state), count, options)]


def _captions(examples: Sequence[Example], vocabulary: Vocabulary, max_words: int) -> Tensor:
    """The first captions of the images, int64 (images, captions, length), padded in both."""
    encoded = [
        [encode(c, vocabulary, max_words) for c in example.image.captions[:CAPTIONS_PER_GROUP]]
        for example in examples
    ]
    length = max(len(caption) for captions in encoded for caption in captions)
    made = torch.full((len(encoded), max(map(len, encoded)), length), Vocabulary.pad_id)
    for row, captions in enumerate(encoded):
        for column, caption in enumerate(captions):
            made[row, column, : len(caption)] = torch.tensor(caption)
    return made
