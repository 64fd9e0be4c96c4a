"""METEOR's four ways to match words of a candidate with words of a reference, in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from captioner.metrics.meteor.alignment import Match
from captioner.metrics.meteor.resources import Phrase, Stemmer, Synonyms

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)

Words = Sequence[str]


def exact_matches(candidate: Words, reference: Words) -> Iterator[Match]:
    return _word_matches(EXACT, candidate, reference, lambda word, other: word == other)


def stem_matches(candidate: Words, reference: Words, stem: Stemmer) -> Iterator[Match]:
    stems = {word: stem(word) for word in {*candidate, *reference}}
    return _word_matches(
        STEM, candidate, reference, lambda word, other: word != other and stems[word] == stems[other]
    )


def synonym_matches(candidate: Words, reference: Words, synonyms: Synonyms) -> Iterator[Match]:
    """Words that are both in one of WordNet's synonym sets."""
    sets = {word: synonyms.of(word) for word in {*candidate, *reference}}
    return _word_matches(
        SYNONYM,
        candidate,
        reference,
        lambda word, other: word != other and not sets[word].isdisjoint(sets[other]),
    )


def _word_matches(
    matcher: int, candidate: Words, reference: Words, same: Callable[[str, str], bool]
) -> Iterator[Match]:
    for start, other in enumerate(reference):
        for candidate_start, word in enumerate(candidate):
            if same(word, other):
                yield Match(matcher, start, 1, candidate_start, 1)


def paraphrase_matches(
    candidate: Words, reference: Words, table: Mapping[Phrase, Sequence[Phrase]]
) -> Iterator[Match]:
    """Phrases of which one is listed as a paraphrase of the other. Both directions are looked up, so that a
    pair that is listed twice matches twice, as in METEOR's program."""
    for start, length, candidate_start, candidate_length in _paraphrases(reference, candidate, table):
        yield Match(PARAPHRASE, start, length, candidate_start, candidate_length)
    for candidate_start, candidate_length, start, length in _paraphrases(candidate, reference, table):
        yield Match(PARAPHRASE, start, length, candidate_start, candidate_length)


def _paraphrases(
    words: Words, others: Words, table: Mapping[Phrase, Sequence[Phrase]]
) -> Iterator[tuple[int, int, int, int]]:
    """(start, length) of a phrase in `words` and of its paraphrase in `others`."""
    for start, end in combinations(range(len(words) + 1), 2):
        for paraphrase in table.get(tuple(words[start:end]), ()):
            length = len(paraphrase)
            for other_start in range(len(others) - length + 1):
                if tuple(others[other_start : other_start + length]) == paraphrase:
                    yield start, end - start, other_start, length
