"""Between the library's types and the API's messages: what goes out, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from captioner.model.calibration import Calibration
from captioner.options import CaptionOptions
from captioner.results import Alternative, Caption, Word
from captioner.v1 import captioner_pb2 as pb

_OPTIONAL = ("beam_size", "length_normalization", "max_words", "no_repeat_ngram", "attention_head")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that a server serves, and the server's limits."""

    name: str
    digest: str
    """The first 12 hexadecimal digits of the bundle's SHA-256."""
    grid: tuple[int, int]
    """(rows, columns) of the attention maps where none are asked for; if `grid_varies`, of those of a square
    image."""
    device: str
    """What really computes: "cpu" or "cuda"."""
    provider: str
    """The ONNX Runtime execution provider that really computes."""
    defaults: CaptionOptions
    """Every field set."""
    max_image_bytes: int
    max_image_pixels: int
    max_beam_size: int
    max_words: int
    server_version: str
    attention_heads: int = 1
    """Maps that a word has; `CaptionOptions.attention_head` chooses among them."""
    grid_varies: bool = False
    """Whether maps have fewer rows or columns for images that are not square."""
    calibration: Calibration | None = None
    """How log-probabilities become confidence, where that was measured."""

    @property
    def model(self) -> str:
        """NAME@DIGEST, as captions carry it."""
        return f"{self.name}@{self.digest}"


def options_to_proto(options: CaptionOptions) -> pb.CaptionOptions:
    message = pb.CaptionOptions(
        **{name: value for name in _OPTIONAL if (value := getattr(options, name)) is not None},
        alternatives=options.alternatives,
        attention=options.attention,
    )
    if options.attention_size is not None:
        rows, columns = options.attention_size
        message.attention_size.CopyFrom(pb.GridSize(rows=rows, columns=columns))
    return message


def caption_from_proto(message: pb.Caption, source: Any) -> Caption:
    """`source` is the image as the caller gave it."""
    return Caption(
        text=message.text,
        log_prob=message.log_prob,
        words=tuple(word_from_proto(word) for word in message.words),
        alternatives=tuple(Alternative(other.text, other.log_prob) for other in message.alternatives),
        model=message.model,
        source=source,
    )


def word_from_proto(message: pb.Word) -> Word:
    attention = None
    if message.HasField("attention"):
        shape = message.attention.rows, message.attention.columns
        attention = np.array(message.attention.weights, dtype=np.float32).reshape(shape)
    sentinel = message.sentinel if message.HasField("sentinel") else None
    return Word(message.text, message.log_prob, attention, sentinel)


def model_from_proto(message: pb.GetModelResponse) -> ModelInfo:
    defaults = message.defaults
    return ModelInfo(
        name=message.name,
        digest=message.digest,
        grid=(message.grid.rows, message.grid.columns),
        device=message.device,
        provider=message.provider,
        defaults=CaptionOptions(
            **{name: getattr(defaults, name) for name in _OPTIONAL if defaults.HasField(name)},
            alternatives=defaults.alternatives,
            attention=defaults.attention,
        ),
        max_image_bytes=message.max_image_bytes,
        max_image_pixels=message.max_image_pixels,
        max_beam_size=message.max_beam_size,
        max_words=message.max_words,
        server_version=message.server_version,
        attention_heads=message.attention_heads or 1,  # older servers do not say
        grid_varies=message.grid_varies,
        calibration=_calibration(message.calibration) if message.HasField("calibration") else None,
    )


def _calibration(message: pb.Calibration) -> Calibration:
    return Calibration(message.slope, message.intercept, message.event)
