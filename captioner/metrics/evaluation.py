"""All metrics of a set of captions, with confidence intervals, and the comparison of two such sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from captioner.errors import DataError, clip
from captioner.metrics.bleu import bleu, bleu_statistics
from captioner.metrics.bootstrap import (
    SAMPLES,
    Array,
    Statistics,
    interval,
    mean_of,
    p_value,
    resampled_scores,
)
from captioner.metrics.chair import chair_statistics
from captioner.metrics.cider import CorpusCider
from captioner.metrics.diversity import Diversity, diversity
from captioner.metrics.gender import Gender, gender
from captioner.metrics.meteor import Meteor, meteor_score
from captioner.metrics.rouge import rouge_l
from captioner.metrics.tokenizer import tokenize

Tokens = list[str]
Objects = Mapping[str, Sequence[str]]
"""COCO categories by image."""
Metrics = dict[tuple[str, ...], Statistics]
"""Statistics by the names of the scores that they give."""

_BLEU = ("bleu_1", "bleu_2", "bleu_3", "bleu_4")


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a set of captions, as fractions: a BLEU of 0.25, a CIDEr-D of 0.7."""

    images: int
    values: Mapping[str, float]
    """`bleu_1` to `bleu_4`, `meteor` (or `meteor_exact_stem` and the like, where METEOR's data are not
    installed), `rouge_l`, and `cider`, which is CIDEr-D; given objects also `chair_i`, `chair_s` (both better
    when low) and `object_recall`."""
    intervals: Mapping[str, tuple[float, float]]
    """95% confidence intervals of `values` over images."""
    diversity: Diversity
    gender: Gender

    def to_dict(self) -> dict[str, float]:
        """The number of images, the scores times 100, the statistics of diversity, and how often genders are
        confused, in percent, by name."""
        return {
            "images": self.images,
            **{name: round(100 * value, 4) for name, value in self.values.items()},
            **{name: round(value, 4) for name, value in dataclasses.asdict(self.diversity).items()},
            **self.gender.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """The score of one set of captions minus that of another."""

    value: float
    interval: tuple[float, float]
    """95% confidence interval over images."""
    p_value: float
    """Two-sided p-value from the same paired bootstrap."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sets of captions for the same images."""

    first: Scores
    second: Scores
    differences: Mapping[str, Difference]
    """First minus second."""


def evaluate_captions(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    objects: Objects | None = None,
    meteor: Meteor | bool = True,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Scores:
    """Score captions against references, both by image; all text as people write it, not tokenized.

    `objects`: the COCO categories that are in each image of the references, for CHAIR.
    `meteor`: True takes `Meteor.load()`, False leaves METEOR out (its paraphrases take seconds to read).
    Raises `DataError` when an image of the references has no caption; captions of others are ignored.
    """
    [tokens], truth = _tokenize([candidates], references)
    [measured] = _measure([tokens], truth, _of(references, objects), meteor)
    resampled = resampled_scores(list(measured.values()), samples, seed)
    return _scores(tokens, truth, measured, resampled)


def compare_captions(
    first: Mapping[str, str],
    second: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    objects: Objects | None = None,
    meteor: Meteor | bool = True,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Comparison:
    """Score two sets of captions and their differences, with a paired bootstrap over the same images."""
    tokens, truth = _tokenize([first, second], references)
    measured = _measure(tokens, truth, _of(references, objects), meteor)
    resampled = [resampled_scores(list(metrics.values()), samples, seed) for metrics in measured]
    one, other = (
        _scores(said, truth, metrics, drawn)
        for said, metrics, drawn in zip(tokens, measured, resampled, strict=True)
    )
    differences = {}
    for column, name in enumerate(one.values):
        change = resampled[0][:, column] - resampled[1][:, column]
        value = one.values[name] - other.values[name]
        differences[name] = Difference(value, interval(change), p_value(change))
    return Comparison(one, other, differences)


def check_complete(
    candidates: Mapping[str, str], references: Mapping[str, Sequence[str]], place: str = ""
) -> None:
    """Raise `DataError`, which begins with `place`, if an image of the references has no caption."""
    missing = [image for image in references if image not in candidates]
    if not missing:
        return
    other = next(iter(candidates), None) if len(missing) == len(references) else None
    hint = "" if other is None else f"; its captions are of others, such as {clip(other)}"
    raise DataError(
        f"{place}{len(missing)} of {len(references)} images have no caption, the first is {missing[0]}{hint}"
    )


def _tokenize(
    systems: Sequence[Mapping[str, str]], references: Mapping[str, Sequence[str]]
) -> tuple[list[list[Tokens]], list[list[Tokens]]]:
    """The captions of each system and the references, in the order of the references."""
    if not references:
        raise DataError("there are no references to score against")
    for candidates in systems:
        check_complete(candidates, references)
    empty = next((image for image, captions in references.items() if not captions), None)
    if empty is not None:
        raise DataError(f"{empty} has no reference to score against")
    truth = [[tokenize(caption) for caption in captions] for captions in references.values()]
    return [[tokenize(candidates[image]) for image in references] for candidates in systems], truth


def _of(references: Mapping[str, Sequence[str]], objects: Objects | None) -> list[Sequence[str]] | None:
    """The objects in the order of the references."""
    return None if objects is None else [objects[image] for image in references]


def _measure(
    systems: Sequence[Sequence[Tokens]],
    truth: Sequence[Sequence[Tokens]],
    objects: Sequence[Sequence[str]] | None,
    meteor: Meteor | bool,
) -> list[Metrics]:
    """The metrics of each system."""
    cider = CorpusCider(truth)
    meteor_rows: list[Metrics] = [{} for _ in systems]
    if meteor:
        scorer = Meteor.load() if meteor is True else meteor
        # All systems at once, so that the paraphrase table is read once.
        sums = scorer.statistics([caption for said in systems for caption in said], [*truth] * len(systems))
        meteor_rows = [{(scorer.key,): Statistics(part, _meteor)} for part in np.split(sums, len(systems))]
    measured: list[Metrics] = []
    for captions, of_meteor in zip(systems, meteor_rows, strict=True):
        pairs = list(zip(captions, truth, strict=True))
        measured.append(
            {
                _BLEU: Statistics(np.stack([bleu_statistics(*pair) for pair in pairs]), bleu),
                **of_meteor,
                ("rouge_l",): mean_of([rouge_l(*pair) for pair in pairs]),
                ("cider",): mean_of(cider.scores(range(len(captions)), captions)),
                **({} if objects is None else chair_statistics(captions, objects)),
            }
        )
    return measured


def _meteor(sums: Array) -> Array:
    return meteor_score(sums)[..., None]


def _scores(
    captions: Sequence[Tokens], truth: Sequence[Sequence[Tokens]], measured: Metrics, resampled: Array
) -> Scores:
    names = [name for group in measured for name in group]
    values = np.concatenate([metric.score() for metric in measured.values()])
    return Scores(
        images=len(captions),
        values=dict(zip(names, values.tolist(), strict=True)),
        intervals={name: interval(resampled[:, column]) for column, name in enumerate(names)},
        diversity=diversity(captions),
        gender=gender(captions, truth),
    )
