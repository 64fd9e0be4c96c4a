"""Caption search: batched greedy and beam search over a step function, for PyTorch and ONNX alike.

The search knows a decoder only as a `Stepper`. It keeps, for each step, what was chosen and from where;
captions and the maps that belong to their words are read off at the end by following those links back.
An image whose captions are found leaves the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from captioner.model.choices import NEVER, Choices, Floats, Ints, Question
from captioner.model.history import Finished, History, Hypothesis
from captioner.model.including import Bools, Candidates, Required
from captioner.model.vocabulary import Vocabulary
from captioner.options import CaptionOptions

_SPECIAL = (Vocabulary.pad_id, Vocabulary.start_id, Vocabulary.unknown_id)
_SHRINK_AT = 0.75
"""A batch is made smaller when no more than this share of its images is left: to copy what is kept of the
others costs about as much as a step."""


class Stepper(Protocol):
    """A decoder with an encoded batch of images. Its state is opaque to the search."""

    def start(self, beams: int) -> Any:
        """The state before the first word, with `beams` hypotheses per image."""

    def choose(self, tokens: Ints, state: Any, question: Question) -> tuple[Choices, Floats, Any]:
        """Read the last tokens, (images, beams). Returns what was asked of the next ones, the attention that
        it was decided with, (images, beams, cells), and the new state."""

    def reorder(self, state: Any, parents: Ints) -> Any:
        """The state in which beam b of image i continues beam parents[i, b]."""

    def keep(self, state: Any, images: Ints) -> tuple[Stepper, Any] | None:
        """The decoder with these images only, by their places, and their state; None where that costs more
        than it saves."""


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
    wanted = options.alternatives + 1
    found = _search(stepper, images, options, Required(include, options.beam_size))
    if wanted > options.beam_size:
        wider = _search(stepper, images, options, Required(include, wanted))
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
    stepper: Stepper, images: int, options: CaptionOptions, required: Required
) -> list[list[Hypothesis]]:
    """All that ended, best first, at most `required.beams`."""
    assert options.max_words
    alpha, beams = options.length_normalization or 0.0, required.beams
    longest = (options.max_words + 1) ** alpha
    rows = required.groups * beams
    found: list[list[Hypothesis]] = [[] for _ in range(images)]
    places = np.arange(images)  # in `found`, of the images in the batch
    finished = [Finished(beams, alpha) for _ in range(images)]
    to_beat = np.full(images, -np.inf)
    closed = np.zeros(images, dtype=np.bool_)
    history = History()
    state = stepper.start(rows)
    tokens = np.full((images, rows), Vocabulary.start_id, dtype=np.int64)
    totals = np.full((images, rows), NEVER, dtype=np.float32)
    totals[:, 0] = 0.0  # the beams start equal: only one of them may spread
    for length in range(options.max_words + 1):
        repeats = _repeats(history.sequences, options.no_repeat_ngram or 0)
        question = _question(tokens, repeats, length, required)
        choices, attention, state = stepper.choose(tokens, state, question)
        ends = choices.asked[..., 0]
        history.add_step(attention, ends)
        if length == options.max_words:
            choices = _only_the_end(choices, required)
        barred = (required.tokens[:, None] == repeats[..., None, :]).any(axis=-1)
        *partial, whole = required.groups_of(totals, choices, barred | (length == options.max_words))
        for image in _end(whole, length, finished, closed, beams):
            to_beat[image] = finished[image].to_beat
        parts = [_pad(best, beams) for best in partial]
        parts.append(_pad(_going(whole, beams), beams))
        totals, kept, tokens, log_probs = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        # A total only falls and a length only grows to the limit: no live beam can end above this.
        bound = totals.max(axis=1).astype(np.float64) / longest
        done = (bound <= to_beat) | ~np.isfinite(totals).any(axis=1) | (length == options.max_words)
        for image in np.flatnonzero(done & ~closed).tolist():
            found[places[image]] = _read(history, image, finished[image], options, required)
        closed |= done
        if closed.all():
            break
        history.add_choices(tokens, kept, log_probs)
        state = stepper.reorder(state, kept)
        going = np.flatnonzero(~closed)
        if len(going) <= _SHRINK_AT * len(closed) and (smaller := stepper.keep(state, going)):
            stepper, state = smaller
            history.keep(going)
            finished = [finished[image] for image in going]
            tokens, totals, places = tokens[going], totals[going], places[going]
            to_beat, closed = to_beat[going], closed[going]
    return found


def stream(stepper: Stepper, options: CaptionOptions) -> Iterator[tuple[int, float, Floats]]:
    """Greedy search on one image, step by step: token, log-probability and attention (cells,) of each word
    as it is chosen, finally of the end token. The caption is that of `search` with a beam of 1."""
    assert options.max_words  # resolved
    history, required = History(), Required((), 1)
    state = stepper.start(1)
    tokens = np.full((1, 1), Vocabulary.start_id, dtype=np.int64)
    here = np.zeros((1, 1), dtype=np.int64)
    for length in range(options.max_words + 1):
        repeats = _repeats(history.sequences, options.no_repeat_ngram or 0)
        question = _question(tokens, repeats, length, required)
        choices, attention, state = stepper.choose(tokens, state, question)
        if length == options.max_words:
            choices = _only_the_end(choices, required)
        tokens, log_probs = choices.tokens[..., 0], choices.log_probs[..., 0]
        chosen = int(tokens[0, 0])
        yield chosen, float(log_probs[0, 0]), attention[0, 0]
        if chosen == Vocabulary.end_id:
            return
        history.add_choices(tokens, here, log_probs)


def _question(tokens: Ints, repeats: Ints, length: int, required: Required) -> Question:
    """What a search with words to include asks before it chooses the word after `length` others; of the
    asked tokens the end comes first."""
    never = np.array([*_SPECIAL, Vocabulary.end_id] if length == 0 else _SPECIAL)
    parts = (never[None, None], required.forbidden[None], repeats)
    forbidden = np.concatenate(
        [np.broadcast_to(part, (*tokens.shape, part.shape[-1])) for part in parts], axis=-1
    )
    asked = np.concatenate([[Vocabulary.end_id], required.tokens])
    return Question(2 * required.beams, forbidden, asked)


def _repeats(sequences: Ints | None, size: int) -> Ints:
    """Tokens that would complete an n-gram of this size for a second time in the hypotheses so far, (images,
    rows, length); the same width for all, filled up with padding."""
    if sequences is None or not size or sequences.shape[-1] < size:
        return np.zeros((1, 1, 0), dtype=np.int64)
    length = sequences.shape[-1]
    last = sequences[..., length - size + 1 :]
    found = sequences[..., size - 1 :].copy()
    for offset in range(size - 1):
        same = sequences[..., offset : length - size + 1 + offset] == last[..., offset : offset + 1]
        found[~same] = Vocabulary.pad_id
    return found


def _only_the_end(choices: Choices, required: Required) -> Choices:
    """At the word limit: hypotheses that hold all words end, others are lost."""
    log_probs = choices.asked[..., :1].copy()
    log_probs[:, : -required.beams] = NEVER
    return choices._replace(log_probs=log_probs, tokens=np.full(log_probs.shape, Vocabulary.end_id))


def _end(whole: Candidates, length: int, finished: list[Finished], closed: Bools, beams: int) -> list[int]:
    """Move continuations that took the end token to `finished`; the images that have more of them now."""
    # An end token counts only among the best `beams`: greedy search ends where the end is most likely.
    tokens, scores = whole.tokens[:, :beams], whole.scores[:, :beams]
    images, ranks = np.nonzero((tokens == Vocabulary.end_id) & (scores > NEVER) & ~closed[:, None])
    for image, rank in zip(images.tolist(), ranks.tolist(), strict=True):
        finished[image].add(
            float(scores[image, rank]),
            length,
            int(whole.rows[image, rank]),
            float(whole.log_probs[image, rank]),
        )
    return images.tolist()


def _going(whole: Candidates, beams: int) -> Candidates:
    """The best continuations that do not end."""
    ends = whole.tokens == Vocabulary.end_id
    order = np.argsort(ends, axis=1, kind="stable")[:, :beams]
    going = Candidates._make(np.take_along_axis(part, order, axis=1) for part in whole)
    return going._replace(scores=np.where(going.tokens == Vocabulary.end_id, NEVER, going.scores))


def _pad(best: Candidates, beams: int) -> Candidates:
    """The first `beams`; where there are fewer, filled up with hypotheses that are lost."""
    missing = max(0, beams - best.scores.shape[1])
    if not missing:
        return Candidates._make(part[:, :beams] for part in best)
    shape = (len(best.scores), missing)
    lost = np.full(shape, NEVER)
    rows = np.zeros(shape, dtype=np.int64)
    fill = Candidates(lost, rows, rows + Vocabulary.end_id, lost)
    return best.joined(fill)


def _read(
    history: History, image: int, done: Finished, options: CaptionOptions, required: Required
) -> list[Hypothesis]:
    """The hypotheses of an image, best first, the best one cut if it reached the word limit."""
    assert options.max_words
    if required.beams > 1 and required.groups == 1:
        while done.ended and (cut := history.cut(image, done.best(1)[0], options.max_words)):
            done.replace_best(*cut)
    return [history.read(image, ended) for ended in done.best(required.beams)]
