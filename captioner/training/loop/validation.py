"""Free-running captions of the validation images, their scores, and how likely the references are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.metrics import evaluate_captions
from captioner.metrics.naming import has_phrase
from captioner.model.search import search
from captioner.model.search.history import Hypothesis
from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import CaptionModel
from captioner.nn.stepper import TorchStepper
from captioner.options import CaptionOptions
from captioner.training.data.batches import CAPTIONS_PER_GROUP, encode, pad
from captioner.training.data.examples import Example
from captioner.training.data.feature_cache import FeatureCache
from captioner.training.loop.calibrate import Said
from captioner.training.objectives.likelihood import log_likelihoods
from captioner.words.tokens import tokenize

BATCH, BATCH_ON_GPU = 64, 512


@torch.inference_mode()
def validate(
    model: CaptionModel,
    cache: FeatureCache,
    examples: Sequence[Example],
    vocabulary: Vocabulary,
    frozen_segments: int,
    options: CaptionOptions,
    device: torch.device,
) -> tuple[list[Said], dict[str, dict[str, float]]]:
    """The caption of each image of a cache, found with resolved `options`, and for each source the scores of
    `score` and `perplexity`: that of a word of each image's first five references, by teacher forcing
    without a checklist. Perplexity distinguishes models that CIDEr cannot.

    Raises `DataError` for a model that has diverged: with log-probabilities that are not finite, an image has
    no caption."""
    assert options.max_words  # resolved
    model.eval()
    found: list[Hypothesis] = []
    certain: list[float | None] = []
    totals: dict[str, Tensor] = {}
    for images in torch.arange(len(examples)).split(BATCH if device.type == "cpu" else BATCH_ON_GPU):
        outputs, mask = cache.outputs(model.encoder, frozen_segments, images, device)
        memory, state = model.prepare(outputs, mask)
        certainty = model.certainty(outputs)
        certain += [None] * len(images) if certainty is None else certainty.tolist()
        for hypotheses in search(TorchStepper(model.decoder, memory, state), len(images), options):
            if not hypotheses:
                raise DataError(
                    "the model captions no validation image: try a smaller learning_rate, in another folder"
                )
            found.append(hypotheses[0])
        shown = [examples[i] for i in images.tolist()]
        if not any(example.image.captions for example in shown):
            continue
        captions = _references(shown, vocabulary, options.max_words).to(device)
        logits, _ = model.decoder(captions[:, :, :-1], memory, state)
        for example, total in zip(shown, log_likelihoods(logits, captions[:, :, 1:]), strict=True):
            totals[example.source] = totals.get(example.source, torch.zeros_like(total)) + total
    scores = score(examples, found, vocabulary)
    for source, (log_probs, words) in totals.items():
        if words:
            scores[source]["perplexity"] = float(torch.exp(-log_probs / words))
    said = [
        Said(" ".join(vocabulary.decode(one.tokens)), one.log_prob, certainty)
        for one, certainty in zip(found, certain, strict=True)
    ]
    return said, scores


def _references(examples: Sequence[Example], vocabulary: Vocabulary, max_words: int) -> Tensor:
    """The first references of each image, int64 (images, captions, length), padded."""
    texts = [example.image.captions[:CAPTIONS_PER_GROUP] for example in examples]
    return pad([[encode(text, vocabulary, max_words) for text in own] for own in texts])


def score(
    examples: Sequence[Example], found: Sequence[Hypothesis], vocabulary: Vocabulary
) -> dict[str, dict[str, float]]:
    """Scores of each source by its name, times 100, with the mean length in words. For labelled photos:
    the share of captions with one of the words, "named", and with the most exact one, "exactly"."""
    scores = {}
    for source in dict.fromkeys(example.source for example in examples):
        rows = [i for i, example in enumerate(examples) if example.source == source]
        candidates = {examples[i].key: " ".join(vocabulary.decode(found[i].tokens)) for i in rows}
        references = {examples[i].key: examples[i].image.captions for i in rows}
        if any(references.values()):
            scores[source] = evaluate_captions(candidates, references, meteor=False).to_dict()
        else:
            scores[source] = _naming([(examples[i], candidates[examples[i].key].split()) for i in rows])
        scores[source]["length"] = float(np.mean([len(found[i].tokens) for i in rows]))
    return scores


def _naming(captions: Sequence[tuple[Example, Sequence[str]]]) -> dict[str, float]:
    said = [
        [has_phrase(words, tokenize(word)) for word in example.image.words] for example, words in captions
    ]
    return {
        "named": 100 * float(np.mean([any(one) for one in said])),
        "exactly": 100 * float(np.mean([one[0] for one in said])),
    }
