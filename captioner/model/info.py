"""What a model and whoever captions with it say about themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from captioner.model.calibration import Calibration
from captioner.options import CaptionOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """A model, and the limits of the process or server that captions with it."""

    # The message `GetModelResponse`, the JSON of `/v1/model` and its OpenAPI schema are built from these
    # fields. To add one, add it here and, with the same name, to captioner.proto.
    name: str
    digest: str
    """The first 12 hexadecimal digits of the bundle's SHA-256."""
    grid: tuple[int, int] = field(metadata={"description": "rows and columns of the maps"})
    """(rows, columns) of the attention maps if the options set no size; if `grid_varies`, of those of a
    square image."""
    device: str
    """The device in use: "cpu" or "cuda", or "cuda:N" if a GPU was chosen by number."""
    provider: str
    """The ONNX Runtime execution provider in use."""
    defaults: CaptionOptions
    """All options are set, except those that have no default."""
    max_image_bytes: int
    max_image_pixels: int
    max_beam_size: int
    max_words: int
    server_version: str = ""
    """The version of the server's software; "" for a model in this process."""
    attention_heads: int = 1
    """Attention heads; `CaptionOptions.attention_head` chooses among their maps."""
    grid_varies: bool = False
    """Whether maps have fewer rows or columns for images that are not square."""
    calibration: Calibration | None = None
    """How confidence is computed from log-probabilities alone; None if the model has no calibration."""
    precision: str = ""
    """The precision in use: "float32" or "int8"; "" from servers that do not say."""
    served_as: str = ""
    """The name of the model in requests to its server."""
    models: tuple[str, ...] = field(
        default=(), metadata={"description": "names to choose from, the default first"}
    )
    """The names of all models of the server, the default first."""

    @property
    def model(self) -> str:
        """NAME@DIGEST, as captions carry it."""
        return f"{self.name}@{self.digest}"

    @classmethod
    def gather(cls, *sources: object, **known: Any) -> ModelInfo:
        """The description from attributes: each field that is not `known` is the attribute of that name of
        the first source that has it."""
        for each in dataclasses.fields(cls):
            for source in sources:
                if each.name not in known and hasattr(source, each.name):
                    known[each.name] = getattr(source, each.name)
        return cls(**known)

    def within(self, limits: object, **served: Any) -> ModelInfo:
        """The description by a server: its fields `max_...` are the attributes of `limits` with these names,
        and `served` replaces other fields."""
        names = [each.name for each in dataclasses.fields(self) if each.name.startswith("max_")]
        return dataclasses.replace(self, **{name: getattr(limits, name) for name in names}, **served)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, which the HTTP API answers with."""
        record: dict[str, Any] = {"model": self.model}
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if isinstance(value, CaptionOptions):
                value = asdict(value)
            elif isinstance(value, Calibration):
                value = value.to_dict()
            record[each.name] = value
        options: Mapping[str, Any] = record["defaults"]
        record["defaults"] = {name: value for name, value in options.items() if value is not None}
        return record
