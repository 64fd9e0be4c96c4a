"""BLEU (Papineni et al. 2002, "BLEU: a Method for Automatic Evaluation of Machine Translation").

The brevity penalty uses the reference length that is closest to the candidate's length, and the shorter one
if two are equally close, like the COCO caption evaluation. BLEU is defined for a corpus: counts are summed
over all images before they are combined. The mean of the BLEU scores of single images is a different number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from captioner.metrics.ngrams import MAX_N, count_ngrams

# As in the COCO code: no division by zero, and no logarithm of it.
_TINY, _SMALL = 1e-15, 1e-9


def bleu_statistics(candidate: Sequence[str], references: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
    """(2 + 2 * 4,): the candidate's length, the closest reference's, then the n-grams that match and those
    that there are, for n from 1 to 4."""
    length = len(candidate)
    closest = min((abs(len(reference) - length), len(reference)) for reference in references)[1]
    matches, totals = [], []
    for n in range(1, MAX_N + 1):
        allowed: dict[tuple[str, ...], int] = {}
        for reference in references:
            for ngram, count in count_ngrams(reference, n).items():
                allowed[ngram] = max(count, allowed.get(ngram, 0))
        counts = count_ngrams(candidate, n)
        matches.append(sum(min(count, allowed.get(ngram, 0)) for ngram, count in counts.items()))
        totals.append(max(0, length - n + 1))
    return np.array([length, closest, *matches, *totals], dtype=np.float64)


def bleu(statistics: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(…, 4): BLEU-1 to BLEU-4 from (…, 10) summed statistics, 0 to 1."""
    length, closest = statistics[..., 0], statistics[..., 1]
    matches, totals = statistics[..., 2 : 2 + MAX_N], statistics[..., 2 + MAX_N :]
    log_precisions = np.log(matches + _TINY) - np.log(totals + _SMALL)
    ratio = (length + _TINY) / (closest + _SMALL)
    log_brevity = np.minimum(0.0, 1.0 - 1.0 / ratio)
    means = np.cumsum(log_precisions, axis=-1) / np.arange(1, MAX_N + 1)
    return np.exp(means + log_brevity[..., None])
