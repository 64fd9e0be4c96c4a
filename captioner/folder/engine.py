"""What drives the images of a folder run: reads them from their sources and has them captioned."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from captioner.cores import available_cores, check_parallel
from captioner.errors import ImageError, ImageUnreadableError
from captioner.folder.items import Done, Item, Loaded, digest_of
from captioner.folder.sources.source import Source
from captioner.images.keywords import read_keywords
from captioner.images.workers import DecodeWorkers
from captioner.keyword_options import KeywordOptions
from captioner.model.calibration import Calibration
from captioner.model.graphs.precision import FLOAT32
from captioner.options import CaptionOptions
from captioner.pipeline import DEFAULT_BATCH_SIZE, caption_loaded, run_pipeline
from captioner.protocol import PixelModel, Pixels


class Engine(Protocol):
    """Drives the images of a run through captioners: a model in this process, or servers."""

    model: str
    """NAME@DIGEST."""
    grid: tuple[int, int] | None
    """Rows and columns of the model's maps; None where they differ from photo to photo."""
    calibration: Calibration | None
    """The calibration of the model, if it has one."""
    settings: Mapping[str, bool | str]
    """Settings that affect captions besides the model and the options."""

    def run(
        self, items: Iterator[Item], loader: Loader, options: CaptionOptions, stop: threading.Event
    ) -> Iterator[Sequence[Done]]:
        """Yield outcomes in groups, in any order. After `stop` is set no further images are started.
        Closing the iterator ends all work."""


class Turn(NamedTuple):
    """When an image may be read of a source that is read in order."""

    before: threading.Event | None = None
    """Is waited for."""
    mine: threading.Event | None = None
    """Is set afterwards."""


_ANY_TIME = Turn()


class Loader:
    """Reads images from their sources. Thread-safe."""

    def __init__(self, sources: Sequence[Source], max_bytes: int) -> None:
        self._sources, self._max_bytes = sources, max_bytes
        self._last_read: dict[int, threading.Event] = {}

    def order(self, item: Item) -> Turn:
        """The turn of an image. Call it in the order of the items."""
        if not self._sources[item.source].sequential:
            return _ANY_TIME
        mine = threading.Event()
        before = self._last_read.get(item.source)
        self._last_read[item.source] = mine
        return Turn(before, mine)

    def load(self, item: Item, prepare: Callable[[bytes], Any], turn: Turn = _ANY_TIME) -> Loaded:
        """Read an image; `prepare` turns its content into the input of the engine. An `ImageError` is the
        payload of what is returned."""
        if turn.before is not None:
            turn.before.wait()
        try:
            if item.image.problem:
                raise ImageUnreadableError(item.image.problem)
            content, stamp = self._sources[item.source].read(item.image.locator, self._max_bytes)
        except ImageError as error:
            return Loaded(item, item.image.stamp, None, error)
        finally:
            if turn.mine is not None:
                turn.mine.set()
        digest = digest_of(content)
        if digest == item.known_digest:
            return Loaded(item, stamp, digest, None)
        try:
            return Loaded(item, stamp, digest, prepare(content))
        except ImageError as error:
            return Loaded(item, stamp, digest, error)


class LocalEngine:
    """Captions with a model in this process.

    Images are decoded in separate processes, which a bad file may crash or hang. Batches are formed by the
    numbers of the images, so that interrupting and resuming a run does not change a single digit.
    """

    def __init__(
        self,
        model: PixelModel,
        batch_size: int = DEFAULT_BATCH_SIZE,
        workers: int | None = None,
        *,
        include_keywords: bool = False,
    ) -> None:
        """With `include_keywords` each caption must contain keywords of its own photo. Raises `OptionsError`
        for too many `workers`, the processes that decode (default: one per core)."""
        self._model, self._batch_size = model, batch_size
        self._workers = check_parallel("workers", workers) or available_cores()
        self.model, self.calibration = model.model, model.calibration
        self.grid = None if model.grid_varies else model.grid
        self.settings: Mapping[str, bool | str] = {
            **({"include_keywords": True} if include_keywords else {}),
            **({"precision": model.precision} if model.precision != FLOAT32 else {}),
        }
        self._include_keywords = include_keywords
        self.unknown_keywords: Counter[str] = Counter()
        """Skipped keywords that the model does not know, with the number of photos that had each."""

    def run(
        self, items: Iterator[Item], loader: Loader, options: CaptionOptions, stop: threading.Event
    ) -> Iterator[Sequence[Done]]:
        decoders = DecodeWorkers(self._model.preparation, self._workers)
        keywords = KeywordOptions(self._model, options) if self._include_keywords else None

        def prepare(content: bytes) -> _Prepared:
            pixels = decoders.load(content)
            return _Prepared(pixels, keywords.of(read_keywords(content)) if keywords else options)

        batches = (
            [partial(loader.load, item, prepare, loader.order(item)) for item in group]
            for _, group in groupby(items, lambda item: item.number // self._batch_size)
        )

        def process(loaded: list[Loaded]) -> list[Done]:
            new: list[_Prepared | ImageError] = [one.payload for one in loaded if one.payload is not None]
            pixels = [one.pixels if isinstance(one, _Prepared) else one for one in new]
            each = [one.options for one in new if isinstance(one, _Prepared)]
            outcomes = iter(caption_loaded(self._model, pixels, each))
            return [Done(one, None if one.payload is None else next(outcomes)) for one in loaded]

        try:
            yield from run_pipeline(
                batches, process, workers=self._workers, lanes=self._model.lanes, stop=stop
            )
        finally:
            decoders.close()
            if keywords:
                self.unknown_keywords += keywords.unknown


class _Prepared(NamedTuple):
    """An image as the model takes it, with its options."""

    pixels: Pixels
    options: CaptionOptions
