"""Caption search: batched greedy and beam search over a step function, for PyTorch and ONNX alike.

The search knows a decoder only as a `Stepper`. At each step it stores the choices and their parents; captions
and their attention maps are read off at the end by following the links back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from captioner.model.including import Best, Floats, Ints, Required
from captioner.model.vocabulary import Vocabulary
from captioner.options import CaptionOptions

_NEVER = np.float32(-np.inf)
_FORBIDDEN = [Vocabulary.pad_id, Vocabulary.start_id, Vocabulary.unknown_id]


class Stepper(Protocol):
    """A decoder with an encoded batch of images. Its state is opaque to the search."""

    def start(self, beams: int) -> Any:
        """The state before the first word, with `beams` hypotheses per image."""

    def step(self, tokens: Ints, state: Any) -> tuple[Floats, Floats, Any]:
        """Read the last tokens, (images, beams). Returns the log-probabilities of the next,
        (images, beams, vocabulary), the attention it was decided with, (images, beams, cells), and the
        new state."""

    def reorder(self, state: Any, parents: Ints) -> Any:
        """The state in which beam b of image i continues beam parents[i, b]."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished caption in token ids."""

    tokens: tuple[int, ...]
    """Token ids without start and end."""
    log_probs: tuple[float, ...]
    """Log-probability of each token, and finally of the end token."""
    attention: tuple[Floats, ...]
    """One map per token, (cells,)."""

    @property
    def log_prob(self) -> float:
        return float(sum(self.log_probs))


def search(
    stepper: Stepper, images: int, options: CaptionOptions, include: Sequence[Sequence[int]] = ()
) -> list[list[Hypothesis]]:
    """The best `alternatives + 1` hypotheses of each image, best first: at least one, or none for an image
    whose log-probabilities are not finite.

    `options` must be resolved. `include` are the words that every caption must hold, at most `max_words`,
    each as the tokens of which one is enough. A beam of 1 is greedy search. Hypotheses are ranked by
    log_prob / length ** length_normalization, the end token counting in both. At the word limit the end
    token is the only choice left, so that every caption has one. The best is then cut after the word where
    its end was likeliest, or it would stop in mid-sentence; if that part has ended by itself before, there is
    a hypothesis less. A greedy one is not cut: its words may have been streamed; nor is one that must hold
    words, which it might lose.

    The best does not depend on how many alternatives are asked for: more than the beam holds come from a
    second, wider search.
    """
    assert options.beam_size and options.max_words  # resolved
    required = Required(include)
    wanted = options.alternatives + 1
    found = _search(stepper, images, options, options.beam_size, required)
    if wanted > options.beam_size:
        wider = _search(stepper, images, options, wanted, required)
        found = [_merge(own, more, options) for own, more in zip(found, wider, strict=True)]
    return [several[:wanted] for several in found]


def _merge(own: list[Hypothesis], more: list[Hypothesis], options: CaptionOptions) -> list[Hypothesis]:
    """The best of `own`, then everything else."""
    if not own:
        return []
    alpha = options.length_normalization or 0.0
    others = {one.tokens: one for one in [*more, *own]}
    others.pop(own[0].tokens)
    ranked = sorted(others.values(), key=lambda one: -one.log_prob / len(one.log_probs) ** alpha)
    return [own[0], *ranked]


def _search(
    stepper: Stepper, images: int, options: CaptionOptions, beams: int, required: Required
) -> list[list[Hypothesis]]:
    """The finished hypotheses, best first, at most `beams`."""
    assert options.max_words
    alpha = options.length_normalization or 0.0
    rows = required.groups * beams
    history = _History()
    finished = [_Finished(beams, alpha) for _ in range(images)]
    state = stepper.start(rows)
    tokens = np.full((images, rows), Vocabulary.start_id, dtype=np.int64)
    totals = np.full((images, rows), _NEVER, dtype=np.float32)
    totals[:, 0] = 0.0  # the beams start equal: only one of them may spread
    for length in range(options.max_words + 1):
        log_probs, attention, state = stepper.step(tokens, state)
        scores = totals[:, :, None] + _allowed(log_probs, history, options, length)
        *partial, whole = required.best(scores, 2 * beams)
        history.add_step(attention, log_probs)
        going = [_first(best, beams) for best in partial]
        going.append(_advance(*whole, beams, length, log_probs, finished))
        tokens, totals, kept = (np.concatenate(part, axis=1) for part in zip(*going, strict=True))
        for done, row in zip(finished, totals, strict=True):
            done.close_if_complete(row, length, options)
        if all(done.closed for done in finished):
            break
        history.add_choices(tokens, kept, log_probs)
        state = stepper.reorder(state, kept)
    for image, done in enumerate(finished):
        while (
            rows > 1
            and required.groups == 1
            and done.ended
            and (cut := history.cut(image, done.best(1)[0], options.max_words))
        ):
            done.replace_best(*cut)
    return [[history.read(image, ended) for ended in done.best(beams)] for image, done in enumerate(finished)]


def stream(stepper: Stepper, options: CaptionOptions) -> Iterator[tuple[int, float, Floats]]:
    """Greedy search on one image, step by step: token, log-probability and attention (cells,) of each word
    as it is chosen, finally of the end token. The caption is that of `search` with a beam of 1."""
    assert options.max_words  # resolved
    history = _History()
    state = stepper.start(1)
    tokens = np.full((1, 1), Vocabulary.start_id, dtype=np.int64)
    here = np.zeros((1, 1), dtype=np.int64)
    for length in range(options.max_words + 1):
        log_probs, attention, state = stepper.step(tokens, state)
        tokens = _allowed(log_probs, history, options, length).argmax(axis=-1)
        chosen = int(tokens[0, 0])
        yield chosen, float(log_probs[0, 0, chosen]), attention[0, 0]
        if chosen == Vocabulary.end_id:
            return
        history.add_choices(tokens, here, log_probs)


def _allowed(log_probs: Floats, history: _History, options: CaptionOptions, length: int) -> Floats:
    """Log-probabilities with -inf for tokens that may not follow."""
    assert options.max_words is not None
    allowed = log_probs.copy()
    allowed[..., _FORBIDDEN] = _NEVER
    if length == 0:
        allowed[..., Vocabulary.end_id] = _NEVER
    if length == options.max_words:
        ending = allowed[..., Vocabulary.end_id].copy()
        allowed[...] = _NEVER
        allowed[..., Vocabulary.end_id] = ending
    elif options.no_repeat_ngram:
        _forbid_repeats(allowed, history.sequences(), options.no_repeat_ngram)
    return allowed


def _forbid_repeats(allowed: Floats, sequences: Ints, size: int) -> None:
    """Rule out each token that would complete an n-gram for a second time.

    `sequences` (images, beams, length) are the hypotheses so far."""
    length = sequences.shape[-1]
    for start in range(length - size + 1):
        window = sequences[..., start : start + size]
        repeats = (window[..., :-1] == sequences[..., length - size + 1 :]).all(axis=-1)
        image, beam = np.nonzero(repeats)
        allowed[image, beam, window[image, beam, -1]] = _NEVER


def _first(best: Best, beams: int) -> tuple[Ints, Floats, Ints]:
    """The tokens, totals and parents of the first `beams` continuations; there may be fewer."""
    values, parents, chosen = best
    images, count = len(values), min(beams, values.shape[1])
    tokens = np.full((images, beams), Vocabulary.end_id, dtype=np.int64)
    totals = np.full((images, beams), _NEVER, dtype=np.float32)
    kept = np.zeros((images, beams), dtype=np.int64)
    tokens[:, :count], totals[:, :count] = chosen[:, :count], values[:, :count]
    kept[:, :count] = parents[:, :count]
    return tokens, totals, kept


def _advance(
    values: Floats,
    parents: Ints,
    chosen: Ints,
    beams: int,
    length: int,
    log_probs: Floats,
    finished: list[_Finished],
) -> tuple[Ints, Floats, Ints]:
    """Move finished continuations to `finished`; return tokens, totals and parents of the live beams."""
    images = len(finished)
    tokens = np.full((images, beams), Vocabulary.end_id, dtype=np.int64)
    totals = np.full((images, beams), _NEVER, dtype=np.float32)
    kept = np.zeros((images, beams), dtype=np.int64)
    ends = chosen == Vocabulary.end_id
    for image, done in enumerate(finished):
        if done.closed:
            continue
        # An end token counts only among the best `beams`: greedy search ends where the end is likeliest.
        for rank in np.flatnonzero(ends[image, :beams]):
            if values[image, rank] > _NEVER:
                parent = int(parents[image, rank])
                end = float(log_probs[image, parent, Vocabulary.end_id])
                done.add(float(values[image, rank]), length, parent, end)
        going = np.flatnonzero(~ends[image])[:beams]
        tokens[image, : len(going)] = chosen[image, going]
        totals[image, : len(going)] = values[image, going]
        kept[image, : len(going)] = parents[image, going]
    return tokens, totals, kept


@dataclass(frozen=True, slots=True)
class _Ended:
    score: float
    length: int
    """Words before the end token."""
    beam: int
    """Beam of the last word."""
    end_log_prob: float


class _Finished:
    """The best finished hypotheses of one image."""

    def __init__(self, capacity: int, alpha: float) -> None:
        self.capacity, self.alpha = capacity, alpha
        self.ended: list[_Ended] = []
        self.closed = False

    def add(self, log_prob: float, length: int, beam: int, end_log_prob: float) -> None:
        score = log_prob / (length + 1) ** self.alpha
        self.ended.append(_Ended(score, length, beam, end_log_prob))

    def replace_best(self, log_prob: float, length: int, beam: int, end_log_prob: float) -> None:
        """Replace the best hypothesis by a prefix of it, unless that is finished already."""
        self.ended.remove(self.best(1)[0])
        if not any((ended.length, ended.beam) == (length, beam) for ended in self.ended):
            self.add(log_prob, length, beam, end_log_prob)

    def best(self, count: int) -> list[_Ended]:
        return sorted(self.ended, key=lambda ended: -ended.score)[:count]

    def close_if_complete(self, totals: Floats, length: int, options: CaptionOptions) -> None:
        """Set `closed` once no live hypothesis, with these totals, can still enter the best."""
        assert options.max_words is not None
        if len(self.ended) >= self.capacity:
            # A total only falls and a length only grows to the limit: no live beam can end above this.
            bound = float(totals.max()) / (options.max_words + 1) ** self.alpha
            self.closed = self.capacity == 1 or bound <= self.best(self.capacity)[-1].score
        self.closed = self.closed or length == options.max_words or not np.isfinite(totals).any()


class _History:
    """Attention maps and choices of every step, for all beams."""

    def __init__(self) -> None:
        self.attention: list[Floats] = []
        self.ends: list[Floats] = []
        self.tokens: list[Ints] = []
        self.parents: list[Ints] = []
        self.log_probs: list[Floats] = []

    def add_step(self, attention: Floats, log_probs: Floats) -> None:
        self.attention.append(attention)
        self.ends.append(log_probs[..., Vocabulary.end_id].copy())  # not a view, which would keep all

    def add_choices(self, tokens: Ints, parents: Ints, log_probs: Floats) -> None:
        self.tokens.append(tokens)
        self.parents.append(parents)
        rows = np.arange(len(tokens))[:, None]
        self.log_probs.append(log_probs[rows, parents, tokens])

    def sequences(self) -> Ints:
        """The tokens so far of every live beam, (images, beams, length)."""
        if not self.tokens:
            return np.zeros((0, 0, 0), dtype=np.int64)
        images, beams = self.tokens[0].shape
        beam = np.broadcast_to(np.arange(beams), (images, beams))
        steps = []
        for tokens, parents in zip(reversed(self.tokens), reversed(self.parents), strict=True):
            steps.append(np.take_along_axis(tokens, beam, axis=1))
            beam = np.take_along_axis(parents, beam, axis=1)
        return np.stack(steps[::-1], axis=-1)

    def cut(self, image: int, ended: _Ended, limit: int) -> tuple[float, int, int, float] | None:
        """Arguments for `_Finished.add` that cut a hypothesis of `limit` words where its end is most
        likely; None if that is its end, or it is shorter."""
        if ended.length < limit:
            return None
        beam, steps = ended.beam, []
        for step in range(limit - 1, -1, -1):
            steps.append((float(self.ends[step + 1][image, beam]), step + 1, beam))
            beam = int(self.parents[step][image, beam])
        end, length, beam = max(steps, key=lambda step: step[0])
        if length == limit:
            return None
        words = self.read(image, _Ended(0.0, length, beam, end))
        return words.log_prob, length, beam, end

    def read(self, image: int, ended: _Ended) -> Hypothesis:
        """Follow the links back from the last word.

        The map of a word is the one of the step that chose it, in the row of the beam it continued.
        """
        beam = ended.beam
        tokens, log_probs, attention = [], [ended.end_log_prob], []
        for step in range(ended.length - 1, -1, -1):
            tokens.append(int(self.tokens[step][image, beam]))
            log_probs.append(float(self.log_probs[step][image, beam]))
            beam = int(self.parents[step][image, beam])
            attention.append(self.attention[step][image, beam])
        return Hypothesis(tuple(tokens[::-1]), tuple(log_probs[::-1]), tuple(attention[::-1]))
