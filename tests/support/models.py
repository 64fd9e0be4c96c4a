"""A model that is exact and as slow as a test wants it: its captions depend on pixels and options alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

from captioner.errors import OptionsError
from captioner.images.opening import load_pixels
from captioner.images.preparation import Preparation
from captioner.model.calibration import Calibration
from captioner.model.info import ModelInfo
from captioner.options import FALLBACK, MAX_BEAM_SIZE, MAX_WORDS, CaptionOptions
from captioner.results import Alternative, Caption, Word

SIZE = 32
WORDS = ("red", "green", "blue", "grey", "black", "white", "tall", "small")


class FakeModel:
    """Says the same of the same image, whatever it is batched with. `batches` records what it was asked."""

    name, device, provider, precision = "fake", "cpu", "FakeProvider", "float32"
    digest = "0123456789abcdef" * 4
    model = "fake@0123456789ab"
    grid = (2, 3)
    grid_varies = False
    heads = 2
    lanes = 1
    calibration = Calibration(2.0, 3.0, "the caption is any good")
    defaults = FALLBACK

    def __init__(self, *, batch_s: float = 0.0, image_s: float = 0.0) -> None:
        self.batch_s, self.image_s = batch_s, image_s
        self.batches: list[tuple[int, CaptionOptions | Sequence[CaptionOptions] | None]] = []
        self.streams = 0
        self.breaks_after: int | None = None
        """From so many batches on, every batch fails."""
        self.memory_images: int | None = None
        """Batches of more images do not fit into memory."""
        self.failures = 0
        """So many of the next batches fail."""
        self.hold = threading.Event()
        """While clear, the model is stuck."""
        self.hold.set()
        self.first_word_read = threading.Event()
        """While clear, a stream stops after its first word."""
        self.first_word_read.set()

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            name=self.name,
            digest=self.digest[:12],
            grid=self.grid,
            grid_varies=self.grid_varies,
            device=self.device,
            provider=self.provider,
            precision=self.precision,
            attention_heads=self.heads,
            calibration=self.calibration,
            defaults=self.defaults,
            max_image_bytes=0,
            max_image_pixels=0,
            max_beam_size=MAX_BEAM_SIZE,
            max_words=MAX_WORDS,
        )

    @property
    def preparation(self) -> Preparation:
        return Preparation(SIZE)

    def check_include(self, words: Sequence[str]) -> None:
        if unknown := set(words) - set(WORDS):
            raise OptionsError(f"the model does not know {unknown}", "include")

    def preprocess(self, image: bytes) -> np.ndarray:
        return load_pixels(image, SIZE)

    def caption_pixels(
        self, pixels: np.ndarray, options: CaptionOptions | Sequence[CaptionOptions] | None = None
    ) -> list[Caption]:
        self.batches.append((len(pixels), options))
        self.hold.wait()
        if self.breaks_after is not None and len(self.batches) > self.breaks_after:
            raise RuntimeError("CUDA failure 700: an illegal memory access was encountered")
        if self.failures:
            self.failures -= 1
            raise RuntimeError("CUDA failure 700: an illegal memory access was encountered")
        if self.memory_images is not None and len(pixels) > self.memory_images:
            raise RuntimeError("Failed to allocate memory for requested buffer of size 1234")
        time.sleep(self.batch_s + self.image_s * len(pixels))
        each = options if isinstance(options, Sequence) else [options] * len(pixels)
        return [self.describe(image, own) for image, own in zip(pixels, each, strict=True)]

    def stream_pixels(
        self, pixels: np.ndarray, options: CaptionOptions | None = None
    ) -> Iterator[Word | Caption]:
        self.streams += 1
        caption = self.describe(pixels, options)
        for word in caption.words:
            self.hold.wait()
            time.sleep(self.image_s)
            yield word
            self.first_word_read.wait()
        yield caption

    def describe(self, pixels: np.ndarray, options: CaptionOptions | None = None) -> Caption:
        """The caption of one image, computed from its mean colour."""
        options = (options or CaptionOptions()).resolve(self.defaults)
        rows, columns = options.attention_size or self.grid
        seed = np.random.default_rng(int(pixels.sum(dtype=np.int64)))
        words = []
        for _ in range(min(options.max_words or 0, 5)):
            weights = seed.random(64 * 64, dtype=np.float32)[: rows * columns].reshape(rows, columns)
            weights = np.roll(weights, options.attention_head or 0)  # each head looks elsewhere
            words.append(
                Word(
                    text=WORDS[seed.integers(len(WORDS))],
                    log_prob=-float(seed.random()),
                    attention=weights / weights.sum() if options.attention else None,
                )
            )
        others = tuple(Alternative(f"other {n}", -5.0 - n) for n in range(options.alternatives))
        text = " ".join(word.text for word in words)
        return Caption(text, sum(word.log_prob for word in words), tuple(words), others, self.model)
