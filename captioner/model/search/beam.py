"""Caption search: batched greedy and beam search over a step function, for PyTorch and ONNX alike.

The search knows a decoder only as a `Stepper`. It keeps, for each step, what was chosen and from where;
captions and the maps of their words are read at the end by following these links back. An image whose
captions are found leaves the batch. Each image may have its own options: images with the same number of
hypotheses are searched together, whatever their other options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from captioner.model.search.avoided import Avoided
from captioner.model.search.choices import NEVER, Choices, Floats, Ints, StepRequest
from captioner.model.search.history import Finished, History, Hypothesis
from captioner.model.search.including import Bools, Candidates, Misfits, Required
from captioner.model.vocabulary import Vocabulary
from captioner.options import CaptionOptions

Doubles = npt.NDArray[np.float64]

_SPECIAL = np.array((Vocabulary.pad_id, Vocabulary.start_id, Vocabulary.unknown_id))
_NEVER_FIRST = np.array((*_SPECIAL.tolist(), Vocabulary.end_id))
_NONE = Avoided()
_SHRINK_AT = 0.75
"""A batch is made smaller when no more than this share of its images is left: to copy what is kept of the
others costs about as much as a step."""


class Stepper(Protocol):
    """A decoder with an encoded batch of images. Its state is opaque to the search."""

    def start(self, beams: int) -> Any:
        """The state before the first word, with `beams` hypotheses per image."""

    def choose(self, tokens: Ints, state: Any, request: StepRequest) -> tuple[Choices, Floats, Any]:
        """Read the last tokens, (images, beams). Returns the requested continuations, the attention that
        it was decided with, (images, beams, cells), and the new state."""

    def reorder(self, state: Any, parents: Ints) -> Any:
        """The state in which beam b of image i continues beam parents[i, b]."""

    def select(self, images: Ints) -> Stepper:
        """The decoder with these images only, by their indices."""

    def keep(self, state: Any, images: Ints) -> tuple[Stepper, Any] | None:
        """The same as `select`, with the state of these images; None if that costs more than it saves."""


class _Rules(NamedTuple):
    """Options that may differ between images that are searched together, (images,) each."""

    max_words: Ints
    no_repeat: Ints
    """The length of n-grams that may not occur twice, 0 for any."""
    longest: Doubles
    """Divisor of the log-probability that ranks the longest caption."""

    @classmethod
    def of(cls, options: Sequence[CaptionOptions]) -> _Rules:
        words = [one.max_words or 0 for one in options]
        longest = [
            (most + 1) ** (one.length_normalization or 0.0) for most, one in zip(words, options, strict=True)
        ]
        return cls(
            np.array(words), np.array([one.no_repeat_ngram or 0 for one in options]), np.array(longest)
        )

    def keep(self, images: Ints) -> _Rules:
        return _Rules._make(part[images] for part in self)


def search(
    stepper: Stepper, images: int, options: CaptionOptions, include: Sequence[Sequence[int]] = ()
) -> list[list[Hypothesis]]:
    """`search_each` with the same options for all images, and the same words to include."""
    return search_each(stepper, [options] * images, [include] * images)


def search_each(
    stepper: Stepper,
    options: Sequence[CaptionOptions],
    include: Sequence[Sequence[Sequence[int]]],
    misfits: Misfits | None = None,
    avoided: Avoided = _NONE,
) -> list[list[Hypothesis]]:
    """The best `alternatives + 1` hypotheses of each image, best first: at least one, or none for an image
    whose log-probabilities are not finite. They do not depend on the other images and their options.

    The options must be resolved. `include` holds, for each image, the words that its captions must contain,
    at most `max_words`, each as the tokens of which one is enough. `misfits` are places where they may not
    stand, and `avoided` phrases that no caption contains, unless there is no other caption with these words.

    A beam of 1 is greedy search. Hypotheses are ranked by log_prob / length ** length_normalization, the end
    token counting in both. At the word limit the end token is the only choice left, so that every caption has
    one. The best is then cut after the word where its end was likeliest, or it would stop in mid-sentence; if
    that part has ended by itself before, there is one hypothesis less. A greedy one is not cut: its words may
    have been streamed; nor is one that must contain words, which it might lose.

    The best does not depend on how many alternatives are asked for: more than the beam holds come from a
    second, wider search.
    """
    together: dict[tuple[int, int], list[int]] = {}  # images by the hypotheses that a search for them keeps
    for image, one in enumerate(options):
        assert one.beam_size and one.max_words  # resolved
        for beams in sorted({one.beam_size, max(one.beam_size, one.alternatives + 1)}):
            together.setdefault((beams, len(include[image])), []).append(image)
    found: dict[tuple[int, int], list[Hypothesis]] = {}  # by image and beam
    for (beams, _), images in together.items():
        part = stepper if len(images) == len(options) else stepper.select(np.array(images))
        required = Required([include[image] for image in images], beams, misfits)
        several = _search(part, [options[image] for image in images], required, avoided)
        found |= {(image, beams): one for image, one in zip(images, several, strict=True)}
    best = [_best(found, image, one)[: one.alternatives + 1] for image, one in enumerate(options)]
    lost = [image for image, own in enumerate(best) if not own and include[image]]
    if lost and (misfits or avoided):
        part = stepper.select(np.array(lost))
        again = search_each(part, [options[i] for i in lost], [include[i] for i in lost])
        for image, own in zip(lost, again, strict=True):
            best[image] = own
    return best


def _best(
    found: Mapping[tuple[int, int], list[Hypothesis]], image: int, options: CaptionOptions
) -> list[Hypothesis]:
    """The hypotheses of an image: the best of its narrow search, then all others of both searches, ranked."""
    assert options.beam_size
    own = found[image, options.beam_size]
    if not own or options.alternatives < options.beam_size:
        return own
    alpha = options.length_normalization or 0.0
    others = {one.tokens: one for one in [*found[image, options.alternatives + 1], *own]}
    others.pop(own[0].tokens)
    ranked = sorted(others.values(), key=lambda one: -one.log_prob / len(one.log_probs) ** alpha)
    return [own[0], *ranked]


def _search(
    stepper: Stepper, options: Sequence[CaptionOptions], required: Required, avoided: Avoided
) -> list[list[Hypothesis]]:
    """The best that ended for each image, best first: as many as its options want, of those that the beam
    holds."""
    images, beams = len(options), required.beams
    rows = required.groups * beams
    rules = _Rules.of(options)
    found: list[list[Hypothesis]] = [[] for _ in options]
    places = np.arange(images)  # in `found`, of the images in the batch
    finished = [
        # All that the beam holds, where others come from a wider search (`_best`).
        Finished(min(beams, one.alternatives + 1), one.length_normalization or 0.0, greedy=beams == 1)
        for one in options
    ]
    to_beat = np.full(images, -np.inf)
    closed = np.zeros(images, dtype=np.bool_)
    history = History()
    state = stepper.start(rows)
    tokens = np.full((images, rows), Vocabulary.start_id, dtype=np.int64)
    totals = np.full((images, rows), NEVER, dtype=np.float32)
    totals[:, 0] = 0.0  # the beams start equal: only one of them may spread
    for length in range(int(rules.max_words.max()) + 1):
        barred = _barred(history.sequences, rules.no_repeat, avoided)
        request = _request(tokens, barred, length, required)
        choices, attention, state = stepper.choose(tokens, state, request)
        history.add_step(attention, choices.tracked[..., 0])
        full = rules.max_words <= length
        if full.any():
            choices = _only_the_end(choices, full, required)
        *partial, whole = required.groups_of(tokens, totals, choices, barred, full)
        for image in _end(whole, length, finished, closed, beams):
            to_beat[image] = finished[image].to_beat
        first, *others = (_pad(best, beams) for best in (*partial, _going(whole, beams)))
        totals, kept, tokens, log_probs = first.joined(*others)
        # A total only falls and a length only grows to the limit: no live beam can end above this.
        bound = totals.max(axis=1).astype(np.float64) / rules.longest
        done = (bound <= to_beat) | ~np.isfinite(totals).any(axis=1) | full
        for image in np.flatnonzero(done & ~closed).tolist():
            found[places[image]] = _read(history, image, finished[image], rules, required)
        closed |= done
        if closed.all():
            break
        history.add_choices(tokens, kept, log_probs)
        state = stepper.reorder(state, kept)
        going = np.flatnonzero(~closed)
        if len(going) <= _SHRINK_AT * len(closed) and (smaller := stepper.keep(state, going)):
            stepper, state = smaller
            history.keep(going)
            rules, required = rules.keep(going), required.keep(going)
            finished = [finished[image] for image in going]
            tokens, totals, places = tokens[going], totals[going], places[going]
            to_beat, closed = to_beat[going], closed[going]
    return found


def stream(
    stepper: Stepper, options: CaptionOptions, avoided: Avoided = _NONE
) -> Iterator[tuple[int, float, Floats]]:
    """Greedy search on one image, step by step: token, log-probability and attention (cells,) of each word
    as it is chosen, finally of the end token. The caption is that of `search` with a beam of 1."""
    assert options.max_words  # resolved
    history, required, rules = History(), Required([()], 1), _Rules.of([options])
    state = stepper.start(1)
    tokens = np.full((1, 1), Vocabulary.start_id, dtype=np.int64)
    here = np.zeros((1, 1), dtype=np.int64)
    for length in range(options.max_words + 1):
        barred = _barred(history.sequences, rules.no_repeat, avoided)
        request = _request(tokens, barred, length, required)
        choices, attention, state = stepper.choose(tokens, state, request)
        if length == options.max_words:
            choices = _only_the_end(choices, rules.max_words <= length, required)
        tokens, log_probs = choices.tokens[..., 0], choices.log_probs[..., 0]
        chosen = int(tokens[0, 0])
        yield chosen, float(log_probs[0, 0]), attention[0, 0]
        if chosen == Vocabulary.end_id:
            return
        history.add_choices(tokens, here, log_probs)


def _request(tokens: Ints, barred: Ints, length: int, required: Required) -> StepRequest:
    """The request for the word after `length` others. The first of the tracked tokens is the end."""
    parts = (_NEVER_FIRST if length == 0 else _SPECIAL, required.forbidden, barred)
    forbidden = np.empty((*tokens.shape, sum(part.shape[-1] for part in parts)), dtype=np.int64)
    begin = 0
    for part in parts:
        end = begin + part.shape[-1]
        forbidden[..., begin:end] = part
        begin = end
    return StepRequest(2 * required.beams, forbidden, required.tracked)


def _barred(sequences: Ints | None, no_repeat: Ints, avoided: Avoided) -> Ints:
    """Tokens that may not follow the hypotheses so far, because they would complete a repeated n-gram or an
    avoided phrase: (images, rows, any), filled up with padding."""
    parts = [] if sequences is None else [*_repeats(sequences, no_repeat), *avoided.after(sequences)]
    return np.concatenate(parts, axis=-1) if parts else np.zeros((1, 1, 0), dtype=np.int64)


def _repeats(sequences: Ints, sizes: Ints) -> Iterator[Ints]:
    """Tokens that would complete an n-gram, of each image's size, for a second time in the hypotheses so far:
    (images, rows, any) for each size, the same width for all images, filled up with padding."""
    length = sequences.shape[-1]
    for size in sorted(set(sizes.tolist())):
        if 0 < size <= length:
            last = sequences[..., length - size + 1 :]
            same = (sizes == size)[:, None, None]
            for offset in range(size - 1):
                before = sequences[..., offset : length - size + 1 + offset]
                same = same & (before == last[..., offset : offset + 1])
            yield np.where(same, sequences[..., size - 1 :], Vocabulary.pad_id)


def _only_the_end(choices: Choices, full: Bools, required: Required) -> Choices:
    """At their word limit, hypotheses that contain all required words end; the others are dropped."""
    log_probs, tokens = choices.log_probs.copy(), choices.tokens.copy()
    log_probs[full] = NEVER
    log_probs[full, -required.beams :, 0] = choices.tracked[full, -required.beams :, 0]
    tokens[full, :, 0] = Vocabulary.end_id
    return choices._replace(log_probs=log_probs, tokens=tokens)


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
    going = whole.take(order)
    return going._replace(scores=np.where(going.tokens == Vocabulary.end_id, NEVER, going.scores))


def _pad(best: Candidates, beams: int) -> Candidates:
    """The first `beams`; if there are fewer, padded with dropped hypotheses."""
    missing = beams - best.scores.shape[1]
    if missing <= 0:
        return best if missing == 0 else Candidates._make(part[:, :beams] for part in best)
    shape = (len(best.scores), missing)
    lost = np.full(shape, NEVER)
    rows = np.zeros(shape, dtype=np.int64)
    fill = Candidates(lost, rows, rows + Vocabulary.end_id, lost)
    return best.joined(fill)


def _read(
    history: History, image: int, done: Finished, rules: _Rules, required: Required
) -> list[Hypothesis]:
    """The hypotheses of an image, best first, the best one cut if it reached the word limit."""
    limit = int(rules.max_words[image])
    if required.beams > 1 and required.groups == 1:
        while done.ended and (cut := history.cut(image, done.best(1)[0], limit)):
            done.replace_best(*cut)
    return [history.read(image, ended) for ended in done.best(done.wanted)]
