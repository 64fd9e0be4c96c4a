"""Results that every part of the library shares: a caption, its words, and where the model looked."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from captioner.errors import CaptionerError
from captioner.maps import notebook
from captioner.options import check_style
from captioner.words.alt_text import alt_text, neutral_keywords

MaybeNone: TypeAlias = Any
"""Marks a value that is None only if the caller asked for that. Type checkers then do not demand a check at
every use (the convention of typeshed)."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a caption. Words are equal when their text, numbers and maps are."""

    text: str
    log_prob: float
    """Natural logarithm of the word's probability given the image and the words before it, in the
    distribution that the search used."""
    attention: npt.NDArray[np.float32] | MaybeNone = None
    """(rows, columns) over the whole image as given, top row first; non-negative; sums to
    1 - (sentinel or 0). None if maps were not requested (`attention=False`)."""
    sentinel: float | None = None
    """Share of the attention that fell on the visual sentinel instead of the image (Lu et al. 2017); None
    for models without one."""
    token: int | MaybeNone = None
    """Number of the word that the model chose, in its vocabulary; `text` differs from that word where an
    English article was corrected ("an orange", "some milk"). None unless the model is in this process."""

    @property
    def probability(self) -> float:
        """The word's probability, 0 to 1."""
        return math.exp(min(self.log_prob, 0.0))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form of the word in `Caption.to_dict`."""
        record: dict[str, Any] = {"text": self.text, "log_prob": _short(self.log_prob)}
        if self.attention is not None:
            record["attention"] = [[_short(value) for value in row] for row in self.attention.tolist()]
        if self.sentinel is not None:
            record["sentinel"] = _short(self.sentinel)
        return record

    def __str__(self) -> str:
        return self.text

    def __format__(self, spec: str) -> str:
        return format(self.text, spec)

    def __repr__(self) -> str:
        return f"Word({self.text!r}, probability={self.probability:.2f})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Word):
            return NotImplemented
        if (self.text, self.log_prob, self.sentinel) != (other.text, other.log_prob, other.sentinel):
            return False
        if self.attention is None or other.attention is None:
            return self.attention is other.attention
        return bool(np.array_equal(self.attention, other.attention))

    def __hash__(self) -> int:
        return hash((self.text, self.log_prob, self.sentinel))


@dataclass(frozen=True, slots=True)
class Alternative:
    """A caption that the search ranked below the best."""

    text: str
    log_prob: float

    def __str__(self) -> str:
        return self.text

    def __format__(self, spec: str) -> str:
        return format(self.text, spec)


@dataclass(frozen=True, slots=True)
class Caption:
    """A caption of one image. `str(caption)` is its text; captions compare by content, not by source."""

    text: str
    log_prob: float
    """Sum over the words and the end token, natural logarithm, in the distribution that the search used: for
    models with word detection it includes the bonus of detected words."""
    words: tuple[Word, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    """Best first, without the caption itself."""
    model: str = ""
    """NAME@DIGEST of the bundle."""
    source: Any = field(default=None, compare=False)
    """The image as the caller gave it (path, bytes, Pillow image or array; the bytes of a file object), so
    that a caption can show itself."""
    confidence: float | None = None
    """Calibrated probability, 0 to 1, that the caption is good; None where the bundle has no calibration."""

    keywords: tuple[str, ...] = ()
    """Names of things in the photo, if they were requested: first those of the caption."""

    def __str__(self) -> str:
        return self.text

    def __format__(self, spec: str) -> str:
        return format(self.text, spec)

    def __repr__(self) -> str:
        sure = "" if self.confidence is None else f", confidence={self.confidence:.2f}"
        return f"Caption({self.text!r}, log_prob={self.log_prob:.2f}{sure})"

    @property
    def alt_text(self) -> str:
        """The caption as alt text for screen readers: one sentence of at most 125 characters that begins with
        what is in the photo and does not guess the gender of people."""
        return alt_text(self.text)

    def in_style(self, style: str) -> Caption:
        """This caption, its alternatives and its keywords in a style of `captioner.options.STYLES`; the
        words stay as the model gave them. Raises `OptionsError` for another style."""
        check_style(style)
        if style == "caption":
            return self
        others = (dataclasses.replace(one, text=alt_text(one.text)) for one in self.alternatives)
        keywords = tuple(neutral_keywords(self.keywords))
        return dataclasses.replace(self, text=self.alt_text, alternatives=tuple(others), keywords=keywords)

    def of(self, source: Any) -> Caption:
        """This caption with its source image attached."""
        return dataclasses.replace(self, source=source)

    def plot(self, columns: int = 5) -> Any:
        """Draw the photo and one panel per word with matplotlib; see `captioner.maps.notebook.plot`."""
        return notebook.plot(self, columns)

    def _repr_html_(self) -> str:
        """The display in a notebook."""
        return notebook.to_html(self)

    def to_dict(
        self, image: str | None = None, *, words: bool = True, alternatives: bool = True
    ) -> dict[str, Any]:
        """The JSON form that the command line prints.

        `image` is the name to write; by default it is the path of the source, and left out if there is none.
        """
        record: dict[str, Any] = {}
        if image is None and isinstance(self.source, (str, os.PathLike)):
            image = os.fsdecode(self.source)
        if image is not None:
            record["image"] = image
        record |= {"caption": self.text, "log_prob": _short(self.log_prob)}
        if words:
            record["words"] = [word.to_dict() for word in self.words]
        if alternatives:
            record["alternatives"] = [
                {"caption": other.text, "log_prob": _short(other.log_prob)} for other in self.alternatives
            ]
        if self.keywords:
            record["keywords"] = list(self.keywords)
        if self.confidence is not None:
            record["confidence"] = round(self.confidence, 4)
        record["model"] = self.model
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Caption:
        """The inverse of `to_dict`; parts that were left out stay empty. Raises `KeyError` for a
        record without a caption."""
        return cls(
            text=record["caption"],
            log_prob=record.get("log_prob", 0.0),
            words=tuple(_word_from_dict(word) for word in record.get("words", ())),
            alternatives=tuple(
                Alternative(other["caption"], other["log_prob"]) for other in record.get("alternatives", ())
            ),
            model=record.get("model", ""),
            source=record.get("image"),
            confidence=record.get("confidence"),
            keywords=tuple(record.get("keywords", ())),
        )


def error_to_dict(image: str, error: CaptionerError) -> dict[str, Any]:
    """The JSON form of an image that could not be captioned."""
    return {"image": image, "error": {"code": error.code, "message": error.reason}}


def _word_from_dict(record: Mapping[str, Any]) -> Word:
    attention = record.get("attention")
    with np.errstate(over="ignore"):  # a weight too large for it becomes infinite
        weights = None if attention is None else np.asarray(attention, dtype=np.float32)
    return Word(
        text=record["text"],
        log_prob=record["log_prob"],
        attention=weights,
        sentinel=record.get("sentinel"),
    )


def _short(value: float) -> float:
    # Seven significant digits represent a float32; more would only lengthen the JSON.
    return float(f"{value:.7g}")
