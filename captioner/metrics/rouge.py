"""ROUGE-L (Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries")."""

from __future__ import annotations

from collections.abc import Sequence

BETA = 1.2
"""Weight of recall against precision, as in the COCO caption evaluation."""


def rouge_l(candidate: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """F-measure of the longest common subsequence, from the best precision and the best recall over the
    references (not necessarily of the same one, as in the COCO code), 0 to 1."""
    lengths = [_longest_common_subsequence(candidate, reference) for reference in references]
    if not any(lengths):
        return 0.0
    precision = max(lengths) / len(candidate)
    recall = max(n / len(reference) for n, reference in zip(lengths, references, strict=True) if reference)
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _longest_common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    row = [0] * (len(second) + 1)
    for token in first:
        diagonal = 0
        for column, other in enumerate(second, 1):
            above = row[column]
            row[column] = diagonal + 1 if token == other else max(above, row[column - 1])
            diagonal = above
    return row[-1]
