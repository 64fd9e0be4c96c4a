"""The vocabulary: words and their ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

PAD, START, END, UNKNOWN = "<pad>", "<start>", "<end>", "<unk>"
SPECIAL = (PAD, START, END, UNKNOWN)

# A word is letters and digits with inner apostrophes or hyphens kept ("t-shirt", "man's").
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def tokenize(text: str) -> list[str]:
    """The lower-cased words of a caption without punctuation, as used in training."""
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


class Vocabulary:
    """An ordered set of words; ids 0 to 3 are padding, start, end and unknown."""

    pad_id, start_id, end_id, unknown_id = range(4)

    def __init__(self, words: Sequence[str]) -> None:
        """`words` in the order of their ids, special tokens first. Raises `ValueError` if the special
        tokens are not there or a word occurs twice."""
        if tuple(words[:4]) != SPECIAL:
            raise ValueError(f"a vocabulary starts with {' '.join(SPECIAL)}")
        self.words = tuple(words)
        self._ids = {word: number for number, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            raise ValueError("a word occurs twice in the vocabulary")

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int) -> Vocabulary:
        """The words that occur at least `min_count` times, most frequent first, ties by spelling."""
        counts = Counter(word for caption in captions for word in tokenize(caption))
        kept = sorted((word for word, n in counts.items() if n >= min_count), key=lambda w: (-counts[w], w))
        return cls([*SPECIAL, *kept])

    def save(self, path: Path) -> None:
        path.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8")

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str) -> list[int]:
        """Ids of the words of `text`, without start and end."""
        return [self._ids.get(word, self.unknown_id) for word in tokenize(text)]

    def forms(self, word: str) -> tuple[int, ...]:
        """The known ids of a word and its English plurals."""
        word = word.lower()
        forms = (word, *plurals(word))
        return tuple(self._ids[form] for form in forms if self._ids.get(form, 0) >= len(SPECIAL))

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Words of `ids`; padding, start and end are left out."""
        skipped = {self.pad_id, self.start_id, self.end_id}
        return [self.words[number] for number in ids if number not in skipped]


IRREGULAR_PLURALS = {
    "calf": "calves",
    "child": "children",
    "foot": "feet",
    "goose": "geese",
    "knife": "knives",
    "man": "men",
    "mouse": "mice",
    "ox": "oxen",
    "sheep": "sheep",
    "tooth": "teeth",
    "woman": "women",
}


def plurals(word: str) -> Iterator[str]:
    """What the English plural of a word may be."""
    if word in IRREGULAR_PLURALS:
        yield IRREGULAR_PLURALS[word]
        return
    if word == "person":
        yield "people"
    for ending, plural in (("man", "men"), ("f", "ves"), ("fe", "ves")):
        if word.endswith(ending):
            yield word.removesuffix(ending) + plural
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        yield word.removesuffix("y") + "ies"
    elif word.endswith(("s", "x", "z", "sh")):
        yield f"{word}es"
    else:
        yield f"{word}s"
        if word.endswith(("ch", "o")):  # stomachs and churches, pianos and potatoes
            yield f"{word}es"
