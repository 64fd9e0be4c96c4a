"""The description of a server and its model."""

from __future__ import annotations

from dataclasses import dataclass

from captioner.model.calibration import Calibration
from captioner.options import CaptionOptions
from captioner.protobuf import calibration_from_proto, options_from_proto
from captioner.v1 import captioner_pb2 as pb


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that a server serves, and the server's limits."""

    name: str
    digest: str
    """The first 12 hexadecimal digits of the bundle's SHA-256."""
    grid: tuple[int, int]
    """(rows, columns) of the attention maps if the options set no size; if `grid_varies`, of those of a
    square image."""
    device: str
    """The device in use: "cpu" or "cuda", or "cuda:N" if a GPU was chosen by number."""
    provider: str
    """The ONNX Runtime execution provider in use."""
    defaults: CaptionOptions
    """All fields are set."""
    max_image_bytes: int
    max_image_pixels: int
    max_beam_size: int
    max_words: int
    server_version: str
    attention_heads: int = 1
    """Attention heads; `CaptionOptions.attention_head` chooses among their maps."""
    grid_varies: bool = False
    """Whether maps have fewer rows or columns for images that are not square."""
    calibration: Calibration | None = None
    """How confidence is computed from log-probabilities; None if the model has no calibration."""
    precision: str = ""
    """The precision in use: "float32" or "int8"; "" from servers that do not say."""

    @property
    def model(self) -> str:
        """NAME@DIGEST, as captions carry it."""
        return f"{self.name}@{self.digest}"


def model_from_proto(message: pb.GetModelResponse) -> ModelInfo:
    return ModelInfo(
        name=message.name,
        digest=message.digest,
        grid=(message.grid.rows, message.grid.columns),
        device=message.device,
        provider=message.provider,
        defaults=options_from_proto(message.defaults),
        max_image_bytes=message.max_image_bytes,
        max_image_pixels=message.max_image_pixels,
        max_beam_size=message.max_beam_size,
        max_words=message.max_words,
        server_version=message.server_version,
        attention_heads=message.attention_heads or 1,  # older servers do not say
        grid_varies=message.grid_varies,
        calibration=calibration_from_proto(message.calibration) if message.HasField("calibration") else None,
        precision=message.precision,
    )
