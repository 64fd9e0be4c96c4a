"""A made-up language whose probabilities and maps depend on all that was said: what a search is tried on."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from captioner.model.search.choices import Choices, Floats, Ints, StepRequest, choose_among
from captioner.model.search.history import Hypothesis
from captioner.model.vocabulary import SPECIAL, Vocabulary

END = Vocabulary.end_id
FIRST_WORD = len(SPECIAL)
CELLS = 5


@dataclass(frozen=True)
class Language:
    """Random, but the same for the same image and history."""

    words: int = 3
    end_bias: float = 0.0
    peak: float = 1.5
    """How far from uniform it is."""

    @property
    def size(self) -> int:
        return FIRST_WORD + self.words

    def log_probs(self, image: int, history: tuple[int, ...]) -> Floats:
        """(size,) after `history`, without the start token."""
        random = np.random.default_rng([image, *history, 9])
        logits = self.peak * random.standard_normal(self.size)
        logits[END] += self.end_bias
        return (logits - np.log(np.exp(logits).sum())).astype(np.float32)

    def attention(self, image: int, history: tuple[int, ...]) -> Floats:
        """(CELLS,), no two histories alike: it tells what it was looked at after."""
        values = np.random.default_rng([image, *history, 7]).random(CELLS)
        return (values / values.sum()).astype(np.float32)

    def hypothesis(self, image: int, tokens: tuple[int, ...]) -> Hypothesis:
        """What a search must say of a caption, end token aside."""
        histories = [tokens[:length] for length in range(len(tokens) + 1)]
        scores = (
            float(self.log_probs(image, history)[token])
            for history, token in zip(histories, [*tokens, END], strict=True)
        )
        maps = tuple(self.attention(image, history) for history in histories[:-1])
        return Hypothesis(tokens, tuple(scores), maps)

    def all_captions(self, image: int, max_words: int) -> list[Hypothesis]:
        """Every caption of 1 to `max_words` words."""
        words = range(FIRST_WORD, self.size)
        return [
            self.hypothesis(image, tokens)
            for length in range(1, max_words + 1)
            for tokens in itertools.product(words, repeat=length)
        ]


class Speaker:
    """A `Stepper` whose state is the history itself; it counts what it is asked."""

    def __init__(self, language: Language, images: Sequence[int]) -> None:
        self.language, self.images = language, images
        self.steps = 0

    def start(self, beams: int) -> list[list[tuple[int, ...]]]:
        return [[() for _ in range(beams)] for _ in self.images]

    def step(
        self, tokens: Ints, state: list[list[tuple[int, ...]]]
    ) -> tuple[Floats, Floats, list[list[tuple[int, ...]]]]:
        self.steps += 1
        assert tokens.shape == (len(self.images), len(state[0]))
        heard = [
            [(*history, int(token)) for history, token in zip(beams, row, strict=True)]
            for beams, row in zip(state, tokens, strict=True)
        ]
        pairs = [(image, [h[1:] for h in beams]) for image, beams in zip(self.images, heard, strict=True)]
        log_probs = [[self.language.log_probs(image, h) for h in beams] for image, beams in pairs]
        attention = [[self.language.attention(image, h) for h in beams] for image, beams in pairs]
        return np.array(log_probs), np.array(attention), heard

    def choose(
        self, tokens: Ints, state: list[list[tuple[int, ...]]], request: StepRequest
    ) -> tuple[Choices, Floats, list[list[tuple[int, ...]]]]:
        log_probs, attention, state = self.step(tokens, state)
        return choose_among(log_probs, request), attention, state

    def select(self, images: Ints) -> Speaker:
        smaller = copy.copy(self)
        smaller.images = [self.images[image] for image in images]
        return smaller

    def keep(
        self, state: list[list[tuple[int, ...]]], images: Ints
    ) -> tuple[Speaker, list[list[tuple[int, ...]]]]:
        return self.select(images), [state[image] for image in images]

    def reorder(self, state: list[list[tuple[int, ...]]], parents: Ints) -> list[list[tuple[int, ...]]]:
        return [[beams[parent] for parent in row] for beams, row in zip(state, parents, strict=True)]
