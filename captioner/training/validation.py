"""Free-running captions of the validation images, and their scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from captioner.decoding import Hypothesis, search
from captioner.metrics import evaluate_captions
from captioner.nn.model import CaptionModel
from captioner.nn.stepper import TorchStepper
from captioner.options import CaptionOptions
from captioner.training.cache import FeatureCache, trained_part
from captioner.training.data import Example, chunks
from captioner.vocabulary import Vocabulary

BATCH = 64


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
    model.eval()
    found: list[Hypothesis] = []
    for images in chunks(count, BATCH):
        as_it_is = torch.zeros_like(images)
        maps, mask = cache.maps(images, as_it_is, device), cache.masks(images, as_it_is, device)
        grid = trained_part(model.encoder, maps, frozen_segments, 3 - frozen_segments, mask)
        stepper = TorchStepper(model.decoder, *model.decoder.prepare(grid, mask))
        found += [best[0] for best in search(stepper, len(images), options)]
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
