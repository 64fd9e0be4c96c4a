"""Phrases that captions never contain, such as "next to a field", which a model may say far more often than
people do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from captioner.model.search.choices import Ints
from captioner.model.vocabulary import Vocabulary


class Avoided:
    """Keeps the phrases of a model out of captions: the last word of one may not follow the others."""

    def __init__(self, phrases: Iterable[Sequence[int]] = ()) -> None:
        """`phrases` as token ids, two or more each."""
        by_length: dict[int, list[Sequence[int]]] = {}
        for phrase in phrases:
            by_length.setdefault(len(phrase), []).append(phrase)
        self._groups = [np.array(group, dtype=np.int64) for group in by_length.values()]

    def __bool__(self) -> bool:
        """Whether there are any phrases."""
        return bool(self._groups)

    def after(self, sequences: Ints) -> Iterator[Ints]:
        """The tokens that may not follow each hypothesis (images, rows, length), in parts of (images, rows,
        any), filled up with padding."""
        for phrases in self._groups:
            begin, last = phrases[:, :-1], phrases[:, -1]
            if sequences.shape[-1] >= begin.shape[1]:
                same = (sequences[..., None, -begin.shape[1] :] == begin).all(axis=-1)
                yield np.where(same, last, Vocabulary.pad_id)
