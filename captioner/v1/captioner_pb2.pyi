import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CaptionOptions(_message.Message):
    __slots__ = ("beam_size", "length_normalization", "max_words", "no_repeat_ngram", "alternatives", "attention", "attention_size", "attention_head", "include", "keywords")
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_NORMALIZATION_FIELD_NUMBER: _ClassVar[int]
    MAX_WORDS_FIELD_NUMBER: _ClassVar[int]
    NO_REPEAT_NGRAM_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_SIZE_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_HEAD_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    KEYWORDS_FIELD_NUMBER: _ClassVar[int]
    beam_size: int
    length_normalization: float
    max_words: int
    no_repeat_ngram: int
    alternatives: int
    attention: bool
    attention_size: GridSize
    attention_head: int
    include: _containers.RepeatedScalarFieldContainer[str]
    keywords: bool
    def __init__(self, beam_size: _Optional[int] = ..., length_normalization: _Optional[float] = ..., max_words: _Optional[int] = ..., no_repeat_ngram: _Optional[int] = ..., alternatives: _Optional[int] = ..., attention: bool = ..., attention_size: _Optional[_Union[GridSize, _Mapping]] = ..., attention_head: _Optional[int] = ..., include: _Optional[_Iterable[str]] = ..., keywords: bool = ...) -> None: ...

class GridSize(_message.Message):
    __slots__ = ("rows", "columns")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    columns: int
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ...) -> None: ...

class Caption(_message.Message):
    __slots__ = ("text", "log_prob", "words", "alternatives", "model", "confidence", "keywords")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    KEYWORDS_FIELD_NUMBER: _ClassVar[int]
    text: str
    log_prob: float
    words: _containers.RepeatedCompositeFieldContainer[Word]
    alternatives: _containers.RepeatedCompositeFieldContainer[Alternative]
    model: str
    confidence: float
    keywords: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, text: _Optional[str] = ..., log_prob: _Optional[float] = ..., words: _Optional[_Iterable[_Union[Word, _Mapping]]] = ..., alternatives: _Optional[_Iterable[_Union[Alternative, _Mapping]]] = ..., model: _Optional[str] = ..., confidence: _Optional[float] = ..., keywords: _Optional[_Iterable[str]] = ...) -> None: ...

class Word(_message.Message):
    __slots__ = ("text", "log_prob", "attention", "sentinel")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_FIELD_NUMBER: _ClassVar[int]
    SENTINEL_FIELD_NUMBER: _ClassVar[int]
    text: str
    log_prob: float
    attention: AttentionMap
    sentinel: float
    def __init__(self, text: _Optional[str] = ..., log_prob: _Optional[float] = ..., attention: _Optional[_Union[AttentionMap, _Mapping]] = ..., sentinel: _Optional[float] = ...) -> None: ...

class AttentionMap(_message.Message):
    __slots__ = ("rows", "columns", "weights")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    columns: int
    weights: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ..., weights: _Optional[_Iterable[float]] = ...) -> None: ...

class Alternative(_message.Message):
    __slots__ = ("text", "log_prob")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    text: str
    log_prob: float
    def __init__(self, text: _Optional[str] = ..., log_prob: _Optional[float] = ...) -> None: ...

class CaptionRequest(_message.Message):
    __slots__ = ("image", "options", "model")
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    image: bytes
    options: CaptionOptions
    model: str
    def __init__(self, image: _Optional[bytes] = ..., options: _Optional[_Union[CaptionOptions, _Mapping]] = ..., model: _Optional[str] = ...) -> None: ...

class CaptionResponse(_message.Message):
    __slots__ = ("caption",)
    CAPTION_FIELD_NUMBER: _ClassVar[int]
    caption: Caption
    def __init__(self, caption: _Optional[_Union[Caption, _Mapping]] = ...) -> None: ...

class StreamCaptionRequest(_message.Message):
    __slots__ = ("image", "options", "model")
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    image: bytes
    options: CaptionOptions
    model: str
    def __init__(self, image: _Optional[bytes] = ..., options: _Optional[_Union[CaptionOptions, _Mapping]] = ..., model: _Optional[str] = ...) -> None: ...

class StreamCaptionResponse(_message.Message):
    __slots__ = ("word", "caption")
    WORD_FIELD_NUMBER: _ClassVar[int]
    CAPTION_FIELD_NUMBER: _ClassVar[int]
    word: Word
    caption: Caption
    def __init__(self, word: _Optional[_Union[Word, _Mapping]] = ..., caption: _Optional[_Union[Caption, _Mapping]] = ...) -> None: ...

class CaptionBatchRequest(_message.Message):
    __slots__ = ("id", "image", "options", "model")
    ID_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    id: str
    image: bytes
    options: CaptionOptions
    model: str
    def __init__(self, id: _Optional[str] = ..., image: _Optional[bytes] = ..., options: _Optional[_Union[CaptionOptions, _Mapping]] = ..., model: _Optional[str] = ...) -> None: ...

class CaptionBatchResponse(_message.Message):
    __slots__ = ("id", "caption", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    CAPTION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    caption: Caption
    error: Error
    def __init__(self, id: _Optional[str] = ..., caption: _Optional[_Union[Caption, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("status", "reason", "message", "field", "retry_after")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    status: int
    reason: str
    message: str
    field: str
    retry_after: _duration_pb2.Duration
    def __init__(self, status: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., field: _Optional[str] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("name", "digest", "grid", "device", "provider", "defaults", "max_image_bytes", "max_image_pixels", "max_beam_size", "max_words", "server_version", "attention_heads", "grid_varies", "calibration", "served_as", "models", "precision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    MAX_IMAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_IMAGE_PIXELS_FIELD_NUMBER: _ClassVar[int]
    MAX_BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_WORDS_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_HEADS_FIELD_NUMBER: _ClassVar[int]
    GRID_VARIES_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    SERVED_AS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    digest: str
    grid: GridSize
    device: str
    provider: str
    defaults: CaptionOptions
    max_image_bytes: int
    max_image_pixels: int
    max_beam_size: int
    max_words: int
    server_version: str
    attention_heads: int
    grid_varies: bool
    calibration: Calibration
    served_as: str
    models: _containers.RepeatedScalarFieldContainer[str]
    precision: str
    def __init__(self, name: _Optional[str] = ..., digest: _Optional[str] = ..., grid: _Optional[_Union[GridSize, _Mapping]] = ..., device: _Optional[str] = ..., provider: _Optional[str] = ..., defaults: _Optional[_Union[CaptionOptions, _Mapping]] = ..., max_image_bytes: _Optional[int] = ..., max_image_pixels: _Optional[int] = ..., max_beam_size: _Optional[int] = ..., max_words: _Optional[int] = ..., server_version: _Optional[str] = ..., attention_heads: _Optional[int] = ..., grid_varies: bool = ..., calibration: _Optional[_Union[Calibration, _Mapping]] = ..., served_as: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., precision: _Optional[str] = ...) -> None: ...

class Calibration(_message.Message):
    __slots__ = ("slope", "intercept", "event")
    SLOPE_FIELD_NUMBER: _ClassVar[int]
    INTERCEPT_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    slope: float
    intercept: float
    event: str
    def __init__(self, slope: _Optional[float] = ..., intercept: _Optional[float] = ..., event: _Optional[str] = ...) -> None: ...
