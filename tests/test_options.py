"""The specifications of the caption options, from which every interface derives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from captioner.errors import OptionsError
from captioner.options import BUNDLE_OPTIONS, FALLBACK, OPTION_SPECS, CaptionOptions, OptionSpec


def test_what_a_bundle_may_set_has_a_default_where_it_does_not() -> None:
    assert all(getattr(CaptionOptions(), name) is None for name in BUNDLE_OPTIONS)
    resolved = CaptionOptions(beam_size=5).resolve(CaptionOptions(max_words=7))
    assert (resolved.beam_size, resolved.max_words) == (5, 7)
    assert resolved.length_normalization == OPTION_SPECS["length_normalization"].default
    assert all(getattr(resolved, name) == getattr(resolved.resolve(FALLBACK), name) for name in OPTION_SPECS)
    with pytest.raises(ValueError, match="needs a default"):
        OptionSpec(kind=int, help="anything", in_bundle=True)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("beam_size", "5", 5), ("include", "a, b", ("a", "b")), ("attention_size", "7X9", (7, 9))]
    + [("attention", text, text.lower() in ("true", "1")) for text in ("true", "False", "1", "0")],
)
def test_options_are_read_from_texts(name: str, text: str, expected: object) -> None:
    assert OPTION_SPECS[name].parse(text) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [("beam_size", "1_0"), ("include", " , "), ("attention_size", "axb"), ("attention", "yes")],
)
def test_texts_that_stand_for_no_value_are_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError):
        OPTION_SPECS[name].parse(text)


@pytest.mark.parametrize(
    ("words", "beam", "limit", "expected"),
    [(0, None, 16, 3), (1, None, 16, 8), (3, None, 16, 8), (4, None, 16, 4), (2, 3, 16, 3), (2, None, 4, 4)],
)
def test_words_to_include_get_a_wider_beam(words: int, beam: int | None, limit: int, expected: int) -> None:
    asked = CaptionOptions(include=("a", "b", "c", "d")[:words], beam_size=beam)
    assert asked.resolve(CaptionOptions(beam_size=3), limit).beam_size == expected


def test_numbers_of_numpy_are_numbers() -> None:
    """As they come from its arrays, and from columns of tables."""
    given = CaptionOptions(
        beam_size=np.int64(3),  # type: ignore[arg-type]
        length_normalization=np.float32(0.5),  # type: ignore[arg-type]
        attention_size=tuple(np.array([7, 9])),
    )
    plain = CaptionOptions(beam_size=3, length_normalization=0.5, attention_size=(7, 9))
    assert given == plain and repr(given) == repr(plain)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"beam_size": value} for value in (np.int64(0), np.float64(3), np.bool_(True), True, "3")),
        *({"length_normalization": value} for value in (np.float32("nan"), np.complex64(1), True)),
        {"attention_size": (np.int64(7), np.float64(9))},
    ],
)
def test_other_values_of_numpy_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionsError) as caught:
        CaptionOptions(**wrong)
    assert caught.value.field in wrong
