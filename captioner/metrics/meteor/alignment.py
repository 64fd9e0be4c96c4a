"""METEOR's alignment of a candidate with a reference, found by beam search.

The best selection of matches that share no word covers the most words, then has the fewest chunks, then the
least distance between matched words (Denkowski and Lavie 2014, section 2.1). The search is
exactly METEOR 1.5's, with two properties of its program that the paper does not mention. In the count of
covered words, inexact matches count half, rounded down (one such word counts 0, two count 1). The distance
of a match is added to the paths tried after it rather than to its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

BEAM_SIZE = 40


class Match(NamedTuple):
    """Words of the reference that may stand for words of the candidate."""

    matcher: int
    """Number of the one that found it; 0 is the exact one."""
    start: int
    """First word in the reference."""
    length: int
    """Words in the reference."""
    candidate_start: int
    candidate_length: int

    @property
    def reference_mask(self) -> int:
        return ((1 << self.length) - 1) << self.start

    @property
    def candidate_mask(self) -> int:
        return ((1 << self.candidate_length) - 1) << self.candidate_start


@dataclass(slots=True)
class _Path:
    """A choice of matches for the words of the reference up to some place."""

    chosen: tuple[Match, ...] = ()
    candidate_used: int = 0
    """A bit for each word that is taken."""
    reference_used: int = 0
    covered: int = 0
    chunks: int = 0
    """Those that are closed."""
    distance: int = 0
    chunk_end: int | None = None
    """Where in the candidate the open chunk ends."""

    def rank(self) -> tuple[int, int, int]:
        return -self.covered, self.chunks, self.distance

    def close_chunk(self) -> None:
        if self.chunk_end is not None:
            self.chunks += 1
            self.chunk_end = None

    def take(self, match: Match) -> None:
        exact = match.matcher == 0
        self.covered += match.length if exact else match.length // 2
        self.covered += match.candidate_length if exact else match.candidate_length // 2
        if self.chunk_end != match.candidate_start:
            self.close_chunk()
        self.chunk_end = match.candidate_start + match.candidate_length
        self.chosen = (*self.chosen, match)


def align(matches: Iterable[Match], candidate_length: int, reference_length: int) -> tuple[list[Match], int]:
    """The chosen matches in the order of the reference, and the number of chunks they form."""
    starting: list[list[Match]] = [[] for _ in range(reference_length)]
    for match in matches:
        starting[match.start].append(match)
    fixed = _uncontested(starting, candidate_length)
    start = _Path()
    for match in fixed.values():
        start.candidate_used |= match.candidate_mask
        start.reference_used |= match.reference_mask
    paths = [start]
    for word in range(reference_length):
        paths = _advance(paths, word, starting[word], fixed.get(word))
    complete = sorted(paths, key=_Path.rank)[:BEAM_SIZE]
    for path in complete:
        path.close_chunk()
    best = min(complete, key=_Path.rank)
    return list(best.chosen), best.chunks


def _uncontested(starting: Sequence[Sequence[Match]], candidate_length: int) -> dict[int, Match]:
    """The matches, by their start, of which no word is in another match; they are part of any solution."""
    candidate_coverage = [0] * candidate_length
    reference_coverage = [0] * len(starting)
    for match in (match for matches in starting for match in matches):
        for word in range(match.candidate_start, match.candidate_start + match.candidate_length):
            candidate_coverage[word] += 1
        for word in range(match.start, match.start + match.length):
            reference_coverage[word] += 1
    return {
        match.start: match
        for matches in starting
        for match in matches
        if max(reference_coverage[match.start : match.start + match.length]) == 1
        and max(candidate_coverage[match.candidate_start :][: match.candidate_length]) == 1
    }


def _advance(paths: list[_Path], word: int, matches: Sequence[Match], fixed: Match | None) -> list[_Path]:
    """Extend the best paths by what can be done with one word of the reference."""
    extended: list[_Path] = []
    for path in sorted(paths, key=_Path.rank)[:BEAM_SIZE]:
        if path.reference_used >> word & 1:
            if fixed is not None:
                path.take(fixed)
                path.distance += abs(fixed.start - fixed.candidate_start)
            extended.append(path)
            continue
        for match in matches:
            if path.reference_used & match.reference_mask or path.candidate_used & match.candidate_mask:
                continue
            other = replace(path)
            other.reference_used |= match.reference_mask
            other.candidate_used |= match.candidate_mask
            other.take(match)
            path.distance += abs(match.start - match.candidate_start)
            extended.append(other)
        path.close_chunk()
        extended.append(path)
    return extended
