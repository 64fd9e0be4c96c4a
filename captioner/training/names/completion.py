"""Generates whole captions for labelled photos. Each contains the photo's label word in a natural position.

A frozen copy of the starting model captions the photos. The label word replaces the word that this copy uses
for the same thing (`captioner.training.names.stand_ins`). If the caption has no such word, a constrained beam
search finds a caption that contains the label word (Anderson et al. 2017, arXiv:1612.00576). Such captions
teach new words in sentences (Anderson et al. 2018, arXiv:1806.06004).
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import torch

from captioner.model.search import search
from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import CaptionModel
from captioner.nn.stepper import TorchStepper
from captioner.options import CaptionOptions
from captioner.training.data.feature_cache import FeatureCache
from captioner.training.data.stored_arrays import at_once
from captioner.training.names.stand_ins import count_stand_ins, named_things, replaced
from captioner.words.nouns import with_article
from captioner.words.tokens import tokenize

CONSTRAINED_BEAM = 8
"""A wider beam finds more captions with the word; the likeliest of them more often describes it."""
NEVER = -1e4
"""Added to the logits of words that may not be said."""


class Completion:
    """Completes the captions of labelled photos with one model."""

    def __init__(
        self,
        model: CaptionModel,
        features: FeatureCache,
        frozen_segments: int,
        vocabulary: Vocabulary,
        known: int,
        options: CaptionOptions,
        device: torch.device,
    ) -> None:
        """`model` is in evaluation mode, `features` those of its frozen segments, `options` resolved. The
        model was trained with the first `known` words of the vocabulary."""
        self._model, self._features, self._frozen_segments = model, features, frozen_segments
        self._vocabulary, self._known, self._device = vocabulary, known, device
        self._options = options
        self._batch = at_once(device)

    def complete(self, words: Mapping[int, Sequence[str]]) -> Iterator[tuple[int, list[int]]]:
        """For each image, the tokens of a caption with the first of its words. The vocabulary must know that
        word; the other words are synonyms and more general names."""
        photos: dict[str, list[int]] = defaultdict(list)
        for image, [word, *_] in words.items():
            photos[word].append(image)
        assert self._options.beam_size
        # In batches of photos of any word: a word of its own has too few for a GPU.
        in_order = [image for images in photos.values() for image in images]
        found = self._search(in_order, self._options.beam_size)
        for word, images in photos.items():
            relatives = sorted({" ".join(tokenize(other)) for image in images for other in words[image][1:]})
            free = dict(zip(images, found, strict=False))  # in this order, none is taken that is not used
            yield from self._of_word(word, free, relatives)

    def _of_word(
        self, word: str, free: Mapping[int, Sequence[Sequence[int]]], relatives: Sequence[str]
    ) -> Iterator[tuple[int, list[int]]]:
        """`free`: the captions of the word's photos, best first, that need not contain it."""
        *modifiers, head = self._vocabulary.encode(word)
        stand_ins = count_stand_ins((self._words(found[0]) for found in free.values()), relatives)
        left = []
        for image, found in free.items():
            chosen = next((list(caption) for caption in found if caption.count(head) == 1), None)
            if chosen is None and (place := replaced([*map(self._words, found)], word, stand_ins, relatives)):
                number, thing = place
                chosen = [*found[number][: thing.start], head, *found[number][thing.end :]]
            if chosen is None:
                left.append(image)
            else:
                yield image, with_phrase(chosen, modifiers, head, with_article(word), self._vocabulary)
        for image, found in zip(left, self._search(left, CONSTRAINED_BEAM, head), strict=True):
            chosen = min(found, key=lambda caption: self._besides(caption, head))
            yield image, with_phrase(chosen, modifiers, head, with_article(word), self._vocabulary)

    @torch.inference_mode()
    def _search(
        self, images: Sequence[int], beams: int, head: int | None = None
    ) -> Iterator[list[list[int]]]:
        """The tokens of the best captions of each image, best first. All contain `head`, if given; none
        contains another word that the model was not trained with."""
        bias = torch.zeros(len(self._vocabulary), device=self._device)
        bias[self._known :] = NEVER
        if head is not None:
            bias[head] = 0.0
        options = dataclasses.replace(self._options, beam_size=beams, alternatives=beams - 1)
        for part in torch.tensor(images, dtype=torch.int64).split(self._batch) if images else ():
            seen = self._features.outputs(self._model.encoder, self._frozen_segments, part, self._device)
            stepper = TorchStepper(self._model.decoder, *self._model.prepare(*seen), bias)
            for several in search(stepper, len(part), options, [] if head is None else [[head]]):
                yield [list(one.tokens) for one in several]

    def _words(self, tokens: Sequence[int]) -> list[str]:
        return list(self._vocabulary.decode(tokens))

    def _besides(self, tokens: Sequence[int], head: int) -> tuple[int, int, bool, int]:
        """A sort key, lowest for the best caption: repeats of the word, other things named, whether "of"
        comes before the word, and the word's position."""
        words, place = self._words(tokens), tokens.index(head)
        named = named_things(words)
        things = sum(not one.is_person and head not in tokens[one.start : one.end] for one in named)
        return tokens.count(head), things, words[:place][-1:] == ["of"], place


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
