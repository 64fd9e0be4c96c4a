"""Which words of a vocabulary name the classes of ImageNet, and those of labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from captioner.errors import DataError
from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.decoder.bonus.names import FOLLOWERS, Names
from captioner.training.data.examples import Example
from captioner.words.imagenet import CLASSES, class_words
from captioner.words.plurals import plurals
from captioner.words.tokens import tokenize

_LEARNT = 100
"""Number of captions with a word that halves the bonus of what follows it, and of the exact names of classes
for which the word is right: captions have taught these."""
_SAID = 10
"""Number of captions with a name that halves its proposal."""


@dataclass(frozen=True, slots=True)
class ClassWords:
    """The words of one vocabulary that name classes.

    A name of several words begins with the first, and the others follow: "pig" is not right for a guinea pig,
    but "guinea" is, if "pig" follows.
    """

    membership: Tensor
    """float (classes, named words): 1 where the word is a name of the class, or the first word of one. Words
    of a single class come first."""
    column: Tensor
    """int64 (vocabulary): the named word that a token is, or their number if it is none."""
    vocabulary: Vocabulary
    phrases: tuple[tuple[tuple[int, ...], ...], ...]
    """The names of each class as tokens, the most exact first. All their words are in the vocabulary."""

    @property
    def count(self) -> int:
        return self.membership.shape[1]

    @property
    def single(self) -> int:
        """The number of words that name one class only."""
        return int((self.membership.sum(dim=0) == 1).sum())

    @classmethod
    def of(cls, vocabulary: Vocabulary, bonus: BonusOptions) -> ClassWords:
        """The words of all classes that are scored. Singular and plural forms count alike. Raises
        `DataError` if `BonusOptions.classes` is not the number of ImageNet's or no class has a word."""
        ids = vocabulary.ids
        phrases = tuple(
            tuple(
                tuple(ids[token] for token in form)
                for name in names
                for form in forms_of_name(tokenize(name))
                if all(token in ids for token in form)
            )
            for names in class_names(bonus)
        )
        first = [{phrase[0] for phrase in names} for names in phrases]
        times = Counter(word for words in first for word in words)
        if not times:
            raise DataError("[model.bonus] classes: the vocabulary has no word for any of them")
        named = sorted(times, key=lambda word: (times[word] > 1, word))
        column = torch.full((len(vocabulary),), len(named))
        column[named] = torch.arange(len(named))
        return cls(_membership(first, named), column, vocabulary, phrases)

    def names(self, captions: Tensor) -> Names:
        """What helps the model to say names that its captions hardly have. `captions` float (vocabulary): the
        number of training captions with each word. Raises `DataError` for a word that too many follow."""
        parts = [{token for phrase in names for token in phrase[1:]} for names in self.phrases]
        after = sorted(set().union(*parts))
        empty = len(after)
        following = torch.full((len(captions), FOLLOWERS), empty)
        following_token = torch.full_like(following, Vocabulary.pad_id)
        pairs = {pair for names in self.phrases for phrase in names for pair in pairwise(phrase)}
        places: Counter[int] = Counter()
        for before, token in sorted(pairs):
            if places[before] == FOLLOWERS:
                word = self.vocabulary.words[before]
                raise DataError(
                    f"more than {FOLLOWERS} words follow {word!r} in names: exclude a label class"
                )
            following[before, places[before]] = after.index(token)
            following_token[before, places[before]] = token
            places[before] += 1
        proposed = [names[0][0] if names else Vocabulary.pad_id for names in self.phrases]
        said = torch.tensor([max((captions[p[0]] for p in names), default=0.0) for names in self.phrases])
        return Names(
            membership=F.pad(_membership(parts, after), (0, 1)),
            following=following,
            following_token=following_token,
            following_gain=_gain(captions),
            proposed=torch.tensor(proposed),
            proposed_gain=_gain(said) * _SAID / (_SAID + captions[proposed]),
        )


def _gain(captions: Tensor) -> Tensor:
    return _LEARNT / (_LEARNT + captions)


def learnt_from(gain: Tensor) -> Tensor:
    """The numbers of captions from which `Names.following_gain` was computed."""
    return _LEARNT / gain - _LEARNT


def caption_counts(examples: Sequence[Example], vocabulary: Vocabulary) -> Tensor:
    """The number of captions with each word, float (vocabulary)."""
    counts = torch.zeros(len(vocabulary))
    for example in examples:
        for caption in example.image.captions:
            counts[list(set(vocabulary.encode(caption)))] += 1
    return counts


def class_names(bonus: BonusOptions) -> list[list[str]]:
    """The names of each class that is scored. Raises `DataError` if `BonusOptions.classes` is neither
    0 nor the number of ImageNet's."""
    if bonus.classes not in (0, CLASSES):
        raise DataError(f"[model.bonus] classes must be 0 or {CLASSES}, got {bonus.classes}")
    return [*(class_words() if bonus.classes else []), *([word] for word in bonus.label_classes)]


def _membership(sets: Sequence[set[int]], tokens: Sequence[int]) -> Tensor:
    """float (sets, tokens): 1 where the set has the token."""
    return torch.tensor([[float(token in one) for token in tokens] for one in sets])


def forms_of_name(name: Sequence[str]) -> Iterator[list[str]]:
    """The name as it is; if it has only one word, also as a plural."""
    [*others, word] = name
    yield [*others, word]
    if not others:
        yield from ([plural] for plural in plurals(word))
