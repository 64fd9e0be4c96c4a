"""`Captioner`: a model in this process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self, cast, overload

import numpy as np

from captioner.errors import CaptionerError, DataError, ImageError, ModelOutputError, OptionsError, clip
from captioner.images.letterbox import Mask
from captioner.images.preparation import Preparation
from captioner.images.sources import (
    DEFAULT_LIMITS,
    ImageInput,
    ImageLimits,
    ImageOrError,
    is_single,
    name_image,
    own_frame,
    rereadable,
)
from captioner.model.bundle import Bundle
from captioner.model.caption_builder import CaptionBuilder
from captioner.model.detection import Detection
from captioner.model.graphs.cache import GraphCache
from captioner.model.graphs.decoder import OnnxStepper
from captioner.model.graphs.spans import span
from captioner.model.info import ModelInfo
from captioner.model.installed import model_folder
from captioner.model.misfits import misfits_of
from captioner.model.runtime import Runtime
from captioner.model.search import search_each, stream
from captioner.model.search.avoided import Avoided
from captioner.options import MAX_BEAM_SIZE, MAX_WORDS, CaptionOptions, merge_options
from captioner.pipeline import DEFAULT_BATCH_SIZE, caption_loaded, run_pipeline
from captioner.protocol import ModelDescription, Outcome, Pixels, naming_its_image, only_captions
from captioner.results import Caption, Word


class Captioner(ModelDescription):
    """A model in this process. Thread-safe. An `ImageCaptioner`, as `captioner_client.CaptionClient` is."""

    def __init__(self, bundle: Bundle, runtime: Runtime, limits: ImageLimits = DEFAULT_LIMITS) -> None:
        self.bundle, self.limits = bundle, limits
        self._builder = CaptionBuilder(bundle)
        self._misfits, self._avoided = misfits_of(bundle), Avoided(bundle.avoided)
        self._runtime = runtime
        self._info = ModelInfo.gather(
            bundle,
            runtime,
            digest=bundle.digest[:12],
            defaults=bundle.decoding,
            max_image_bytes=limits.max_bytes,
            max_image_pixels=limits.max_pixels,
            max_beam_size=MAX_BEAM_SIZE,
            max_words=MAX_WORDS,
            attention_heads=runtime.heads,
            grid_varies=bundle.letterbox is not None,
            calibration=self._builder.calibration,
        )

    @classmethod
    def load(
        cls,
        bundle: str | Path | Bundle | None = None,
        *,
        device: str = "auto",
        threads: int | None = None,
        lanes: int | None = 1,
        precision: str = "auto",
        limits: ImageLimits = DEFAULT_LIMITS,
    ) -> Captioner:
        """Load a bundle: its folder, or the name of an installed model; by default (None or "default") the
        embedded one. A `Bundle` has been read already.

        `device` is auto, cpu, cuda or cuda:N. `threads` is the number of CPU threads (None: one per core).
        `lanes` is the number of batches that are captioned at the same time; they share the threads. 1 is
        fastest for a single image, None chooses a number for many images. `precision` is float32, int8, or
        auto: INT8 if the bundle has it and the CPU gains from it.
        Raises `BundleError`, `RuntimeMissingError`, `DeviceError` or `OptionsError`.
        """
        if not isinstance(bundle, Bundle):
            bundle = Bundle.load(model_folder(bundle) if isinstance(bundle, str) else bundle)
        return cls(bundle, Runtime(bundle, device, threads, precision, lanes, GraphCache.of_user()), limits)

    def __reduce__(self) -> tuple[Callable[[Bundle], Captioner], tuple[Bundle]]:
        """A pickled captioner loads its model anew, for instance in a process that is started by spawn."""
        runtime = self._runtime
        load = partial(
            type(self).load,
            device=runtime.device,
            threads=runtime.threads,
            lanes=runtime.lanes,
            precision=runtime.precision,
            limits=self.limits,
        )
        return load, (self.bundle,)

    @property
    def info(self) -> ModelInfo:
        """The model, and the limits of images and options."""
        return self._info

    def __repr__(self) -> str:
        return f"Captioner({self.model}, precision={self.precision}, device={self.device})"

    @property
    def digest(self) -> str:
        """SHA-256 of the bundle in hexadecimal."""
        return self.bundle.digest

    @property
    def lanes(self) -> int:
        """Batches that are captioned at the same time."""
        return self._runtime.lanes

    def check_include(self, words: Sequence[str]) -> None:
        """Raise `OptionsError` for a word that is not in the model's vocabulary."""
        for word in words:
            if not self.bundle.vocabulary.forms(word):
                raise OptionsError(f"the model does not know the word {clip(repr(word))}", "include")

    @overload
    def caption(
        self,
        images: ImageInput,
        options: CaptionOptions | None = ...,
        *,
        batch_size: int = ...,
        return_errors: Literal[False] = ...,
        **fields: Any,
    ) -> Caption: ...

    @overload
    def caption(
        self,
        images: Iterable[ImageInput],
        options: CaptionOptions | None = ...,
        *,
        batch_size: int = ...,
        return_errors: Literal[False] = ...,
        **fields: Any,
    ) -> list[Caption]: ...

    @overload
    def caption(
        self,
        images: ImageInput,
        options: CaptionOptions | None = ...,
        *,
        batch_size: int = ...,
        return_errors: bool,
        **fields: Any,
    ) -> Outcome: ...

    @overload
    def caption(
        self,
        images: Iterable[ImageInput],
        options: CaptionOptions | None = ...,
        *,
        batch_size: int = ...,
        return_errors: bool,
        **fields: Any,
    ) -> list[Outcome]: ...

    def caption(
        self,
        images: ImageInput | Iterable[ImageInput],
        options: CaptionOptions | None = None,
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        return_errors: bool = False,
        **fields: Any,
    ) -> Any:
        """Caption one image, or any iterable of images, `batch_size` at a time.

        One image gives one `Caption`, an iterable a list of them in its order. Single options can be given
        as keywords: `caption("dog.jpg", beam_size=5)`. If images fail, raises the first `ImageError` when all
        are done; its `outcomes` have the captions of the others. With `return_errors`, errors take the places
        of the captions of failed images instead.
        """
        options = merge_options(options, fields)
        if is_single(images):
            outcome = naming_its_image(self._caption_one(images, options))
            if isinstance(outcome, CaptionerError) and not return_errors:
                raise outcome
            return outcome
        many = cast(Iterable[ImageInput], images)
        with closing(self.caption_each(many, options, batch_size=batch_size)) as found:
            outcomes = list(found)
        return list(map(naming_its_image, outcomes)) if return_errors else only_captions(outcomes)

    def caption_each(
        self,
        images: Iterable[ImageOrError],
        options: CaptionOptions | None = None,
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        **fields: Any,
    ) -> Generator[Outcome, None, None]:
        """The caption or the error of each image, in order.

        `images` may be endless: it is read ahead by a few batches only, and a caption comes once these have
        been read. An `ImageError` among them takes its place among the results. Raises `OptionsError`.
        """
        if batch_size < 1:
            raise OptionsError(f"batch_size must be at least 1, got {batch_size}", "batch_size")
        return self._caption_batches(map(own_frame, images), merge_options(options, fields), batch_size)

    def stream(
        self, image: ImageInput, options: CaptionOptions | None = None, **fields: Any
    ) -> Iterator[Word | Caption]:
        """Each word of one image as it is decoded (greedy search), then the caption.

        Raises an `ImageError`, or `OptionsError` for options that greedy search cannot fulfil.
        """
        options = (merge_options(options, fields) or CaptionOptions()).for_streaming()
        source, pixels = self._load(image)
        if isinstance(pixels, ImageError):
            raise naming_its_image(pixels)
        for item in self.stream_pixels(pixels, options):
            yield item.of(source) if isinstance(item, Caption) else item

    def close(self) -> None:
        """Does nothing, and makes `Captioner` usable in place of a `CaptionClient`: the model is freed
        with the object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def preparation(self) -> Preparation:
        """How an image becomes the model input, for other processes to do it."""
        return Preparation(self.bundle.image_size, self.bundle.letterbox, self.limits)

    def preprocess(self, image: ImageInput) -> Pixels:
        """The model input, uint8 (size, size, channels): three channels, and for models that letterbox a
        fourth that is 0 outside the photo. Raises an `ImageError`."""
        return self.preparation.load(image)

    def caption_pixels(
        self,
        pixels: Pixels,
        options: CaptionOptions | Sequence[CaptionOptions] | None = None,
        encoded: OnnxStepper | None = None,
    ) -> list[Caption]:
        """Caption a batch as `preprocess` makes them, uint8 (batch, size, size, channels), all with the same
        options or each with its own. `encoded` is what `encode` makes of them, if that has been called.

        Raises `ModelOutputError` if the model computes no finite numbers for one of the images.
        """
        masks = self._masks(pixels)
        if not len(pixels):
            return []
        if options is None or isinstance(options, CaptionOptions):
            resolved = [self._resolve(options)] * len(pixels)
        else:
            resolved = [self._resolve(one) for one in options]
        encoded = self._encode(pixels, masks) if encoded is None else encoded
        encoded = encoded.with_heads([one.attention_head for one in resolved])
        include = [[self.bundle.vocabulary.forms(word) for word in one.include] for one in resolved]
        with span("search"):
            misfits = self._misfits if any(include) else None
            found = search_each(encoded, resolved, include, misfits, self._avoided)
        if not all(found):
            raise _not_finite()
        detection = Detection.of(self.bundle, encoded) if any(one.keywords for one in resolved) else None
        certainty = encoded.certainty
        return [
            self._builder.caption(
                *several,
                partial(detection.keywords, image) if detection and several[2].keywords else None,
                certainty[image],
            )
            for image, several in enumerate(zip(found, masks, resolved, strict=True))
        ]

    def encode(self, pixels: Pixels) -> OnnxStepper:
        """Encode a batch, uint8 (batch, size, size, channels), for `captioner.model.search` to decode.
        `caption_pixels` is this and the search."""
        return self._encode(pixels, self._masks(pixels))

    def stream_pixels(
        self, pixels: Pixels, options: CaptionOptions | None = None
    ) -> Iterator[Word | Caption]:
        """Caption one image, uint8 (size, size, channels), by greedy search: each word as soon as it is
        chosen (an English article as soon as the next word is), then the caption. The beam size of `options`
        is ignored; there are no alternatives."""
        resolved = self._resolve(options)
        if resolved.include:
            raise OptionsError("words to include need a search; they cannot be streamed", "include")
        masks = self._masks(pixels[None])
        words: list[Word] = []
        log_prob = 0.0
        encoded = self._encode(pixels[None], masks).with_heads([resolved.attention_head])

        def chosen_words() -> Iterator[Word]:
            nonlocal log_prob
            for token, chosen, attention in stream(encoded, resolved, self._avoided):
                if not np.isfinite(chosen):
                    raise _not_finite()
                log_prob += chosen
                if token != self.bundle.vocabulary.end_id:
                    yield self._builder.word(token, chosen, attention, masks[0], resolved)

        with span("search"):
            for word in self._builder.settled(chosen_words(), resolved):
                words.append(word)
                yield word
        yield self._builder.of_words(words, log_prob, encoded.certainty[0])

    def _resolve(self, options: CaptionOptions | None) -> CaptionOptions:
        resolved = (options or self.defaults).resolve(self.defaults)
        resolved.check_head(self.heads)
        self.check_include(resolved.include)
        return resolved

    def _load(self, image: ImageOrError) -> tuple[ImageOrError, Pixels | ImageError]:
        """An image that can be read again, for its caption, and its pixels."""
        try:
            image = rereadable(image, self.limits)
            return image, self.preprocess(image)
        except ImageError as error:
            return image, name_image(error, image)

    def _caption_one(self, image: ImageInput, options: CaptionOptions | None) -> Outcome:
        source, pixels = self._load(image)
        [outcome] = caption_loaded(self, [pixels], options)
        return outcome.of(source) if isinstance(outcome, Caption) else outcome

    def _caption_batches(
        self, images: Iterator[ImageOrError], options: CaptionOptions | None, batch_size: int
    ) -> Generator[Outcome, None, None]:
        def process(loaded: list[tuple[ImageOrError, Pixels | ImageError]]) -> list[Outcome]:
            outcomes = caption_loaded(self, [pixels for _, pixels in loaded], options)
            return [
                outcome.of(image) if isinstance(outcome, Caption) else name_image(outcome, image)
                for (image, _), outcome in zip(loaded, outcomes, strict=True)
            ]

        batches = iter(lambda: [partial(self._load, image) for image in islice(images, batch_size)], [])
        with closing(run_pipeline(batches, process, lanes=self.lanes)) as results:
            for outcomes in results:
                yield from outcomes

    def _masks(self, pixels: Pixels) -> Mask:
        """Cells that belong to the photo, bool (batch, rows, columns)."""
        size, letterbox = self.bundle.image_size, self.bundle.letterbox
        channels = 3 if letterbox is None else 4
        if pixels.dtype != np.uint8 or pixels.shape[1:] != (size, size, channels):
            raise OptionsError(
                f"pixels must be uint8 of {size} x {size} x {channels}, got {pixels.dtype} {pixels.shape}"
            )
        if letterbox is None:
            return np.ones((len(pixels), *self.grid), dtype=np.bool_)
        masks = letterbox.mask(pixels)
        if not masks.any(axis=(1, 2)).all():
            raise OptionsError("pixels hold an image without a photo: its last channel is 0 everywhere")
        return masks

    def _encode(self, pixels: Pixels, masks: Mask) -> OnnxStepper:
        with span("encode"):
            if self.bundle.letterbox is None:
                return self._runtime.encode(np.ascontiguousarray(pixels))
            return self._runtime.encode(np.ascontiguousarray(pixels[..., :3]), masks.reshape(len(masks), -1))


def preprocess_all(preprocess: Callable[[ImageInput], Pixels], images: Iterable[ImageInput]) -> Pixels:
    """The model input of all images, of which `preprocess`, as that of `Captioner`, makes one. Raises
    `DataError`, which names the file, for an image that cannot be used."""
    made = []
    for image in images:
        try:
            made.append(preprocess(image))
        except ImageError as error:
            raise DataError(str(name_image(error, image, says_so=True))) from error
    return np.stack(made)


def _not_finite() -> ModelOutputError:
    return ModelOutputError("the model computed no finite numbers for this image")
