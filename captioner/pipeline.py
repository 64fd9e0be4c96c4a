"""The pipeline beneath every command: images are loaded ahead on a pool of threads, captioned in batches on
another, and handed to the caller, all at the same time.

How far each stage may run ahead is fixed, so that memory does not grow with the number of images.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from captioner.errors import ImageError, ModelOutputError
from captioner.options import CaptionOptions
from captioner.protocol import PixelModel, Pixels
from captioner.results import Caption

DEFAULT_BATCH_SIZE = 32
BATCHES_AHEAD = 2
"""Batches that are loaded while one is captioned."""

Loaded = TypeVar("Loaded")
Result = TypeVar("Result")


def run_pipeline(
    batches: Iterable[Sequence[Callable[[], Loaded]]],
    process: Callable[[list[Loaded]], Result],
    *,
    workers: int | None = None,
    lanes: int = 1,
    stop: threading.Event | None = None,
) -> Generator[Result, None, None]:
    """`process` applied to each batch of loaded images, in order.

    Each batch is a sequence of functions that load one image each; they run on `workers` threads (default:
    one per core). `process` runs on `lanes` threads of its own, a batch on each, while the caller handles an
    earlier result. After `stop` is set no further batch is begun. Closing the iterator ends all work; what a
    function raises ends it too, and is raised here.
    """
    loaders = ThreadPoolExecutor(workers or os.cpu_count() or 1, thread_name_prefix="captioner-load")
    model = ThreadPoolExecutor(lanes, thread_name_prefix="captioner-model")
    running: deque[Future[Result]] = deque()
    try:
        for batch in _load_ahead(batches, loaders):
            if stop is not None and stop.is_set():
                break
            running.append(model.submit(process, [future.result() for future in batch]))
            if len(running) > lanes:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        loaders.shutdown(wait=True, cancel_futures=True)
        model.shutdown(wait=True, cancel_futures=True)


def _load_ahead(
    batches: Iterable[Sequence[Callable[[], Loaded]]], pool: ThreadPoolExecutor
) -> Iterator[list[Future[Loaded]]]:
    ahead: deque[list[Future[Loaded]]] = deque()
    for batch in batches:
        ahead.append([pool.submit(load) for load in batch])
        if len(ahead) > BATCHES_AHEAD:
            yield ahead.popleft()
    yield from ahead


def caption_loaded(
    model: PixelModel, loaded: Sequence[Pixels | ImageError], options: CaptionOptions | None
) -> list[Caption | ImageError]:
    """One outcome for each loaded image: its caption, or the error it was loaded with or failed with."""
    outcomes = iter(
        _caption_pixels(model, [one for one in loaded if not isinstance(one, ImageError)], options)
    )
    return [one if isinstance(one, ImageError) else next(outcomes) for one in loaded]


def _caption_pixels(
    model: PixelModel, pixels: Sequence[Pixels], options: CaptionOptions | None
) -> Sequence[Caption | ImageError]:
    if not pixels:
        return []
    try:
        return model.caption_pixels(np.stack(pixels), options)
    except ModelOutputError as error:  # of some image; the halves show which
        if len(pixels) == 1:
            return [error]
    half = len(pixels) // 2
    return [
        *_caption_pixels(model, pixels[:half], options),
        *_caption_pixels(model, pixels[half:], options),
    ]
