"""What every part hands on: a caption, its words, and where the model looked for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from captioner.errors import CaptionerError


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """One word of a caption."""

    text: str
    log_prob: float
    """Natural logarithm of the word's probability given the image and the words before it."""
    attention: npt.NDArray[np.float32] | None = None
    """(rows, columns) over the whole image as given, top row first; non-negative; sums to
    1 - (sentinel or 0). None when maps were not asked for."""
    sentinel: float | None = None
    """Share of the attention that went to no place in the image (Lu et al. 2017), where the model
    has a visual sentinel; else None."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A caption that the search ranked below the best."""

    text: str
    log_prob: float


@dataclass(frozen=True, slots=True, eq=False)
class Caption:
    """A caption of one image."""

    text: str
    log_prob: float
    """Sum over the words and the end token, natural logarithm."""
    words: tuple[Word, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    """Best first, without the caption itself."""
    model: str = ""
    """NAME@DIGEST of the bundle."""
    source: Any = field(default=None, repr=False)
    """The image as the caller gave it (path, bytes or PIL image), so that a caption can show itself."""

    def of(self, source: Any) -> Caption:
        """This caption, knowing the image it is of."""
        return dataclasses.replace(self, source=source)

    def plot(self, columns: int = 5) -> Any:
        """Draw the photo and a panel a word with matplotlib; see `captioner.overlay.notebook.plot`."""
        from captioner.overlay import notebook

        return notebook.plot(self, columns)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from captioner.overlay import notebook

        return notebook.to_html(self)

    def to_dict(self, image: str, *, words: bool = True, alternatives: bool = True) -> dict[str, Any]:
        """The JSON form that the command line prints, `image` being the name to show."""
        record: dict[str, Any] = {"image": image, "caption": self.text, "log_prob": _short(self.log_prob)}
        if words:
            record["words"] = [_word_to_dict(word) for word in self.words]
        if alternatives:
            record["alternatives"] = [
                {"caption": other.text, "log_prob": _short(other.log_prob)} for other in self.alternatives
            ]
        record["model"] = self.model
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Caption:
        """The inverse of `to_dict`; parts that were left out stay empty. Raises `KeyError` for a
        record without a caption."""
        return cls(
            text=record["caption"],
            log_prob=record["log_prob"],
            words=tuple(_word_from_dict(word) for word in record.get("words", ())),
            alternatives=tuple(
                Alternative(other["caption"], other["log_prob"]) for other in record.get("alternatives", ())
            ),
            model=record.get("model", ""),
            source=record.get("image"),
        )


def error_to_dict(image: str, error: CaptionerError) -> dict[str, Any]:
    """The JSON form of an image that could not be captioned."""
    return {"image": image, "error": {"code": error.code, "message": str(error)}}


def _word_to_dict(word: Word) -> dict[str, Any]:
    record: dict[str, Any] = {"text": word.text, "log_prob": _short(word.log_prob)}
    if word.attention is not None:
        record["attention"] = [[_short(value) for value in row] for row in word.attention.tolist()]
    if word.sentinel is not None:
        record["sentinel"] = _short(word.sentinel)
    return record


def _word_from_dict(record: Mapping[str, Any]) -> Word:
    attention = record.get("attention")
    return Word(
        text=record["text"],
        log_prob=record["log_prob"],
        attention=None if attention is None else np.asarray(attention, dtype=np.float32),
        sentinel=record.get("sentinel"),
    )


def _short(value: float) -> float:
    # Seven significant digits hold a float32; more would only swell the JSON.
    return float(f"{value:.7g}")
