"""From images still to be captioned to captions: reading ahead, decoding in a pool, batching.

While the model works on one batch, a pool of threads reads the next ones, which processes decode that a bad
file may crash or hang, and the caller writes down the one before. How far each may run ahead is fixed, so
that memory does not grow.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from captioner.errors import CaptionerError, ImageError, ImageUnreadableError
from captioner.folder.items import Done, Item, Loaded
from captioner.folder.sources import Source
from captioner.images.preparation import Preparation
from captioner.images.workers import DecodeWorkers
from captioner.model.calibration import Calibration
from captioner.options import CaptionOptions
from captioner.results import Caption

DEFAULT_BATCH_SIZE = 32
BATCHES_AHEAD = 2
"""Batches that are read while one is captioned."""


class Engine(Protocol):
    """What captions the images of a run: a model here, or servers."""

    model: str
    """NAME@DIGEST."""
    grid: tuple[int, int] | None
    """Rows and columns of the model's maps; None where they differ from photo to photo."""
    calibration: Calibration | None
    """How its log-probabilities become confidence, where that is known."""

    def run(
        self, items: Iterator[Item], loader: Loader, options: CaptionOptions, stop: threading.Event
    ) -> Iterator[Sequence[Done]]:
        """What becomes of the images, some at a time, in any order. After `stop` is set no more are
        begun. Closing the iterator ends all work."""


class Loader:
    """Reads images from their sources. Thread-safe."""

    def __init__(self, sources: Sequence[Source], max_bytes: int) -> None:
        self._sources, self._max_bytes = sources, max_bytes
        self._last_read: dict[int, threading.Event] = {}

    def order(self, item: Item) -> tuple[threading.Event | None, threading.Event | None]:
        """Its turn: what to wait for before reading, and what to set after. To be called in the order of
        the items; both are None where images may be read in any order."""
        if not self._sources[item.source].sequential:
            return None, None
        mine = threading.Event()
        before = self._last_read.get(item.source)
        self._last_read[item.source] = mine
        return before, mine

    def load(
        self,
        item: Item,
        prepare: Callable[[bytes], Any],
        turn: tuple[threading.Event | None, threading.Event | None] = (None, None),
    ) -> Loaded:
        """Read an image and let `prepare` make of its content what the engine captions."""
        before, mine = turn
        if before is not None:
            before.wait()
        try:
            if item.found.problem:
                raise ImageUnreadableError(item.found.problem)
            content, stamp = self._sources[item.source].read(item.found.locator, self._max_bytes)
        except ImageError as error:
            return Loaded(item, item.found.stamp, None, error)
        finally:
            if mine is not None:
                mine.set()
        digest = blake2b(content, digest_size=16).digest()
        if digest == item.known_digest:
            return Loaded(item, stamp, digest, None)
        try:
            return Loaded(item, stamp, digest, prepare(content))
        except ImageError as error:
            return Loaded(item, stamp, digest, error)


class LocalModel(Protocol):
    """The parts of `captioner.Captioner` that a run needs."""

    @property
    def model(self) -> str: ...
    @property
    def grid(self) -> tuple[int, int]: ...
    @property
    def grid_varies(self) -> bool: ...
    @property
    def calibration(self) -> Calibration | None: ...
    @property
    def preparation(self) -> Preparation: ...
    def caption_pixels(
        self, pixels: npt.NDArray[np.uint8], options: CaptionOptions | None = None
    ) -> list[Caption]: ...


class LocalEngine:
    """Captions with a model in this process.

    Batches are cut by the images' numbers: the same image is in the same batch whenever a run was
    interrupted, so that not even the last digit of a probability depends on it.
    """

    def __init__(
        self, captioner: LocalModel, batch_size: int = DEFAULT_BATCH_SIZE, workers: int | None = None
    ) -> None:
        self._captioner, self._batch_size = captioner, batch_size
        self._workers = workers or os.cpu_count() or 1
        self.model, self.calibration = captioner.model, captioner.calibration
        self.grid = None if captioner.grid_varies else captioner.grid

    def run(
        self, items: Iterator[Item], loader: Loader, options: CaptionOptions, stop: threading.Event
    ) -> Iterator[Sequence[Done]]:
        decoders = DecodeWorkers(self._captioner.preparation, self._workers)
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="captioner-load")
        model = ThreadPoolExecutor(1, thread_name_prefix="captioner-model")
        running: Future[list[Done]] | None = None
        try:
            for batch in self._load_ahead(items, loader, pool, decoders):
                if stop.is_set():
                    break
                loaded = [future.result() for future in batch]
                following = model.submit(self._caption, loaded, options)
                if running is not None:
                    yield running.result()
                running = following
            if running is not None:
                yield running.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            model.shutdown(wait=True, cancel_futures=True)
            decoders.close()

    def _load_ahead(
        self, items: Iterator[Item], loader: Loader, pool: ThreadPoolExecutor, decoders: DecodeWorkers
    ) -> Iterator[list[Future[Loaded]]]:
        ahead: deque[list[Future[Loaded]]] = deque()
        for _, group in groupby(items, lambda item: item.number // self._batch_size):
            prepare = decoders.load
            ahead.append([pool.submit(loader.load, item, prepare, loader.order(item)) for item in group])
            if len(ahead) > BATCHES_AHEAD:
                yield ahead.popleft()
        yield from ahead

    def _caption(self, loaded: Sequence[Loaded], options: CaptionOptions) -> list[Done]:
        good = [one.payload for one in loaded if isinstance(one.payload, np.ndarray)]
        captions = iter(self._captioner.caption_pixels(np.stack(good), options) if good else ())
        return [Done(one, self._outcome(one.payload, captions)) for one in loaded]

    def _outcome(self, payload: Any, captions: Iterator[Caption]) -> Caption | CaptionerError | None:
        return next(captions) if isinstance(payload, np.ndarray) else payload
