"""Conversion between the library's types and protobuf messages, for the client and the server alike.

Fields are matched by name: one of `CaptionOptions` or `ModelInfo` that its message has too needs no code.
"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import Any

import numpy as np

from captioner.model.calibration import Calibration
from captioner.model.info import ModelInfo
from captioner.options import MAX_GRID_SIDE, OPTION_SPECS, CaptionOptions
from captioner.results import Alternative, Caption, Word
from captioner.v1 import captioner_pb2 as pb

_PRESENCE = {field.name: field.has_presence for field in pb.CaptionOptions.DESCRIPTOR.fields}


def options_to_proto(options: CaptionOptions) -> pb.CaptionOptions:
    values = {name: getattr(options, name) for name in OPTION_SPECS}
    sent: dict[str, Any] = {
        name: pb.GridSize(rows=value[0], columns=value[1]) if OPTION_SPECS[name].kind is tuple else value
        for name, value in values.items()
        if value is not None
    }
    return pb.CaptionOptions(**sent)


def options_from_proto(message: pb.CaptionOptions) -> CaptionOptions:
    """Raises `OptionsError` for values out of range. Unset fields keep the defaults of `CaptionOptions`."""
    values: dict[str, Any] = {}
    for name, has_presence in _PRESENCE.items():
        if has_presence and not message.HasField(name):
            continue
        value = getattr(message, name)
        if OPTION_SPECS[name].kind is str:
            value = tuple(value)
        values[name] = (value.rows, value.columns) if isinstance(value, pb.GridSize) else value
    return CaptionOptions(**values)


def caption_to_proto(caption: Caption) -> pb.Caption:
    return pb.Caption(
        text=caption.text,
        log_prob=caption.log_prob,
        words=[word_to_proto(word) for word in caption.words],
        alternatives=[
            pb.Alternative(text=other.text, log_prob=other.log_prob) for other in caption.alternatives
        ],
        model=caption.model,
        confidence=caption.confidence,
        keywords=caption.keywords,
    )


def caption_from_proto(message: pb.Caption, source: Any = None) -> Caption:
    """`source` is the image as the caller gave it. Raises `ValueError` as `word_from_proto` does."""
    _check_finite(message.log_prob, message.confidence, *(other.log_prob for other in message.alternatives))
    return Caption(
        text=message.text,
        log_prob=message.log_prob,
        words=tuple(word_from_proto(word) for word in message.words),
        alternatives=tuple(Alternative(other.text, other.log_prob) for other in message.alternatives),
        model=message.model,
        source=source,
        confidence=message.confidence if message.HasField("confidence") else None,
        keywords=tuple(message.keywords),
    )


def word_to_proto(word: Word) -> pb.Word:
    message = pb.Word(text=word.text, log_prob=word.log_prob, sentinel=word.sentinel)
    if word.attention is not None:
        message.attention.rows, message.attention.columns = word.attention.shape
        weights = _weights_head(word.attention.size) + word.attention.astype("<f4").tobytes()
        message.attention.MergeFromString(weights)
    return message


@lru_cache(maxsize=256)
def _weights_head(count: int) -> bytes:
    """The bytes before `count` weights in a serialized map, which are a little-endian float32 array: merging
    them takes a tenth of the time of `extend`."""
    return pb.AttentionMap(weights=[0.0] * count).SerializeToString()[: -4 * count or None]


def word_from_proto(message: pb.Word) -> Word:
    """Raises `ValueError` for a map whose weights do not match its size, or whose size is out of range, and
    for numbers that are not finite."""
    _check_finite(message.log_prob, message.sentinel)
    attention = None
    if message.HasField("attention"):
        rows, columns = shape = message.attention.rows, message.attention.columns
        count = len(message.attention.weights)
        if not (min(shape) >= 1 and max(shape) <= MAX_GRID_SIDE and count == rows * columns):
            raise ValueError(f"a map of {rows} rows and {columns} columns has {count} weights")
        attention = np.array(message.attention.weights, dtype=np.float32).reshape(shape)
        if not np.isfinite(attention).all():
            raise ValueError("a map has weights that are not finite")
    return Word(
        message.text, message.log_prob, attention, message.sentinel if message.HasField("sentinel") else None
    )


def _check_finite(*values: float) -> None:
    if not all(map(math.isfinite, values)):
        raise ValueError("a probability is not finite")


def model_to_proto(info: ModelInfo) -> pb.GetModelResponse:
    values = {field.name: _to_message(getattr(info, field.name)) for field in dataclasses.fields(info)}
    return pb.GetModelResponse(**values)


def model_from_proto(message: pb.GetModelResponse) -> ModelInfo:
    """What a server does not say has the default of `ModelInfo`, or is 0 or empty."""
    said = {field.name for field, _ in message.ListFields()}
    values = {
        field.name: _from_message(getattr(message, field.name))
        for field in dataclasses.fields(ModelInfo)
        if field.name in said or field.default is dataclasses.MISSING
    }
    return ModelInfo(**values)


def _to_message(value: Any) -> Any:
    match value:
        case CaptionOptions():
            return options_to_proto(value)
        case Calibration():
            return pb.Calibration(slope=value.slope, intercept=value.intercept, event=value.event)
        case (int(rows), int(columns)):
            return pb.GridSize(rows=rows, columns=columns)
    return value


def _from_message(value: Any) -> Any:
    match value:
        case pb.CaptionOptions():
            return options_from_proto(value)
        case pb.Calibration():
            return Calibration(value.slope, value.intercept, value.event)
        case pb.GridSize():
            return value.rows, value.columns
    return value if isinstance(value, (str, bool, int, float)) else tuple(value)
