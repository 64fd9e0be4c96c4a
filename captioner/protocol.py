"""The two protocols that captioning goes through.

`ImageCaptioner` is whatever captions images: a model in this process (`captioner.Captioner`) or a server
(`captioner_client.CaptionClient`). A program that uses one works with the other. `PixelModel` is a model
in this process with its two halves apart, so that a server or a folder run can prepare images on many threads
and batch them for the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, Self, TypeVar, cast, overload

from captioner.errors import CaptionerError, ImageError
from captioner.images.preparation import Pixels, Preparation
from captioner.images.sources import ImageInput, ImageOrError
from captioner.model.calibration import Calibration
from captioner.model.info import ModelInfo
from captioner.options import CaptionOptions
from captioner.results import Caption, Word

Outcome = Caption | CaptionerError
"""A caption, or why there is none."""
_Outcome = TypeVar("_Outcome", bound=Caption | CaptionerError)


def only_captions(outcomes: list[Outcome]) -> list[Caption]:
    """The captions of several images. Raises the first error: an `ImageError` with all outcomes."""
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, ImageError):
            raise outcome.among(outcomes, index) from outcome
        if isinstance(outcome, CaptionerError):
            raise outcome
    return cast(list[Caption], outcomes)


def naming_its_image(outcome: _Outcome) -> _Outcome:
    """The same; the message of an error begins with the path of its image, if that is known."""
    if isinstance(outcome, ImageError):
        outcome.names_image = True
    return outcome


class ModelDescription(Protocol):
    """What every captioner says about its model: `info`, and its fields for short."""

    @property
    def info(self) -> ModelInfo:
        """The model, and the limits of what captions with it."""
        ...

    @property
    def model(self) -> str:
        """NAME@DIGEST, the digest cut to 12 hexadecimal digits."""
        return self.info.model

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def digest(self) -> str:
        """SHA-256 of the bundle in hexadecimal, or its first 12 digits."""
        return self.info.digest

    @property
    def device(self) -> str:
        """The device in use: "cpu" or "cuda", or "cuda:N" if a GPU was chosen by number."""
        return self.info.device

    @property
    def provider(self) -> str:
        """The ONNX Runtime execution provider in use."""
        return self.info.provider

    @property
    def precision(self) -> str:
        """The precision in use: "float32" or "int8"."""
        return self.info.precision

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of attention maps; if `grid_varies`, of those of a square image."""
        return self.info.grid

    @property
    def grid_varies(self) -> bool:
        """Whether maps have fewer rows or columns for images that are not square: the model letterboxes."""
        return self.info.grid_varies

    @property
    def heads(self) -> int:
        """Attention heads; `CaptionOptions.attention_head` chooses among their maps."""
        return self.info.attention_heads

    @property
    def calibration(self) -> Calibration | None:
        """How confidence is computed from log-probabilities alone; None if the model has no calibration."""
        return self.info.calibration

    @property
    def defaults(self) -> CaptionOptions:
        """The model's default options, all resolved."""
        return self.info.defaults


class ImageCaptioner(ModelDescription, Protocol):
    """Captions images, here or on a server. Thread-safe. `close` it, or use it as a context.

    Every method takes options as `CaptionOptions`, as keywords (`beam_size=5`), or both.
    """

    @overload
    def caption(
        self,
        images: ImageInput,
        options: CaptionOptions | None = ...,
        *,
        return_errors: Literal[False] = ...,
        **fields: Any,
    ) -> Caption: ...

    @overload
    def caption(
        self,
        images: Iterable[ImageInput],
        options: CaptionOptions | None = ...,
        *,
        return_errors: Literal[False] = ...,
        **fields: Any,
    ) -> list[Caption]: ...

    @overload
    def caption(
        self, images: ImageInput, options: CaptionOptions | None = ..., *, return_errors: bool, **fields: Any
    ) -> Outcome: ...

    @overload
    def caption(
        self,
        images: Iterable[ImageInput],
        options: CaptionOptions | None = ...,
        *,
        return_errors: bool,
        **fields: Any,
    ) -> list[Outcome]: ...

    def caption(
        self,
        images: Any,
        options: CaptionOptions | None = None,
        *,
        return_errors: bool = False,
        **fields: Any,
    ) -> Any:
        """Caption one image, which gives one `Caption`, or any iterable of images, which gives a list in its
        order. If images fail, raises the first `ImageError` when all are done; with `return_errors`, errors
        take the places of the captions of failed images."""

    def caption_each(
        self, images: Iterable[ImageOrError], options: CaptionOptions | None = None, **fields: Any
    ) -> Iterator[Outcome]:
        """The caption or the error of each image, in order, as soon as it is known. `images` may be
        endless: it is read ahead by a bounded number only. An `ImageError` among them is passed on."""

    def stream(
        self, image: ImageInput, options: CaptionOptions | None = None, **fields: Any
    ) -> Iterator[Word | Caption]:
        """Each word as it is decoded (greedy search), then the caption."""

    def close(self) -> None:
        """Release what the captioner holds; harmless when repeated."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class PixelModel(ModelDescription, Protocol):
    """A loaded model whose image preparation and captioning can be called separately, from several
    threads."""

    @property
    def preparation(self) -> Preparation:
        """How an image becomes the model's input, uint8 (size, size, channels)."""

    @property
    def lanes(self) -> int:
        """Batches that are best captioned at the same time, from as many threads."""

    def check_include(self, words: Sequence[str]) -> None:
        """Raise `OptionsError` for a word that is not in the model's vocabulary."""

    def caption_pixels(
        self, pixels: Pixels, options: CaptionOptions | Sequence[CaptionOptions] | None = None
    ) -> list[Caption]:
        """Captions of a batch, (batch, size, size, channels), all with the same options or each with its own,
        which do not depend on what else is in the batch. Raises `ModelOutputError` if the model computes
        no finite numbers for one of the images."""

    def stream_pixels(
        self, pixels: Pixels, options: CaptionOptions | None = None
    ) -> Iterator[Word | Caption]:
        """Words of one image, (size, size, channels), as they are decoded, then the caption."""
