"""Caption options: the single source from which every interface derives.

Command-line flags, protobuf conversion, Open Inference Protocol parameters and keyword arguments are built
from the fields of `CaptionOptions` and their `OptionSpec`, and so is what a bundle and a training run may
set. To add an option, add a field here and, if it travels to servers, a field of the same name to the
protobuf message `CaptionOptions`.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from captioner.errors import OptionsError, clip

MAX_BEAM_SIZE = 16
MAX_WORDS = 64
MAX_MAP_SIDE = 64
"""Most rows or columns of maps that are resampled for a caller."""
MAX_GRID_SIDE = 256
"""Most rows or columns of a model's grid, and so of any map that a model or a server gives."""
MAX_HEADS = 64
MAX_INCLUDE = 4
_PER_BEAM = 4
MAX_HYPOTHESES = _PER_BEAM * MAX_BEAM_SIZE
"""Hypotheses of one image at a time: those of the widest beam, for each subset of the words to include."""
_INCLUDE_BEAM = 8
"""Least beam of a search for words to include, unless it is set."""

STYLES = ("caption", "alt")
"""The wordings of a caption, the default first: as the model gave it, and as alt text
(`captioner.words.alt_text`). They are no caption options: a caption is reworded after it was made."""
STYLE_HELP = "alt: alt text, a sentence of at most 125 characters that does not guess people's gender"

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_ADDED = frozenset(("keywords",))
"""Options that are newer than the first state files, whose results stay current where these are off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpec:
    """What every interface needs to know about one field of `CaptionOptions`."""

    kind: type
    """int, float, bool, tuple for a size (rows, columns), or str for a tuple of words."""
    help: str
    """One line for command-line help."""
    default: Any = None
    """Value where neither the caller nor the bundle sets one; None only where that is a value of its own."""
    in_bundle: bool = False
    """Whether a bundle may hold another default."""
    low: float = 0
    high: float = 0
    """Inclusive range of a number, or of each side of a size."""
    flag: str | None = None
    """Command-line flag; None where commands decide for themselves."""
    metavar: str = "N"
    changes_text: bool = True
    """Whether the option can change the text of the caption, and not only what is returned beside it."""

    def __post_init__(self) -> None:
        if self.in_bundle and self.default is None:
            raise ValueError("an option that a bundle may set needs a default for bundles that do not")

    def parse(self, text: str) -> Any:
        """The value that `text` stands for, its range not yet checked. Raises `ValueError`."""
        if self.kind is str:
            words = tuple(text.replace(",", " ").split())
            if not words:
                raise ValueError("no word")
            return words
        if "_" in text:  # which int() and float() accept
            raise ValueError(text)
        if self.kind is tuple:
            rows, separator, columns = text.lower().partition("x")
            return int(rows), int(columns if separator else rows)
        if self.kind is bool:
            if text.lower() not in _BOOLEANS:
                raise ValueError(text)
            return _BOOLEANS[text.lower()]
        return self.kind(text)

    def plain(self, value: Any) -> Any:
        """A value in types of Python, not yet checked. JSON has no tuples, and options must be hashable."""
        if self.kind is tuple:
            return tuple(map(plain_number, value)) if isinstance(value, (tuple, list)) else value
        return plain_number(value) if self.kind in (int, float) else value

    def check(self, name: str, value: Any) -> None:
        """Raise `OptionsError` if `value` is of the wrong type or out of range."""
        if self.kind is tuple:
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise OptionsError(f"{name} must be (rows, columns), got {value!r}", name)
            for side in value:
                _check_number(name, side, self.low, self.high, int)
        elif self.kind is str:
            _check_words(name, value, int(self.high))
        elif self.kind is bool:
            if not isinstance(value, bool):
                raise OptionsError(f"{name} must be true or false, got {value!r}", name)
        else:
            _check_number(name, value, self.low, self.high, self.kind)


def _option(**values: Any) -> Any:
    spec = OptionSpec(**values)
    # What a bundle may set is left open until its defaults are known.
    return dataclasses.field(default=None if spec.in_bundle else spec.default, metadata={"spec": spec})


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionOptions:
    """How to search for a caption and what to return with it.

    None means the default of the model's bundle. Raises `OptionsError` (a `ValueError`) when a value is out
    of range.
    """

    beam_size: int | None = _option(
        default=3,
        in_bundle=True,
        kind=int,
        low=1,
        high=MAX_BEAM_SIZE,
        flag="--beam",
        help=f"beam size, 1 (greedy) to {MAX_BEAM_SIZE}",
    )
    """Hypotheses kept per image, 1 (greedy) to 16."""
    length_normalization: float | None = _option(
        default=0.0,
        in_bundle=True,
        kind=float,
        low=0.0,
        high=2.0,
        flag="--length-normalization",
        metavar="A",
        help="rank captions by log_prob / length ** A, 0 to 2",
    )
    """Exponent a of the score log_prob / length ** a that ranks finished hypotheses, 0 to 2;
    0 ranks by probability (Wu et al. 2016, arXiv:1609.08144, without their constant)."""
    max_words: int | None = _option(
        default=20,
        in_bundle=True,
        kind=int,
        low=1,
        high=MAX_WORDS,
        flag="--max-words",
        help=f"longest caption, 1 to {MAX_WORDS} words",
    )
    """Longest caption in words, 1 to 64. Beam search cuts a longer one where its end was most likely;
    greedy search cuts it after this many words."""
    no_repeat_ngram: int | None = _option(
        default=3,
        in_bundle=True,
        kind=int,
        low=0,
        high=8,
        flag="--no-repeat-ngram",
        help="no sequence of N words occurs twice, 0 (off) to 8",
    )
    """No n-gram of this many words occurs twice in a caption, 0 (off) to 8, before articles are corrected."""
    alternatives: int = _option(
        default=0,
        kind=int,
        low=0,
        high=MAX_BEAM_SIZE - 1,
        flag="--alternatives",
        help=f"further captions to return beside the best, 0 to {MAX_BEAM_SIZE - 1}",
        changes_text=False,
    )
    """Further captions returned beside the best, 0 to 15, which they never change: more than the beam holds
    come from a second, wider search. There may be fewer: cutting the best caption to `max_words`, or
    correcting articles, can make it equal to one of them."""
    include: tuple[str, ...] = _option(
        default=(),
        kind=str,
        high=MAX_INCLUDE,
        flag="--include",
        metavar="WORD",
        help=f"the caption must contain WORD or its plural; repeatable, at most {MAX_INCLUDE} words",
    )
    """Words that a caption must contain, in singular or plural: at most 4, each known to the model. The
    search keeps a beam for each subset of them (Anderson et al. 2017, arXiv:1612.00576): of 8 hypotheses, or
    fewer for many words, unless `beam_size` is set."""
    keywords: bool = _option(
        default=False, kind=bool, help="return the things in the photo as keywords", changes_text=False
    )
    """Whether captions carry keywords: things that the caption names and the photo supports, and others that
    the model detects."""
    attention: bool = _option(
        default=True, kind=bool, help="return attention maps with words", changes_text=False
    )
    """Whether words carry attention maps."""
    attention_size: tuple[int, int] | None = _option(
        kind=tuple,
        low=1,
        high=MAX_MAP_SIDE,
        flag="--attention-size",
        metavar="ROWSxCOLUMNS",
        help=f"resample attention maps, each side 1 to {MAX_MAP_SIDE} (default: the model's grid)",
        changes_text=False,
    )
    """(rows, columns) the maps are resampled to, each 1 to 64; None keeps the model's grid."""
    attention_head: int | None = _option(
        kind=int,
        low=0,
        high=MAX_HEADS - 1,
        flag="--head",
        help="attention maps of head N, counted from 0, of a model with several (default: their mean)",
        changes_text=False,
    )
    """Head whose maps words carry, counted from 0, for models with several; None for the mean of all."""

    def __post_init__(self) -> None:
        for name, spec in OPTION_SPECS.items():
            value = spec.plain(getattr(self, name))
            if value is not None:
                spec.check(name, value)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "include", tuple(dict.fromkeys(word.lower() for word in self.include or ())))

    def resolve(
        self, defaults: CaptionOptions | None = None, max_beam_size: int = MAX_BEAM_SIZE
    ) -> CaptionOptions:
        """These options with every `None` taken from `defaults`, those of a bundle, or from the option's own
        default; for words to include, the beam is then wider, up to `max_beam_size`. Raises `OptionsError`
        for a search that would keep too many hypotheses, or has too few words for those to include."""
        values = {}
        for name, spec in OPTION_SPECS.items():
            given = (getattr(each, name) for each in (self, defaults) if each is not None)
            values[name] = next((value for value in given if value is not None), spec.default)
        if self.include and self.beam_size is None:
            # Each subset of the words has a beam, and a sentence needs a choice of places for each word.
            most = min(_INCLUDE_BEAM, max_beam_size, _PER_BEAM * max_beam_size // 2 ** len(self.include))
            values["beam_size"] = max(values["beam_size"], most)
        resolved = CaptionOptions(**values)
        if resolved.hypotheses > MAX_HYPOTHESES:
            raise OptionsError(
                f"{len(self.include)} words to include with {resolved.widest_beam} captions in the beam keep "
                f"{resolved.hypotheses} hypotheses, more than {MAX_HYPOTHESES}",
                "include",
            )
        if len(self.include) > (resolved.max_words or MAX_WORDS):
            raise OptionsError(f"{len(self.include)} words do not fit into {resolved.max_words}", "include")
        return resolved

    def identity(self) -> dict[str, Any]:
        """The values that identify results made with these options, the same as in versions that had fewer of
        them."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value or name not in _ADDED}

    @property
    def widest_beam(self) -> int:
        """Captions that the widest search for these options keeps."""
        return max(self.beam_size or 1, self.alternatives + 1)

    @property
    def hypotheses(self) -> int:
        """Hypotheses that a step of that search computes for an image."""
        return self.widest_beam * 2 ** len(self.include)

    def check_head(self, heads: int) -> None:
        """Raise `OptionsError` if `attention_head` names a head that a model with `heads` lacks. A model with
        one head has none to choose from."""
        if self.attention_head is None or self.attention_head < heads > 1:
            return
        if heads == 1:
            reason = "attention_head is for models with several heads; this one's attention has one"
        else:
            reason = f"the model has no attention_head {self.attention_head}: its heads are 0 to {heads - 1}"
        raise OptionsError(reason, "attention_head")

    def for_streaming(self) -> CaptionOptions:
        """These options for greedy search. Raises `OptionsError` where they demand a beam."""
        if (self.beam_size or 1) != 1:
            raise OptionsError(
                "words can be streamed from greedy search only: beam_size must be 1", "beam_size"
            )
        if self.alternatives:
            raise OptionsError("greedy search has no alternatives", "alternatives")
        if self.include:
            raise OptionsError("words to include need a search; they cannot be streamed", "include")
        return dataclasses.replace(self, beam_size=1)


OPTION_SPECS: dict[str, OptionSpec] = {
    field.name: field.metadata["spec"] for field in dataclasses.fields(CaptionOptions)
}
"""The specification of every field of `CaptionOptions`, in order."""


BUNDLE_OPTIONS = tuple(name for name, spec in OPTION_SPECS.items() if spec.in_bundle)
"""The options whose defaults a bundle may hold."""


def merge_options(options: CaptionOptions | None, fields: Mapping[str, Any]) -> CaptionOptions | None:
    """`options` with single fields replaced: what `caption(image, beam_size=5)` asks for.

    Raises `OptionsError` for an unknown field, a value out of range, or options of another type.
    """
    if not isinstance(options, CaptionOptions | None):
        kind = type(options).__name__
        raise OptionsError(f"options must be CaptionOptions, got {kind}; several images go into one list")
    if not fields:
        return options
    for name in fields:
        if name not in OPTION_SPECS:
            raise OptionsError(f"unknown option {name!r}; options are {', '.join(OPTION_SPECS)}", name)
    return dataclasses.replace(options or CaptionOptions(), **fields)


def check_style(style: Any, name: str = "style") -> None:
    """Raise `OptionsError` if `style`, which the caller calls `name`, is none of `STYLES`."""
    if style not in STYLES:
        given = clip(repr(style), 100)
        raise OptionsError(f"{name} must be one of {', '.join(STYLES)}, got {given}", "style")


def plain_number(value: Any) -> Any:
    """A number of another library, such as numpy's, as Python's; anything else unchanged."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def _check_number(name: str, value: Any, low: float, high: float, kind: type) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int):
        raise OptionsError(f"{name} must be a number from {low} to {high}, got {value!r}", name)
    if not low <= value <= high:  # also false for NaN
        raise OptionsError(f"{name} must be from {low} to {high}, got {value}", name)


def _check_words(name: str, value: Any, most: int) -> None:
    if not isinstance(value, (tuple, list)) or not all(
        isinstance(word, str) and word.strip() for word in value
    ):
        raise OptionsError(f"{name} must be a tuple of words, got {clip(repr(value))}", name)
    if odd := [word for word in value if len(word.split()) > 1 or word != word.strip()]:
        raise OptionsError(f"{name} takes single words, without spaces, got {clip(repr(odd[0]))}", name)
    if len(value) > most:
        raise OptionsError(f"{name} takes at most {most} words, got {len(value)}", name)


FALLBACK = CaptionOptions().resolve()
"""The default of every option where the bundle sets none."""
