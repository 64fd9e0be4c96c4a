"""The vocabulary: words and their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from captioner.words.plurals import plurals
from captioner.words.tokens import lowered, tokenize

PAD, START, END, UNKNOWN = "<pad>", "<start>", "<end>", "<unk>"
SPECIAL = (PAD, START, END, UNKNOWN)
MAX_LETTERS = 100
"""Longest word."""


class Vocabulary:
    """An ordered set of words; ids 0 to 3 are padding, start, end and unknown."""

    pad_id, start_id, end_id, unknown_id = range(4)

    def __init__(self, words: Sequence[str]) -> None:
        """`words` in the order of their ids, special tokens first. Raises `ValueError` if the special
        tokens are not there or a word occurs twice."""
        if tuple(words[:4]) != SPECIAL:
            raise ValueError(f"a vocabulary starts with {' '.join(SPECIAL)}")
        self.words = tuple(words)
        self.ids = {word: number for number, word in enumerate(self.words)}
        if len(self.ids) != len(self.words):
            raise ValueError("a word occurs twice in the vocabulary")

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int) -> Vocabulary:
        """The words that occur at least `min_count` times, most frequent first, ties by spelling; none that
        are too long for a bundle."""
        counts = Counter(word for caption in captions for word in tokenize(caption))
        known = (word for word, n in counts.items() if n >= min_count and len(word) <= MAX_LETTERS)
        kept = sorted(known, key=lambda w: (-counts[w], w))
        return cls([*SPECIAL, *kept])

    def save(self, path: Path) -> None:
        path.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8")

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str) -> list[int]:
        """Ids of the words of `text`, without start and end."""
        return [self.ids.get(word, self.unknown_id) for word in tokenize(text)]

    def forms(self, word: str) -> tuple[int, ...]:
        """The known ids of a word and its English plurals."""
        word = lowered(word)
        forms = (word, *plurals(word))
        return tuple(self.ids[form] for form in forms if self.ids.get(form, 0) >= len(SPECIAL))

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Words of `ids`; padding, start and end are left out."""
        skipped = {self.pad_id, self.start_id, self.end_id}
        return [self.words[number] for number in ids if number not in skipped]
