"""METEOR from alignments: weighted precision and recall, and a penalty for scattered matches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from captioner.metrics.meteor import matchers
from captioner.metrics.meteor.alignment import Match, align
from captioner.metrics.meteor.normalizer import normalize
from captioner.metrics.meteor.resources import (
    PARAPHRASES,
    Phrase,
    Stemmer,
    Synonyms,
    find_data,
    load_stemmer,
    read_archive,
    read_paraphrases,
)

Array = npt.NDArray[np.float64]

# Tuned on rankings of translations into English, METEOR's default for that language.
ALPHA = 0.85
"""Weight of recall against precision."""
BETA, GAMMA = 0.2, 0.6
"""Shape and weight of the penalty for fragments."""
DELTA = 0.75
"""Weight of content words against function words."""
WEIGHTS = (1.0, 0.6, 0.8, 0.6)
"""Worth of exact, stem, synonym and paraphrase matches."""

_LONGEST_PHRASE = 7

# For when METEOR's own list is not there, which has the most frequent words of news.
_FUNCTION_WORDS = frozenset(
    """the a an and or but of to in on at by for with from as that this which who there it its he she they
    his her their them one two is are was were be been has have had will would not out up over into
    about after when if so than all other some more ' s . ,""".split()  # noqa: SIM905
)


def meteor_score(statistics: Array) -> Array:
    """(…,): METEOR, 0 to 1, from (…, 6) summed statistics of `Meteor.statistics`."""
    candidate_matches, candidate_length, reference_matches, reference_length, words, chunks = np.moveaxis(
        statistics, -1, 0
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = candidate_matches / candidate_length
        recall = reference_matches / reference_length
        f_mean = 1 / ((1 - ALPHA) / precision + ALPHA / recall)
        penalty = GAMMA * (chunks / (words / 2)) ** BETA
        return np.nan_to_num(f_mean * (1 - penalty))


@dataclass(frozen=True, slots=True)
class Meteor:
    """Scores captions with the available resources, which `load` finds."""

    stemmer: Stemmer | None = None
    synonyms: Synonyms | None = None
    paraphrases: Path | None = None
    """The folder with the paraphrase table, which is read when captions are scored."""
    function_words: frozenset[str] = _FUNCTION_WORDS

    @classmethod
    def load(cls, data: str | Path | None = None) -> Meteor:
        """Load METEOR's archive from `data` (`meteor-1.5.jar` and `data/paraphrase-en.gz`), by default that
        of an installed pycocoevalcap, and nltk's stemmer. Raises `DataError` for any other folder."""
        folder = Path(data) if data is not None else find_data()
        if folder is None:
            return cls(stemmer=load_stemmer())
        synonyms, function_words = read_archive(folder)
        paraphrases = folder if (folder / PARAPHRASES).is_file() else None
        return cls(load_stemmer(), synonyms, paraphrases, function_words)

    @property
    def key(self) -> str:
        """`meteor` with all resources, which alone is METEOR 1.5; otherwise with the names of its matchers,
        such as `meteor_exact_stem`."""
        optional = {"stem": self.stemmer, "synonym": self.synonyms, "paraphrase": self.paraphrases}
        if None not in optional.values():
            return "meteor"
        return "_".join(["meteor", "exact", *(matcher for matcher, found in optional.items() if found)])

    def statistics(
        self, candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
    ) -> Array:
        """(images, 6): what `meteor_score` sums, for each candidate and its best reference.

        In order: what the candidate's matched words are worth, what all its words would be, both again for
        the reference, the matched words of both, and the chunks they form (0 where all match in one).
        `candidates` and `references` are tokens of `captioner.metrics.tokenize`.
        """
        said = [normalize(caption) for caption in candidates]
        truth = [[normalize(caption) for caption in captions] for captions in references]
        table: Mapping[Phrase, Sequence[Phrase]] = {}
        if self.paraphrases:
            captions = [*said, *(caption for captions in truth for caption in captions)]
            table = read_paraphrases(self.paraphrases, set(_phrases(captions)))
        rows = [
            max(
                (self._pair(caption, other, table) for other in others),
                key=lambda row: float(meteor_score(row)),
            )
            for caption, others in zip(said, truth, strict=True)
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, 6)

    def _pair(
        self, candidate: list[str], reference: list[str], table: Mapping[Phrase, Sequence[Phrase]]
    ) -> Array:
        chosen, chunks = align(self._matches(candidate, reference, table), len(candidate), len(reference))
        weights, other_weights = self._word_weights(candidate), self._word_weights(reference)
        worth = other_worth = 0.0
        matched = other_matched = 0
        for match in chosen:
            words = slice(match.candidate_start, match.candidate_start + match.candidate_length)
            other_words = slice(match.start, match.start + match.length)
            worth += WEIGHTS[match.matcher] * sum(weights[words])
            other_worth += WEIGHTS[match.matcher] * sum(other_weights[other_words])
            matched += match.candidate_length
            other_matched += match.length
        if chunks == 1 and matched == len(candidate) and other_matched == len(reference):
            chunks = 0
        sums = [worth, sum(weights), other_worth, sum(other_weights), matched + other_matched, chunks]
        return np.array(sums, dtype=np.float64)

    def _matches(
        self, candidate: list[str], reference: list[str], table: Mapping[Phrase, Sequence[Phrase]]
    ) -> Iterator[Match]:
        yield from matchers.exact_matches(candidate, reference)
        if candidate == reference:
            return
        if self.stemmer:
            yield from matchers.stem_matches(candidate, reference, self.stemmer)
        if self.synonyms:
            yield from matchers.synonym_matches(candidate, reference, self.synonyms)
        yield from matchers.paraphrase_matches(candidate, reference, table)

    def _word_weights(self, words: Sequence[str]) -> list[float]:
        return [1 - DELTA if word in self.function_words else DELTA for word in words]


def _phrases(captions: Sequence[Sequence[str]]) -> Iterator[Phrase]:
    for caption in captions:
        for start in range(len(caption)):
            for end in range(start + 1, min(start + _LONGEST_PHRASE, len(caption)) + 1):
                yield tuple(caption[start:end])
