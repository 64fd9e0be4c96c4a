"""CIDEr-D (Vedantam et al. 2015, "CIDEr: Consensus-based Image Description Evaluation", arXiv:1411.5726).

This is what the COCO caption evaluation computes and papers report as "CIDEr": tf-idf vectors of the n-grams
of 1 to 4 words without stemming, clipped to the reference's counts, with a Gaussian penalty on the
difference of lengths, times 10. (The paper's plain CIDEr uses stems, but neither the clipping nor the
penalty, so repeating a word raises the score.) One detail follows the COCO code, not the paper: lengths are
counted in bigrams. This matters only for empty captions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from captioner.metrics.ngrams import MAX_N, count_ngrams

SIGMA = 6.0
"""Standard deviation of the length penalty, in words."""

Ngram = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DocumentFrequencies:
    """Document frequency: the number of images whose references contain each n-gram."""

    counts: Mapping[Ngram, int]
    documents: int

    @classmethod
    def of(cls, references: Iterable[Sequence[Sequence[str]]]) -> DocumentFrequencies:
        """Compute document frequencies over a corpus: for each image, its tokenized references."""
        counts: dict[Ngram, int] = {}
        documents = 0
        for captions in references:
            documents += 1
            seen: set[Ngram] = set()
            for caption in captions:
                for n in range(1, MAX_N + 1):
                    seen.update(count_ngrams(caption, n))
            for ngram in seen:
                counts[ngram] = counts.get(ngram, 0) + 1
        return cls(counts, documents)


@dataclass(frozen=True, slots=True)
class ReferenceVectors:
    """The references of one image, prepared for comparison with any number of candidates."""

    weights: Mapping[Ngram, tuple[tuple[int, float, float], ...]]
    """For each n-gram: the reference it occurs in, its tf-idf weight there, and that weight divided by
    the norm of the reference's n-grams of the same length."""
    lengths: tuple[int, ...]
    """Length in bigrams."""


class CiderD:
    """Compares captions with references, with the document frequencies of a corpus."""

    def __init__(self, frequencies: DocumentFrequencies) -> None:
        log_documents = math.log(frequencies.documents)
        self._unseen_idf = log_documents
        self._idf = {ngram: log_documents - math.log(count) for ngram, count in frequencies.counts.items()}

    def reference_vectors(self, references: Sequence[Sequence[str]]) -> ReferenceVectors:
        """Precompute what is the same for every candidate of an image."""
        weights: dict[Ngram, list[tuple[int, float, float]]] = {}
        for number, reference in enumerate(references):
            for n in range(1, MAX_N + 1):
                vector, norm = self._vector(reference, n)
                for ngram, weight in vector.items():
                    if weight:
                        weights.setdefault(ngram, []).append((number, weight, weight / norm))
        return ReferenceVectors(
            weights={ngram: tuple(entries) for ngram, entries in weights.items()},
            lengths=tuple(_length_in_bigrams(reference) for reference in references),
        )

    def score(self, candidate: Sequence[str], references: ReferenceVectors) -> float:
        """CIDEr-D of one tokenized caption, 0 to 10."""
        similarities = [0.0] * len(references.lengths)
        for n in range(1, MAX_N + 1):
            vector, norm = self._vector(candidate, n)
            for ngram, weight in vector.items():
                for number, reference_weight, unit in references.weights.get(ngram, ()):
                    similarities[number] += min(weight, reference_weight) * unit / norm
        length = _length_in_bigrams(candidate)
        total = sum(
            similarity * math.exp(-((length - other) ** 2) / (2 * SIGMA**2))
            for similarity, other in zip(similarities, references.lengths, strict=True)
        )
        return 10 * total / (MAX_N * len(similarities))

    def units(self, tokens: Sequence[str]) -> Iterator[tuple[Ngram, float]]:
        """The tf-idf vectors of a caption, those of each length of n-gram with norm 1."""
        for n in range(1, MAX_N + 1):
            vector, norm = self._vector(tokens, n)
            for ngram, weight in vector.items():
                if weight:
                    yield ngram, weight / norm

    def _vector(self, tokens: Sequence[str], n: int) -> tuple[dict[Ngram, float], float]:
        """tf-idf weights of the n-grams, and their Euclidean norm."""
        vector = {
            ngram: count * self._idf.get(ngram, self._unseen_idf)
            for ngram, count in count_ngrams(tokens, n).items()
        }
        return vector, math.sqrt(sum(weight * weight for weight in vector.values()))


class CorpusCider:
    """CIDEr-D of captions of the images of a corpus, whose references give the document frequencies: for
    evaluation, and as the reward of self-critical training (Rennie et al. 2017, arXiv:1612.00563).

    Tokens may be any strings; where references and candidates both end with a token that stands for the end,
    the score also feels whether a caption ends where captions end.
    """

    def __init__(self, references: Sequence[Sequence[Sequence[str]]]) -> None:
        """`references`: for each image, its tokenized captions."""
        self._cider = CiderD(DocumentFrequencies.of(references))
        self._references = references
        self._vectors: dict[int, ReferenceVectors] = {}
        self._mean: dict[Ngram, float] = {}

    def scores(self, indices: Sequence[int], candidates: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        """(candidates,): CIDEr-D, 0 to 10, of each candidate as a caption of image `indices[i]`."""
        return np.array(
            [
                self._cider.score(candidate, self._of(int(index)))
                for index, candidate in zip(indices, candidates, strict=True)
            ],
            dtype=np.float64,
        )

    def typicality(self, candidates: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        """(candidates,): how well each would do, on average, as a caption of any image of the corpus.

        It is the mean CIDEr, 0 to 10, without clipping and length penalty, so that one mean vector can stand
        for all images.
        """
        if not self._mean:
            for references in self._references:
                weight = 1 / (len(references) * len(self._references))
                for reference in references:
                    for ngram, unit in self._cider.units(reference):
                        self._mean[ngram] = self._mean.get(ngram, 0.0) + weight * unit
        return np.array(
            [
                10 / MAX_N * sum(unit * self._mean.get(ngram, 0.0) for ngram, unit in self._cider.units(said))
                for said in candidates
            ],
            dtype=np.float64,
        )

    def _of(self, index: int) -> ReferenceVectors:
        if index not in self._vectors:
            self._vectors[index] = self._cider.reference_vectors(self._references[index])
        return self._vectors[index]


def _length_in_bigrams(tokens: Sequence[str]) -> int:
    return max(0, len(tokens) - 1)
