"""The pipeline beneath every command: images are loaded ahead on a pool of threads, captioned in batches on
another, and handed to the caller, all at the same time.

How far each pool may run ahead is fixed, so that memory does not grow with the number of images.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from captioner.cores import available_cores
from captioner.errors import DeviceError, ImageError, ModelOutputError, clip, needing_threads
from captioner.options import CaptionOptions
from captioner.protocol import PixelModel, Pixels
from captioner.results import Caption

log = logging.getLogger(__name__)

DEFAULT_BATCH_SIZE = 32
BATCHES_AHEAD = 2
"""Batches that are loaded while one is captioned."""

_OUT_OF_MEMORY = re.compile(
    r"out of memory|failed to allocate|bad_?alloc|bad allocation|_ALLOC_FAILED|MemoryAllocation",
    re.IGNORECASE,
)

Loaded = TypeVar("Loaded")
Result = TypeVar("Result")


def run_pipeline(
    batches: Iterable[Sequence[Callable[[], Loaded]]],
    process: Callable[[list[Loaded]], Result],
    *,
    lanes: int,
    workers: int | None = None,
    stop: threading.Event | None = None,
) -> Generator[Result, None, None]:
    """`process` applied to each batch of loaded images, in order.

    Each batch is a sequence of functions that load one image each; they run on `workers` threads (default:
    one per core). `process` runs on `lanes` threads of its own, a batch on each, while the caller handles an
    earlier result. After `stop` is set no further batch is begun. Closing the iterator ends all work; what a
    function raises ends it too, and is raised here. Raises `CaptionerError` once the main thread has ended.
    """
    loaders = ThreadPoolExecutor(workers or available_cores(), thread_name_prefix="captioner-load")
    model = ThreadPoolExecutor(lanes, thread_name_prefix="captioner-model")
    running: deque[Future[Result]] = deque()
    try:
        with needing_threads():
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
    model: PixelModel,
    loaded: Sequence[Pixels | ImageError],
    options: CaptionOptions | Sequence[CaptionOptions] | None,
) -> list[Caption | ImageError]:
    """One outcome for each image: its caption, or the error it was loaded with or failed with. `options` are
    those of all images, or of each that was loaded without an error.

    Raises `DeviceError` if the device has no memory for one image alone, and whatever else the model raises.
    """
    pixels = [one for one in loaded if not isinstance(one, ImageError)]
    outcomes = iter(caption_split(model, pixels, options) if pixels else [])
    captions: list[Caption | ImageError] = []
    for one in loaded:
        outcome = one if isinstance(one, ImageError) else next(outcomes)
        if isinstance(outcome, DeviceError):
            raise outcome
        captions.append(outcome)
    return captions


def caption_split(
    model: PixelModel,
    pixels: Sequence[Pixels],
    options: CaptionOptions | Sequence[CaptionOptions] | None,
) -> Sequence[Caption | ModelOutputError | DeviceError]:
    """The outcome of each image of a batch, all with the same options or each with its own.

    If memory runs out or the model's output is not finite, the halves are tried, so that only the images that
    cause it fail: with `DeviceError` or `ModelOutputError`. Raises whatever else the model raises."""
    failure: ModelOutputError | DeviceError
    try:
        return model.caption_pixels(np.stack(pixels), options)
    except ModelOutputError as error:
        failure = error
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        log.warning("no memory for a batch of %d images: %s", len(pixels), clip(str(error)))
        failure = DeviceError("the model has no memory left for the image")
    if len(pixels) == 1:
        return [failure]
    half = len(pixels) // 2
    first, second = (options[:half], options[half:]) if isinstance(options, Sequence) else (options, options)
    return [*caption_split(model, pixels[:half], first), *caption_split(model, pixels[half:], second)]


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that the memory of the GPU or the system ran out."""
    return isinstance(error, MemoryError) or bool(_OUT_OF_MEMORY.search(str(error)))
