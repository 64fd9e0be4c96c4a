"""Confidence intervals and paired comparisons."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captioner.errors import DataError
from captioner.metrics import compare_captions, evaluate_captions
from captioner.metrics.bleu import bleu
from captioner.metrics.bootstrap import Statistics, interval, mean_of, p_value, resampled_scores

DOING = ["runs in the snow", "jumps over a fence", "swims in a lake", "sleeps on a sofa", "chews a red ball"]
REFERENCES = {f"image {n}": [f"a dog {DOING[n % 5]}", f"the dog {DOING[n % 5]} there"] for n in range(40)}
GOOD = {image: f"a dog {DOING[n % 5] if n % 3 else 'is outside'}" for n, image in enumerate(REFERENCES)}
BAD = dict.fromkeys(REFERENCES, "a cat sleeps")


def test_the_interval_of_a_mean_is_the_one_of_theory() -> None:
    values = np.random.default_rng(1).normal(5, 2, size=2000)
    low, high = interval(resampled_scores([mean_of(values)], 2000, seed=0)[:, 0])
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)


def test_bleu_is_recomputed_from_the_sums_of_each_resample() -> None:
    # Two kinds of images, of which BLEU-1 is 0 and 1 but that have 1 and 9 words: the mean over images
    # would be 1/2, the corpus has 9/10.
    rows = np.array([[1, 1, 0, 0, 0, 0, 1, 0, 0, 0], [9, 9, 9, 8, 7, 6, 9, 8, 7, 6]] * 50, dtype=float)
    drawn = resampled_scores([Statistics(rows, bleu)], 500, seed=0)[:, 0]
    assert drawn.mean() == pytest.approx(0.9, abs=0.01)


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_a_seed_draws_the_same_again(seed: int) -> None:
    once, again = (
        evaluate_captions(GOOD, REFERENCES, meteor=False, samples=50, seed=seed).intervals for _ in range(2)
    )
    assert once == again


def test_intervals_hold_their_scores_and_narrow_with_images() -> None:
    scores = evaluate_captions(GOOD, REFERENCES, meteor=False)
    for name, (low, high) in scores.intervals.items():
        assert low <= scores.values[name] <= high
    values = np.random.default_rng(0).random(800)
    widths = [np.ptp(interval(resampled_scores([mean_of(values[:n])], 500, 0)[:, 0])) for n in (50, 800)]
    assert widths[1] < widths[0] / 2


def test_a_better_system_is_found_better_and_the_same_is_not() -> None:
    comparison = compare_captions(GOOD, BAD, REFERENCES, meteor=False)
    for name, difference in comparison.differences.items():
        assert difference.value == comparison.first.values[name] - comparison.second.values[name]
        assert difference.interval[0] > 0
        assert difference.p_value < 0.01
    same = compare_captions(GOOD, GOOD, REFERENCES, meteor=False)
    assert {difference.interval for difference in same.differences.values()} == {(0, 0)}
    assert {difference.p_value for difference in same.differences.values()} == {1}


def test_pairing_takes_out_what_both_systems_share() -> None:
    generator = np.random.default_rng(0)
    hardness = generator.normal(0, 1, 500)
    first, second = (mean_of(hardness + shift + generator.normal(0, 0.1, 500)) for shift in (0.05, 0))
    drawn = [resampled_scores([system], 1000, seed=3)[:, 0] for system in (first, second)]
    paired, alone = interval(drawn[0] - drawn[1]), interval(drawn[0])
    assert np.ptp(paired) < np.ptp(alone) / 4
    assert p_value(drawn[0] - drawn[1]) < 0.01


def test_a_missing_caption_or_reference_is_an_error() -> None:
    with pytest.raises(DataError, match="2 of 40 images have no caption, the first is image 3"):
        evaluate_captions({k: v for k, v in GOOD.items() if k not in ("image 3", "image 5")}, REFERENCES)
    with pytest.raises(DataError, match="no reference"):
        evaluate_captions({"a": "a dog"}, {"a": []})
    with pytest.raises(DataError, match="no references"):
        evaluate_captions({"a": "a dog"}, {})
