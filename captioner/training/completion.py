"""Whole captions for labelled photos: the best that the start finds among those that have the photo's word.

A constrained beam search (Anderson et al. 2017, arXiv:1612.00576) by a frozen copy of the model that a run
starts from, in which a new word stands for its relatives. Such captions teach new words in sentences
(Anderson et al. 2018, arXiv:1806.06004).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import torch

from captioner.model.search import search
from captioner.model.vocabulary import Vocabulary, tokenize
from captioner.nn.model import CaptionModel
from captioner.nn.stepper import TorchStepper
from captioner.options import CaptionOptions
from captioner.training.cache import FeatureCache, trained_stages
from captioner.training.naming import beginning

BATCH = 32


@torch.inference_mode()
def complete(
    model: CaptionModel,
    features: FeatureCache,
    frozen_segments: int,
    words: Mapping[int, str],
    vocabulary: Vocabulary,
    options: CaptionOptions,
    device: torch.device,
) -> Iterator[tuple[int, list[int]]]:
    """For each image the tokens of a caption that has its word, which the vocabulary must know.

    `model` is in evaluation mode, `features` those of its frozen segments, `options` resolved.
    """
    photos = defaultdict(list)
    for image, word in words.items():
        photos[word].append(image)
    for word, images in photos.items():
        *modifiers, head = vocabulary.encode(word)
        for part in torch.tensor(images).split(BATCH):
            maps = features.maps(part, torch.zeros_like(part), device)
            mask = features.masks(part, torch.zeros_like(part), device)
            stages = trained_stages(model.encoder, maps, frozen_segments, 0)
            stepper = TorchStepper(model.decoder, *model.prepare(stages, mask))
            found = search(stepper, len(part), options, [[head]])
            for image, [best, *_] in zip(part.tolist(), found, strict=True):
                yield image, with_phrase(list(best.tokens), modifiers, head, beginning(word), vocabulary)


def with_phrase(
    tokens: Sequence[int], modifiers: Sequence[int], head: int, phrase: str, vocabulary: Vocabulary
) -> list[int]:
    """The caption with the whole phrase in place of its head, and the article that the phrase takes: "on a
    panda" becomes "on a giant panda", "a owl" becomes "an owl"."""
    place = tokens.index(head)
    before = list(tokens[:place])
    while before and before[-1] in modifiers:
        before.pop()
    articles = set(vocabulary.encode("a an"))
    name = vocabulary.encode(phrase)
    if tokenize(phrase)[0] in ("a", "an"):
        if before and before[-1] in articles:
            before.pop()
        elif before:  # "the owl", "white owl": what stands there is kept
            name = name[1:]
    elif before and before[-1] in articles:
        before.pop()
    return [*before, *name, *tokens[place + 1 :]]
