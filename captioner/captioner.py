"""The captioner: images in, captions out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from captioner.errors import ImageError, OptionsError, clip
from captioner.images.letterbox import Mask, crop
from captioner.images.opening import DEFAULT_LIMITS, ImageInput, ImageLimits
from captioner.images.preparation import Preparation
from captioner.model.bundle import Bundle
from captioner.model.calibration import Calibration
from captioner.model.runtime import OnnxStepper, Runtime
from captioner.model.search import Floats, Hypothesis, search, stream
from captioner.options import CaptionOptions
from captioner.overlay.saliency import resample
from captioner.results import Alternative, Caption, Word

Pixels = npt.NDArray[np.uint8]
DEFAULT_BATCH_SIZE = 32


class Captioner:
    """A loaded model. Safe to use from several threads."""

    def __init__(self, bundle: Bundle, runtime: Runtime, limits: ImageLimits = DEFAULT_LIMITS) -> None:
        self.bundle, self.limits = bundle, limits
        self._calibration = Calibration.of(bundle.manifest)
        self._runtime = runtime

    @classmethod
    def load(
        cls,
        bundle: str | Path | None = None,
        *,
        device: str = "auto",
        threads: int | None = None,
        limits: ImageLimits = DEFAULT_LIMITS,
    ) -> Captioner:
        """Load a bundle, the embedded one if none is named.

        `device` is auto, cpu or cuda; `threads` compute one call (None: as many as there are cores).
        Raises `BundleError`, `RuntimeMissingError`, `DeviceError` or `OptionsError`.
        """
        loaded = Bundle.load(bundle)
        return cls(loaded, Runtime(loaded, device, threads), limits)

    @property
    def model(self) -> str:
        """NAME@DIGEST."""
        return self.bundle.identity

    @property
    def name(self) -> str:
        return self.bundle.name

    @property
    def digest(self) -> str:
        """SHA-256 in hexadecimal."""
        return self.bundle.digest

    @property
    def device(self) -> str:
        """What is really used: cpu or cuda."""
        return self._runtime.device

    @property
    def provider(self) -> str:
        """ONNX Runtime's name for it."""
        return self._runtime.provider

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the attention maps; where `grid_varies`, of those of a square photo."""
        return self.bundle.grid

    @property
    def grid_varies(self) -> bool:
        """Whether maps have fewer rows or columns for photos that are not square: the model letterboxes."""
        return self.bundle.letterbox is not None

    @property
    def calibration(self) -> Calibration | None:
        """How its log-probabilities become confidence, where that was measured."""
        return self._calibration

    @property
    def heads(self) -> int:
        """Maps that a word has; `CaptionOptions.attention_head` chooses among them."""
        return self._runtime.heads

    def check_include(self, words: Sequence[str]) -> None:
        """Raises `OptionsError` for a word that the model does not know, and so cannot say."""
        for word in words:
            if not self.bundle.vocabulary.forms(word):
                raise OptionsError(f"the model does not know the word {clip(repr(word))}", "include")

    @property
    def defaults(self) -> CaptionOptions:
        """The model's own options, all resolved."""
        return self.bundle.decoding

    @overload
    def caption(
        self,
        images: Sequence[ImageInput],
        options: CaptionOptions | None = ...,
        *,
        batch_size: int = ...,
        return_errors: Literal[False] = ...,
    ) -> list[Caption]: ...

    @overload
    def caption(
        self,
        images: Sequence[ImageInput],
        options: CaptionOptions | None = ...,
        *,
        batch_size: int = ...,
        return_errors: bool,
    ) -> list[Caption | ImageError]: ...

    def caption(
        self,
        images: Sequence[ImageInput],
        options: CaptionOptions | None = None,
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        return_errors: bool = False,
    ) -> list[Any]:
        """Caption images, `batch_size` at a time; paths, bytes or Pillow images.

        Raises the first `ImageError`; with `return_errors`, it stands in the place of the image's caption
        instead and the others are captioned.
        """
        if isinstance(images, (str, bytes, os.PathLike)):
            raise OptionsError("images must be a list; for one image, pass a list of one", "images")
        if batch_size < 1:
            raise OptionsError(f"batch_size must be at least 1, got {batch_size}", "batch_size")
        results: list[Any] = []
        with ThreadPoolExecutor(min(batch_size, os.cpu_count() or 1)) as pool:
            for start in range(0, len(images), batch_size):
                part = images[start : start + batch_size]
                results += self._caption_part(
                    part, list(pool.map(self._try_pixels, part)), options, return_errors
                )
        return results

    @property
    def preparation(self) -> Preparation:
        """What `preprocess` does, for other processes to do it."""
        return Preparation(self.bundle.image_size, self.bundle.letterbox, self.limits)

    def preprocess(self, image: ImageInput) -> Pixels:
        """The model's input, uint8 (size, size, channels): three channels, and of a model that letterboxes a
        fourth that is 0 where there is no photo. Raises an `ImageError`."""
        return self.preparation.load(image)

    def caption_pixels(self, pixels: Pixels, options: CaptionOptions | None = None) -> list[Caption]:
        """Caption a batch as `preprocess` makes them, uint8 (batch, size, size, channels)."""
        masks = self._masks(pixels)
        if not len(pixels):
            return []
        resolved = self._resolve(options)
        shown = self._show(pixels, masks).of_head(resolved.attention_head)
        found = search(
            shown, len(pixels), resolved, [self.bundle.vocabulary.forms(word) for word in resolved.include]
        )
        return [self._caption(best, mask, resolved) for best, mask in zip(found, masks, strict=True)]

    def show(self, pixels: Pixels) -> OnnxStepper:
        """Show a batch, uint8 (batch, size, size, channels), to the model; `captioner.model.search` steps
        through the result. `caption_pixels` is this and the search."""
        return self._show(pixels, self._masks(pixels))

    def stream_pixels(
        self, pixels: Pixels, options: CaptionOptions | None = None
    ) -> Iterator[Word | Caption]:
        """Caption one image, uint8 (size, size, channels), by greedy search: each word as soon as it is
        chosen, the whole caption last. The beam size of `options` is not used; alternatives are not found."""
        resolved = self._resolve(options)
        if resolved.include:
            raise OptionsError("words to include need a search; they cannot be streamed", "include")
        masks = self._masks(pixels[None])
        words: list[Word] = []
        log_prob = 0.0
        shown = self._show(pixels[None], masks).of_head(resolved.attention_head)
        for token, chosen, attention in stream(shown, resolved):
            log_prob += chosen
            if token != self.bundle.vocabulary.end_id:
                words.append(self._word(token, chosen, attention, masks[0], resolved))
                yield words[-1]
        text = " ".join(word.text for word in words)
        yield Caption(
            text, log_prob, tuple(words), model=self.model, confidence=self._confidence(text, log_prob)
        )

    def _resolve(self, options: CaptionOptions | None) -> CaptionOptions:
        resolved = (options or self.defaults).resolve(self.defaults)
        resolved.check_head(self.heads)
        self.check_include(resolved.include)
        return resolved

    def _try_pixels(self, image: ImageInput) -> Pixels | ImageError:
        try:
            return self.preprocess(image)
        except ImageError as error:
            return error

    def _caption_part(
        self,
        images: Sequence[ImageInput],
        loaded: list[Pixels | ImageError],
        options: CaptionOptions | None,
        return_errors: bool,
    ) -> list[Caption | ImageError]:
        failed = [item for item in loaded if isinstance(item, ImageError)]
        if failed and not return_errors:
            raise failed[0]
        pixels = [item for item in loaded if not isinstance(item, ImageError)]
        captions = iter(self.caption_pixels(np.stack(pixels), options) if pixels else [])
        return [
            item if isinstance(item, ImageError) else next(captions).of(image)
            for image, item in zip(images, loaded, strict=True)
        ]

    def _caption(self, best: list[Hypothesis], mask: Mask, options: CaptionOptions) -> Caption:
        first, *others = best
        text = self._text(first)
        return Caption(
            text=text,
            log_prob=first.log_prob,
            words=tuple(
                self._word(token, log_prob, attention, mask, options)
                for token, log_prob, attention in zip(
                    first.tokens, first.log_probs, first.attention, strict=False
                )
            ),
            alternatives=tuple(Alternative(self._text(other), other.log_prob) for other in others),
            model=self.model,
            confidence=self._confidence(text, first.log_prob),
        )

    def _confidence(self, text: str, log_prob: float) -> float | None:
        return None if self._calibration is None else self._calibration.confidence(text, log_prob)

    def _text(self, hypothesis: Hypothesis) -> str:
        return " ".join(self.bundle.vocabulary.decode(hypothesis.tokens))

    def _word(
        self, token: int, log_prob: float, attention: Floats, mask: Mask, options: CaptionOptions
    ) -> Word:
        text = self.bundle.vocabulary.words[token]
        sentinel = max(0.0, 1.0 - float(attention.sum())) if self.bundle.has_sentinel else None
        if not options.attention:
            return Word(text, log_prob, None, sentinel)
        grid = crop(attention.reshape(self.grid), mask)
        if options.attention_size not in (None, grid.shape):
            assert options.attention_size is not None
            resized = resample(grid, options.attention_size)
            # A word that went wholly to the sentinel has a map of zeros, which stays one.
            grid = resized * (grid.sum() / max(float(resized.sum()), np.finfo(np.float32).tiny))
        return Word(text, log_prob, np.array(grid, dtype=np.float32), sentinel)

    def _masks(self, pixels: Pixels) -> Mask:
        """Which cells are the photo's, bool (batch, rows, columns)."""
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

    def _show(self, pixels: Pixels, masks: Mask) -> OnnxStepper:
        if self.bundle.letterbox is None:
            return self._runtime.encode(np.ascontiguousarray(pixels))
        return self._runtime.encode(np.ascontiguousarray(pixels[..., :3]), masks.reshape(len(masks), -1))
