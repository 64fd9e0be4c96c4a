"""Between the API's messages and the library's types: what comes in, and what goes out."""

from __future__ import annotations

import dataclasses

from captioner.errors import OptionsError
from captioner.model.calibration import Calibration
from captioner.options import CaptionOptions
from captioner.results import Caption, Word
from captioner.v1 import captioner_pb2 as pb

_OPTIONAL = ("beam_size", "length_normalization", "max_words", "no_repeat_ngram", "attention_head")


def options_from_proto(message: pb.CaptionOptions) -> CaptionOptions:
    """Raises `OptionsError` for values out of range."""
    size = message.attention_size
    return CaptionOptions(
        **{name: getattr(message, name) for name in _OPTIONAL if message.HasField(name)},
        alternatives=message.alternatives,
        attention=message.attention if message.HasField("attention") else True,
        attention_size=(size.rows, size.columns) if message.HasField("attention_size") else None,
    )


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


def calibration_to_proto(calibration: Calibration | None) -> pb.Calibration | None:
    return None if calibration is None else pb.Calibration(**dataclasses.asdict(calibration))


def caption_to_proto(caption: Caption) -> pb.Caption:
    return pb.Caption(
        text=caption.text,
        log_prob=caption.log_prob,
        words=[word_to_proto(word) for word in caption.words],
        alternatives=[
            pb.Alternative(text=other.text, log_prob=other.log_prob) for other in caption.alternatives
        ],
        model=caption.model,
    )


def word_to_proto(word: Word) -> pb.Word:
    message = pb.Word(text=word.text, log_prob=word.log_prob)
    if word.attention is not None:
        rows, columns = word.attention.shape
        message.attention.rows, message.attention.columns = rows, columns
        message.attention.weights.extend(word.attention.ravel().tolist())
    if word.sentinel is not None:
        message.sentinel = word.sentinel
    return message


def streaming_options(options: CaptionOptions) -> CaptionOptions:
    """The options for greedy search; raises `OptionsError` where something else is asked for."""
    if (options.beam_size or 1) != 1:
        raise OptionsError("words can be streamed from greedy search only: beam_size must be 1", "beam_size")
    if options.alternatives:
        raise OptionsError("greedy search has no alternatives", "alternatives")
    return dataclasses.replace(options, beam_size=1)
