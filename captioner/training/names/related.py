"""Other names of what a word names, so that a caption does not name one thing twice.

A checklist and class evidence make all names of a thing likelier, and a caption may say two of them: "a cat
on top of a kitten". Names of one class or label are related, except for those that people say together, as in
"a laptop computer".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.bonus.checklist import RELATED
from captioner.training.data.examples import Example
from captioner.training.names.class_words import forms_of_name
from captioner.words.tokens import tokenize

_CAPTIONS, _SHARE = 3, 0.02
"""People say a word together with another if so many captions have both, and this share of those that have
the word."""

_Groups = Mapping[int, Counter[int]]
"""For each word, how many groups of names it has in common with others."""


def related_names(
    classes: Iterable[Sequence[str]], examples: Sequence[Example], vocabulary: Vocabulary
) -> Tensor:
    """The other names of what each word names, int64 (vocabulary, `RELATED`), filled up with padding.

    `classes` are the names of each class; the words of labelled photos are names of one thing, too. Of many
    names, a word keeps those that it has in common with most classes and labels."""
    labels = {example.image.words for example in examples if example.image.words}
    groups = _groups([*classes, *labels], vocabulary)
    together = _said_together(groups, examples, vocabulary)
    related = torch.full((len(vocabulary), RELATED), Vocabulary.pad_id)
    for word, others in groups.items():
        apart = [other for other in others if (word, other) not in together]
        kept = sorted(apart, key=lambda other: (-others[other], other))[:RELATED]
        related[word, : len(kept)] = torch.tensor(kept, dtype=torch.int64)
    return related


def _groups(groups: Iterable[Sequence[str]], vocabulary: Vocabulary) -> _Groups:
    """A name of several words has been said once its last word has; only names of one word can be told from
    other words that begin so."""
    ids = vocabulary.ids
    found: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for names in groups:
        tokens = [tokenize(name) for name in names]
        single = {ids[word] for word in _single(tokens) if word in ids}
        last = {ids[name[-1]] for name in tokens if name and name[-1] in ids}
        for word in single | last:
            found[word].update(single - {word})
    return found


def _single(names: Iterable[Sequence[str]]) -> Iterator[str]:
    """The names of one word, in the singular and the plural."""
    return (form for name in names if len(name) == 1 for [form] in forms_of_name(name))


def _said_together(
    groups: _Groups, examples: Sequence[Example], vocabulary: Vocabulary
) -> set[tuple[int, int]]:
    """The pairs of related words that people say together."""
    having: Counter[int] = Counter()
    both: Counter[tuple[int, int]] = Counter()
    for example in examples:
        for caption in () if example.retained else example.image.captions:  # others are the model's own
            words = set(vocabulary.encode(caption))
            for word in words & groups.keys():
                having[word] += 1
                both.update((word, other) for other in words & groups[word].keys())
    return {pair for pair, times in both.items() if times >= max(_CAPTIONS, _SHARE * having[pair[0]])}
