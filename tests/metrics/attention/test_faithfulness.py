"""The causal test of attention, on a decoder whose words depend on known cells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from captioner.errors import BundleError, DataError, OptionsError
from captioner.metrics.attention.faithfulness import Probe, ProbeOptions, without_places
from captioner.metrics.attention.maps import correlation, divergence, perplexity
from captioner.model.search.choices import Floats, Ints
from captioner.model.vocabulary import SPECIAL, Vocabulary

CELLS = 20
WORDS = Vocabulary([*SPECIAL, "the", "dog", "cat"])
THE, DOG, CAT = 4, 5, 6
NEEDS = {DOG: 3, CAT: 7}
"""The cell that a word depends on. "the" depends on none."""
FALL = 2.0


@dataclass(frozen=True)
class Needy:
    """Says "dog" less gladly by `FALL` when it cannot see cell 3, "cat" when it cannot see cell 7, and both
    when all cells look the same. Its state is how many steps it took."""

    maps: list[list[Floats]]
    """Where it looks in each image, at each step."""
    memory: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def images(self) -> int:
        return len(self.maps)

    def __post_init__(self) -> None:
        if not self.memory:
            cells = np.tile(np.arange(CELLS, dtype=np.float32), (self.images, 1))[..., None]
            self.memory.update(mask=np.ones((self.images, CELLS), dtype=bool), keys=cells)

    def start(self, beams: int) -> int:
        assert beams == 1
        return 0

    def step(self, tokens: Ints, state: int) -> tuple[Floats, Floats, int]:
        assert tokens.shape == (self.images, 1)
        log_probs = np.full((self.images, 1, len(WORDS)), -5.0, dtype=np.float32)
        for word, cell in NEEDS.items():
            seen = self.memory["mask"][:, cell] & (np.ptp(self.memory["keys"], axis=(1, 2)) > 0)
            log_probs[:, 0, word] = np.where(seen, -1.0, -1.0 - FALL)
        # What was said before must be what the caption says, or nothing here means anything.
        log_probs[:, 0, CAT] -= 10.0 * ((tokens[:, 0] != DOG) & (state > 0))
        maps = [looked[state] if state < len(looked) else looks_at(0) for looked in self.maps]
        return log_probs, np.stack(maps)[:, None], state + 1

    def reorder(self, state: int, parents: Ints) -> int:
        raise AssertionError("one caption an image needs no reordering")

    def with_memory(self, changes: Mapping[str, np.ndarray]) -> Needy:
        return replace(self, memory={**self.memory, **changes})


def looks_at(*cells: int, share: float = 1.0) -> Floats:
    weights = np.zeros(CELLS, dtype=np.float32)
    weights[list(cells)] = share / len(cells)
    return weights


def probe(captions: list[list[int]], maps: list[list[Floats]], **options: Any) -> dict[str, float]:
    test = Probe(WORDS, ProbeOptions(**options))
    test.add(Needy(maps), captions)
    return dict(test.result(samples=50).values)


def test_an_honest_map_falls_and_its_controls_do_not() -> None:
    values = probe([[DOG, CAT]] * 50, [[looks_at(3), looks_at(7)]] * 50, draws=20)
    assert values["fall_top"] == FALL
    assert values["fall_random"] == pytest.approx(FALL / CELLS, rel=0.3)
    assert values["fall_shuffled"] == 0
    assert values["fall_uniform"] == FALL
    assert values["top_to_random"] == values["fall_top"] / values["fall_random"]
    assert values["top_to_shuffled"] == FALL / 1e-4
    assert values["hidden"] == pytest.approx(1 / CELLS)


def test_a_map_that_lies_falls_no_more_than_chance() -> None:
    values = probe([[DOG, CAT]] * 50, [[looks_at(11), looks_at(12)]] * 50)
    assert values["fall_top"] == values["fall_shuffled"] == 0


def test_a_map_of_another_word_is_told_apart_from_ones_own() -> None:
    values = probe([[DOG, CAT]] * 5, [[looks_at(7), looks_at(3)]] * 5)
    assert values["fall_top"] == 0
    assert values["fall_shuffled"] == FALL


def test_a_map_that_singles_nothing_out_is_as_good_as_chance() -> None:
    # The cells that matter are neither the first nor the last.
    values = probe([[DOG, CAT]] * 300, [[looks_at(*range(CELLS))] * 2] * 300)
    assert values["fall_top"] == pytest.approx(FALL / 4, rel=0.2)
    assert values["top_to_random"] == pytest.approx(1, rel=0.2)


def test_content_and_function_words_are_measured_apart() -> None:
    captions = [[THE, DOG], [THE], [DOG, CAT, THE]]
    maps = [
        [looks_at(1, share=0.25), looks_at(3)],
        [looks_at(1, 2)],
        [looks_at(3), looks_at(7), looks_at(0, 3)],
    ]
    values = probe(captions, maps)
    assert values["content_fall_top"] == FALL
    assert values["function_fall_top"] == 0
    assert values["fall_top"] == FALL / 2
    assert values["function_sentinel"] == pytest.approx(0.75 / 3)
    assert values["content_sentinel"] == 0
    assert values["function_perplexity"] == pytest.approx((1 + 2 + 2) / 3)


def test_as_many_cells_are_hidden_as_hold_the_share_within_the_limit() -> None:
    sharp = np.array([0.4, 0.2, 0.2, *[0.2 / 17] * 17], dtype=np.float32)
    for share, most, hidden in [(0.3, 0.5, 1), (0.5, 0.5, 2), (0.6, 0.5, 2), (0.61, 0.5, 3), (1.0, 0.25, 5)]:
        values = probe([[DOG]], [[sharp]], share=share, most=most)
        assert values["hidden"] == pytest.approx(hidden / CELLS)
    assert probe([[DOG]], [[looks_at(*range(CELLS))]], most=0.01)["hidden"] == 1 / CELLS


def test_cells_that_were_hidden_before_stay_so_and_count_for_nothing() -> None:
    half = np.arange(CELLS) < CELLS // 2
    stepper = Needy([[looks_at(*np.flatnonzero(half))]])
    stepper.memory["mask"][:] = half
    test = Probe(WORDS, ProbeOptions(share=1.0, most=0.5))
    test.add(stepper, [[DOG]])
    assert test.result(10).values["hidden"] == 5 / 10
    assert (without_places(stepper.memory)["keys"][0, :, 0] == np.arange(10).mean()).all()


def test_maps_are_compared_over_the_cells_there_are() -> None:
    """Two maps that have nothing but their padding in common have nothing in common."""
    half = np.arange(CELLS) < CELLS // 2
    maps = [looks_at(*range(5)), looks_at(*range(5, 10))]
    stepper = Needy([maps])
    stepper.memory["mask"][:] = half
    test = Probe(WORDS)
    test.add(stepper, [[DOG, CAT]])
    assert test.result(10).values["correlation"] == pytest.approx(-1)


def test_batches_add_up_to_the_whole() -> None:
    captions, maps = [[DOG, CAT], [CAT]], [[looks_at(3), looks_at(7)], [looks_at(8)]]
    parts = Probe(WORDS)
    for caption, looked in zip(captions, maps, strict=True):
        parts.add(Needy([looked]), [caption])
    result = parts.result()
    assert (result.images, result.words) == (2, 3)
    assert result.values["fall_top"] == probe(captions, maps)["fall_top"] == pytest.approx(2 * FALL / 3)
    low, high = result.intervals["fall_top"]
    assert (low, high) == (0, FALL)


def test_what_cannot_be_measured_is_not_a_number_and_null_in_json() -> None:
    test = Probe(WORDS)
    test.add(Needy([[looks_at(3)]]), [[DOG]])
    result = test.result()
    assert math.isnan(result.values["divergence"]) and math.isnan(result.values["function_fall_top"])
    record = result.to_dict()
    assert record["divergence"] is None
    assert record["intervals"]["function_fall_top"] == [None, None]
    assert record["fall_top"] == FALL


def test_old_bundles_no_captions_and_wrong_options_are_refused() -> None:
    old = Needy([[looks_at(3)]])
    del old.memory["mask"]
    with pytest.raises(BundleError, match="export it again"):
        Probe(WORDS).add(old, [[DOG]])
    with pytest.raises(DataError, match="no caption"):
        Probe(WORDS).result()
    for wrong in ({"share": 0}, {"share": 1.5}, {"most": 1.0}, {"most": float("nan")}, {"draws": 0}):
        with pytest.raises(OptionsError):
            ProbeOptions(**wrong)  # type: ignore[arg-type]


def test_spread_and_difference_of_maps() -> None:
    one, other, even = looks_at(0), looks_at(1), looks_at(*range(CELLS))
    np.testing.assert_allclose(perplexity([one, looks_at(2, 3, share=0.1), even]), [1, 2, CELLS], rtol=1e-6)
    assert divergence([one, other]) == pytest.approx(1)
    assert divergence([one, one, 0.5 * one]) == pytest.approx(0)
    mixed = [0.75, 0.25], [0.25, 0.75]
    # By hand: the entropy of (1/2, 1/2) less that of (3/4, 1/4).
    assert divergence(mixed) == pytest.approx(1 - (0.75 * math.log2(4 / 3) + 0.25 * 2))
    assert correlation(mixed) == pytest.approx(-1)
    assert correlation([one, 2 * one]) == pytest.approx(1)
    assert math.isnan(correlation([even, one])) and math.isnan(divergence([one]))
