"""Keywords of a photo: what its caption names and the photo supports, and what else is detected.

Models with a checklist (`captioner.nn.decoder.bonus.checklist`) predict the words of captions from the photo
alone, and those with class evidence (`captioner.nn.decoder.bonus.evidence`) score the classes that words
name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from captioner.model.bundle import Bundle
from captioner.model.graphs.decoder import OnnxStepper
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.words.colors import TINTS
from captioner.words.forms import base
from captioner.words.keywords import find_things, hierarchy_of
from captioner.words.plurals import plurals, singulars
from captioner.words.things import things_by_form

MARGIN = 6.0
"""In nats: detected words with less than exp(-6), or 1/400, of the probability get no bonus."""

# Chosen on photos of COCO and labelled ones (benchmarks/keywords.py).
_SUPPORTED, _DETECTED = -5.0, -3.3
"""Log-probability of a detected word that supports one of the caption, and that adds one to it."""
_EVIDENT = 3.0
"""Mean evidence over a photo's cells that supports a word of the caption."""
_PERSON = "person"


class Detection:
    """The words that a model detects in the photos of a batch."""

    def __init__(self, vocabulary: Vocabulary, log_probs: Any, evidence: Any) -> None:
        """`log_probs` float (images, vocabulary), no less than about -6; `evidence` float (images, words),
        of the last of these words. None for what the model does not have."""
        self._vocabulary, self._log_probs, self._evidence = vocabulary, log_probs, evidence

    @classmethod
    def of(cls, bundle: Bundle, encoded: OnnxStepper) -> Self:
        weight, power = bundle.checklist
        bonus, evidence = encoded.fetch("state.checklist"), encoded.fetch("memory.evidence")
        log_probs = None
        if bonus is not None and weight > 0 < power:
            log_probs = (np.maximum(bonus[:, 0], 0) / weight) ** (1 / power) - MARGIN
        return cls(bundle.vocabulary, log_probs, None if evidence is None else evidence.mean(axis=1))

    def keywords(self, image: int, words: Sequence[str]) -> tuple[str, ...]:
        """Those of a photo, given the words of its caption: first the caption's."""
        things = list(find_things(words))
        if self._log_probs is None:
            return tuple(dict.fromkeys(thing.name for thing in things))
        said = [one.name for one in things if self._supports(image, words[one.start : one.end])]
        used = {word for one in things for word in (one.name, *words[one.start : one.end])}
        shows_person = any(hierarchy_of(one.name)[0] == _PERSON for one in things)
        more: dict[str, str] = {}  # by what all names of one thing have in common, the likeliest of them
        for name in self._detected(self._log_probs[image]):
            if used.isdisjoint(name.split()) and not (shows_person and hierarchy_of(name)[0] == _PERSON):
                more.setdefault(base(name), name)
        for word in used:
            more.pop(base(word), None)
        return tuple(dict.fromkeys([*said, *more.values()]))

    def _supports(self, image: int, phrase: Sequence[str]) -> bool:
        forms = {form for word in phrase for form in (word, *singulars(word), *plurals(word))}
        known = self._log_probs.shape[1]
        tokens = [token for form in sorted(forms) for token in self._vocabulary.forms(form)]
        first = known - (0 if self._evidence is None else self._evidence.shape[1])
        return any(
            token >= known  # came with corrections, and is said only of photos like the corrected ones
            or self._log_probs[image, token] > _SUPPORTED
            or (token >= first and self._evidence[image, token - first] > _EVIDENT)
            for token in tokens
        )

    def _detected(self, log_probs: npt.NDArray[np.floating[Any]]) -> Iterator[str]:
        """The things that are detected, the most likely first. A word for a thing and a colour is detected
        where captions have either, and its plural for the thing."""
        known = things_by_form()
        likely = np.flatnonzero(log_probs > _DETECTED)
        for token in likely[np.argsort(-log_probs[likely], kind="stable")].tolist():
            word = self._vocabulary.words[token]
            name = known.get((word,))
            if token >= len(SPECIAL) and name and word not in TINTS:
                yield name
