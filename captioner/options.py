"""What a caller may ask of a captioner: one frozen dataclass, checked where it is made.

Command-line flags and the fields of the gRPC request derive from it. `None` means "as the model's
bundle says", so that a client need not know the model to use its defaults.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from captioner.errors import OptionsError, clip

MAX_BEAM_SIZE = 16
MAX_WORDS = 64
MAX_MAP_SIDE = 64
MAX_HEADS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionOptions:
    """How to search for a caption and what to return with it.

    Raises `OptionsError` (a `ValueError`) when a value is out of its range.
    """

    beam_size: int | None = None
    """Hypotheses kept per image, 1 (greedy) to 16."""
    length_normalization: float | None = None
    """Exponent a of the score log_prob / length ** a that ranks finished hypotheses, 0 to 2;
    0 ranks by probability (Wu et al. 2016, arXiv:1609.08144, without their constant)."""
    max_words: int | None = None
    """Longest caption in words, 1 to 64. One that would be longer is cut where its end was likeliest, a
    greedy one after this many."""
    no_repeat_ngram: int | None = None
    """No n-gram of this many words occurs twice in a caption, 0 (off) to 8."""
    alternatives: int = 0
    """Further captions returned beside the best, 0 to beam_size - 1; there may be fewer when the best was
    cut, as what is left of it may be one of them."""
    attention: bool = True
    """Whether words carry attention maps."""
    attention_size: tuple[int, int] | None = None
    """(rows, columns) the maps are resampled to, each 1 to 64; None leaves the model's grid."""
    attention_head: int | None = None
    """Which head's maps words carry, from 0, where the model has several; None for the mean of all."""

    def __post_init__(self) -> None:
        _check_range("beam_size", self.beam_size, 1, MAX_BEAM_SIZE, int)
        _check_range("length_normalization", self.length_normalization, 0.0, 2.0, float)
        _check_range("max_words", self.max_words, 1, MAX_WORDS, int)
        _check_range("no_repeat_ngram", self.no_repeat_ngram, 0, 8, int)
        _check_range("alternatives", self.alternatives, 0, MAX_BEAM_SIZE - 1, int)
        if self.beam_size is not None and self.alternatives >= self.beam_size:
            raise OptionsError(
                f"alternatives must be less than beam_size, got {self.alternatives} with a beam of "
                f"{self.beam_size}",
                "alternatives",
            )
        if self.attention_size is not None:
            if len(self.attention_size) != 2:
                raise OptionsError("attention_size must be (rows, columns)", "attention_size")
            for side in self.attention_size:
                _check_range("attention_size", side, 1, MAX_MAP_SIDE, int)
        _check_range("attention_head", self.attention_head, 0, MAX_HEADS - 1, int)

    def resolve(self, defaults: CaptionOptions) -> CaptionOptions:
        """These options with every `None` taken from `defaults`.

        A beam that the caller did not choose grows to hold the alternatives that were asked for.
        """
        values = {
            field.name: getattr(defaults, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) is None
        }
        if self.beam_size is None:
            values["beam_size"] = max(defaults.beam_size or 1, self.alternatives + 1)
        return dataclasses.replace(self, **values)

    def check_head(self, heads: int) -> None:
        """Raises `OptionsError` if `attention_head` asks for one that a model with `heads` lacks."""
        if self.attention_head is None or self.attention_head < heads:
            return
        has = f"its heads are 0 to {heads - 1}" if heads > 1 else "its attention has one head"
        raise OptionsError(f"the model has no attention_head {self.attention_head}: {has}", "attention_head")


def _check_range(name: str, value: Any, low: float, high: float, kind: type) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int):
        raise OptionsError(f"{name} must be a number from {low} to {high}, got {clip(repr(value))}", name)
    if not low <= value <= high:  # also false for NaN
        raise OptionsError(f"{name} must be from {low} to {high}, got {value}", name)


FALLBACK = CaptionOptions(beam_size=3, length_normalization=0.0, max_words=20, no_repeat_ngram=0)
"""What is used where neither the caller nor the bundle says anything."""
