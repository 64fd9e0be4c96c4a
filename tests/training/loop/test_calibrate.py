"""Confidence that is fitted in training."""

from __future__ import annotations

import numpy as np
import pytest

from captioner.model.calibration import Calibration
from captioner.references import CaptionedImage
from captioner.training.data.examples import Example
from captioner.training.loop.calibrate import FEWEST, NAMED, Said, calibrate, fit_platt


def said(word: str, log_prob: float, certainty: float | None = None) -> Said:
    return Said(f"a {word}", log_prob, certainty)


def example(number: int, words: tuple[str, ...] = (), captions: tuple[str, ...] = ()) -> Example:
    image = CaptionedImage(f"{number}.jpg", captions, "", words=words)
    return Example(image, "s", 1, None)  # type: ignore[arg-type]


def test_the_curve_is_the_one_that_the_events_were_drawn_from() -> None:
    random = np.random.default_rng(0)
    scores = random.normal(size=20_000)
    good = random.random(20_000) < 1 / (1 + np.exp(-(2 * scores - 0.5)))
    assert fit_platt(scores, good) == pytest.approx((2, -0.5), abs=0.1)


def test_labelled_photos_are_good_if_one_of_their_words_is_said() -> None:
    random = np.random.default_rng(1)
    photos = [example(number, ("garden snail", "snail")) for number in range(2 * FEWEST)]
    words = ["snail" if random.random() < 0.5 else "dog" for _ in photos]
    found = [said(word, -2 if word == "snail" else -6) for word in words]
    entry = calibrate(photos, found)
    assert entry is not None and entry["slope"] > 1
    assert calibrate(photos[: FEWEST - 1], found[: FEWEST - 1]) is None
    assert calibrate(photos, [said("dog", -3)] * len(photos)) is None


def captioned(count: int) -> tuple[list[Example], list[Said]]:
    """Photos and captions, of which every other one is right, and likely."""
    names = ("dog", "cat", "snail")
    photos, found = [], []
    for number in range(count):
        name, right = names[number % 3], number % 2 == 0
        photos.append(example(number, captions=(f"a {name}", f"one {name}", f"a {name} there")))
        found.append(said(name if right else names[(number + 1) % 3], -2 if right else -5))
    return photos, found


def test_captioned_photos_are_good_if_close_to_people() -> None:
    photos, found = captioned(2 * FEWEST)
    entry = calibrate(photos, found)
    assert entry is not None and entry["slope"] > 1
    alone = [example(number, captions=("a dog",)) for number in range(2 * FEWEST)]
    assert calibrate(alone, found) is None


def test_labelled_photos_decide_only_where_captioned_ones_are_few() -> None:
    photos, found = captioned(FEWEST)
    labelled = [example(FEWEST + number, ("snail",)) for number in range(FEWEST)]
    named = [said("snail", -9)] * (FEWEST - 1) + [said("dog", -2)]
    assert calibrate([*photos, *labelled], [*found, *named]) == calibrate(photos, found) is not None
    entry = calibrate([*photos[:9], *labelled], [*found[:9], *named])
    assert entry is not None and entry["event"] == NAMED


def test_captions_of_what_the_model_does_not_know_are_told_by_their_certainty() -> None:
    """Words alone do not tell them from the others."""
    photos, found = captioned(2 * FEWEST)
    found = [said(text.removeprefix("a "), -3, -1 if p > -3 else -5) for text, p, _ in found]
    entry = calibrate(photos, found)
    calibration = Calibration.of({"confidence": entry})
    assert calibration is not None and calibration.with_certainty is not None
    known, unknown = (calibration.confidence("a dog", -3, certainty) for certainty in (-1.0, -5.0))
    assert known > 0.9 and unknown < 0.1
    assert calibration.confidence("a dog", -3) == pytest.approx(0.5, abs=0.05)
