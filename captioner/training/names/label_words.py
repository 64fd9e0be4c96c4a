"""The words of labelled photos."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from captioner.model.vocabulary import Vocabulary
from captioner.training.data.examples import Example
from captioner.words.nouns import with_article
from captioner.words.tokens import tokenize

EXACT = 0.7


def build_vocabulary(
    examples: Sequence[Example], min_count: int, classes: Sequence[Sequence[str]] = ()
) -> Vocabulary:
    """The words that captions have at least `min_count` times, then those of the most exact word of every
    labelled photo with its article, then those of `classes`: the words for each class whose evidence the
    decoder sees. No caption needs to have them."""
    captions = (caption for example in examples for caption in example.image.captions)
    common = Vocabulary.build(captions, min_count).words
    exact = [with_article(example.image.words[0]) for example in examples if example.image.words]
    taught = Vocabulary.build(exact, 1).words
    named = [token for words in classes for word in words for token in tokenize(word)]
    return Vocabulary(list(dict.fromkeys([*common, *taught, *named])))


def label_words(examples: Sequence[Example], vocabulary: Vocabulary) -> list[int]:
    """The tokens of the most exact words of labelled photos."""
    exact = " ".join(sorted({example.image.words[0] for example in examples if example.image.words}))
    return sorted(set(vocabulary.encode(exact)) - {vocabulary.unknown_id})


def related_words(examples: Sequence[Example], classes: Sequence[Sequence[str]] = ()) -> dict[str, list[str]]:
    """For each token of the most exact word of a photo or class: the tokens of its other, more general
    words."""
    related: dict[str, list[str]] = {}
    for words in [*(example.image.words for example in examples if example.image.words), *classes]:
        exact, *others = (tokenize(word) for word in words)
        for word in exact:
            related.setdefault(word, []).extend(token for other in others for token in other)
    return related


def known_words(words: Sequence[str], vocabulary: Vocabulary) -> list[str]:
    """The words whose every token is in the vocabulary, in the given order."""
    return [word for word in words if tokenize(word) and vocabulary.unknown_id not in vocabulary.encode(word)]


def draw(words: Sequence[str], random: np.random.Generator) -> str:
    """One of the words: the first with probability `EXACT`, otherwise the second with `EXACT`, and so on."""
    return words[min(int(random.geometric(EXACT)), len(words)) - 1]
