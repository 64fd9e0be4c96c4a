"""One run over a folder: list images, caption those not done, save and publish results."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from captioner.errors import REJECTED, CaptionerError, DataError, ImageError, LowConfidenceError
from captioner.folder.engine import Engine, Loader
from captioner.folder.items import Done, FolderResult
from captioner.folder.outputs import Output
from captioner.folder.sources.open import Labelled
from captioner.folder.sources.source import Source
from captioner.folder.state import State
from captioner.folder.transform import Record, Transform, unchanged
from captioner.images.limits import DEFAULT_LIMITS
from captioner.options import CaptionOptions


class NoImagesError(DataError):
    """There is nothing to caption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a run reads, and what it does with what an earlier run left."""

    max_bytes: int = DEFAULT_LIMITS.max_bytes
    """Larger images fail."""
    overwrite: bool = False
    """Caption all images again."""
    retry_failed: bool = False
    """Caption images again that failed."""
    may_be_empty: bool = False
    """Photos may be still to come; but those that an earlier run found in a source may not all be gone, as
    when a drive is."""


class FolderRun:
    """A folder run, possibly resumed. Use as a context, and iterate over it once.

    Rerunning with the same arguments after any interruption, including kill -9, completes the work: the
    output is the same as that of an uninterrupted run.
    """

    total: int
    """Images found."""
    left: int
    """Images not yet done when the run began."""
    outdated: bool
    """Whether the output was last completed with another number of images."""

    def __init__(
        self,
        sources: Sequence[Source],
        engine: Engine,
        output: Output | None = None,
        options: CaptionOptions | None = None,
        run_options: RunOptions = RunOptions(),
        *,
        transform: Transform = unchanged,
        listed: Callable[[Iterable[str]], None] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Without an output nothing is saved. Words are saved if `options.attention` is set. `transform`
        turns saved records into written ones; a caption that it removes counts as a failure, except for its
        confidence. `listed` is called with the names of all images before any record is transformed."""
        self.stop = stop or threading.Event()
        """Set it to end the run after what is in flight."""
        self._sources, self._engine, self._output = sources, engine, output
        self._options, self._run_options = options or CaptionOptions(attention=False), run_options
        self._transform, self._listed = transform, listed
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Raises `OutputError` if another run writes this output, `NoImagesError` if there are no images."""
        with ExitStack() as opened:
            path, files = (self._output.state_path, self._output.files) if self._output else (None, ())
            state = State(path, self._asked(), overwrite=self._run_options.overwrite, outputs=files)
            self._state = opened.enter_context(state)
            self.total = state.find_images(self._sources)
            self._counts = [str(state.count_of(number)) for number in range(len(self._sources))]
            if self._run_options.may_be_empty:
                self._check_gone(state)
            elif not self.total:
                raise NoImagesError(f"there are no images{self._only_archives()}")
            if self._listed is not None:
                self._listed(state.names())
            if self._run_options.retry_failed:
                state.forget_failures()
            self.left = state.count_pending()
            self.outdated = state.get("images") != str(self.total)
            if self._output:
                opened.enter_context(closing(self._output))
                self._output.begin(state)
            self._open = opened.pop_all()
        return self

    def _check_gone(self, state: State) -> None:
        if not self.total and state.get("images") not in (None, "0"):
            raise NoImagesError("all images are gone")
        before = (state.get("counts") or "").split()
        if len(before) == len(self._counts):  # else the run before had other sources
            for source, then, now in zip(self._sources, before, self._counts, strict=True):
                if then != "0" and now == "0" and isinstance(source, Labelled):
                    raise NoImagesError(f"all images of {source.label} are gone")

    def _only_archives(self) -> str:
        count = sum(one.left_out.archives + one.left_out.archives_within for one in self._sources)
        return f", only archives ({count}), which are not opened" if count else ""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def __iter__(self) -> Iterator[FolderResult]:
        """Each image not yet done, as soon as its result is saved."""
        loader = Loader(self._sources, self._run_options.max_bytes)
        parts = self._engine.run(self._state.pending(), loader, self._options, self.stop)
        with closing(parts):  # type: ignore[type-var]
            for part in parts:
                self._keep(part)
                yield from map(self._result, part)
        is_whole = not self.stop.is_set() or not self._state.count_pending()
        if self._output and is_whole:
            self._output.finish(self._state)
            self._state.set("overwriting", None)
            self._state.set("images", str(self.total))
            self._state.set("counts", " ".join(self._counts))

    def failures(self) -> Iterator[FolderResult]:
        """Images without a caption, including those of earlier runs, in order; without those whose caption
        was left out because of its confidence, as was asked for."""
        for name, error in self._errors():
            if not isinstance(error, LowConfidenceError):
                yield FolderResult(name, None, error)

    def _errors(self) -> Iterator[tuple[str, CaptionerError]]:
        for entry in self._state.done(failed=self._transform is unchanged):
            if error := read_error(self._transform(entry.record)):
                yield entry.name, error

    def count_failed(self) -> tuple[int, int]:
        """The number of `failures`, and that of captions left out because of their confidence."""
        counts = Counter(isinstance(error, LowConfidenceError) for _, error in self._errors())
        return counts[False], counts[True]

    def _keep(self, part: Sequence[Done]) -> None:
        wants_words, wants_others = self._options.attention, self._options.alternatives > 0
        self._state.save(part, words=wants_words, alternatives=wants_others)
        if self._output:
            self._output.advance(self._state)

    def _asked(self) -> str:
        settings = {"model": self._engine.model, **self._engine.settings, **self._options.identity()}
        return json.dumps(settings, sort_keys=True)

    def _result(self, done: Done) -> FolderResult:
        name, outcome = done.loaded.item.image.name, done.outcome
        if isinstance(outcome, CaptionerError):
            return FolderResult(name, None, outcome)
        if outcome is not None and self._transform is not unchanged:
            record = outcome.to_dict(name, words=False, alternatives=False)
            if error := read_error(self._transform(record)):
                return FolderResult(name, None, error)
        return FolderResult(name, outcome)


def read_error(record: Record) -> CaptionerError | None:
    """The error in a record without a caption; None if a person rejected the caption."""
    if "error" not in record or record["error"].get("code") == REJECTED:
        return None
    kind = LowConfidenceError if record["error"].get("code") == LowConfidenceError.code else ImageError
    return kind(record["error"].get("message", "no caption"))
