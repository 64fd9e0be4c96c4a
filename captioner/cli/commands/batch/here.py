"""A batch in this process, or through servers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from captioner.cli.arguments.inputs import report_unknown_keywords
from captioner.cli.arguments.model import ServedModel
from captioner.cli.arguments.outputs import (
    make_transform,
    output_options,
    read_corrections,
    say_unused_corrections,
    unmatched_corrections,
)
from captioner.cli.commands.batch.names import read_list
from captioner.cli.commands.batch.request import Request
from captioner.cli.output import INTERRUPTED, interrupted, say
from captioner.cli.signals import handling
from captioner.errors import OptionsError
from captioner.printable import counted

if TYPE_CHECKING:
    from captioner.cli.commands.batch.progress import BatchProgress
    from captioner.folder.corrections import Corrections
    from captioner.folder.engine import Engine
    from captioner.folder.outputs import OutputOptions
    from captioner.folder.run import FolderRun
    from captioner.folder.sources.source import Source

WATCH_EVERY_S = 5.0
"""Pause between two looks at the folders, with --watch."""


def caption_here(request: Request) -> int:
    """Caption what is new, with `watch` until interrupted; the exit status."""
    if request.gallery is not None:
        _check_gallery(request, request.gallery)
    names = _check_inputs(request, read_list(request))
    corrections = read_corrections(request)
    stop = threading.Event()
    with _open_engine(request) as engine, _interruptible(stop):
        transform = make_transform(request, engine.calibration, corrections)
        wanted = output_options(request, request.options, engine.grid, transform, request.folder)
        return Batch(request, engine, wanted, names, corrections, stop).run()


def _check_inputs(request: Request, names: Iterator[str] | None) -> Iterator[str] | None:
    """Raise `OutputError` if OUT is an input. Returns the names of a list, which raise it as they are
    read."""
    from captioner.folder.outputs import output_files
    from captioner.folder.outputs.place import check_no_input

    outputs = output_files(request.output, request.format)

    def check(names: Iterator[str]) -> Iterator[str]:
        for name in names:
            for output in outputs:
                check_no_input(output, [Path(*request.sources, name)])
            yield name

    files: list[str | Path] = [*request.input_files, *([request.files_from] if request.files_from else [])]
    for output in outputs:
        check_no_input(output, [*request.sources, *files])
    return None if names is None else check(names)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: one run over the images, or with `watch` one after another."""

    request: Request
    engine: Engine
    wanted: OutputOptions
    names: Iterator[str] | None
    corrections: Corrections | None
    stop: threading.Event
    """Ends the batch after the work in flight."""

    def run(self) -> int:
        """Run once, with `watch` until interrupted; the exit status."""
        from captioner.folder.run import NoImagesError

        status, is_first, is_gone = 0, True, False
        while True:
            try:
                status = self.run_once(is_first=is_first)
                if is_first:
                    folder = self.request.folder
                    say_unused_corrections(self.request, *([folder] if folder else []))
                is_first = is_gone = False
            except NoImagesError as error:
                if not self.request.watch:
                    raise
                if not is_gone:
                    say(f"{error}; the output stays as it is")
                is_gone = True
            if not self.request.watch or self.stop.wait(WATCH_EVERY_S):
                return status

    def run_once(self, *, is_first: bool) -> int:
        """Caption what is new; the exit status. After the first run, nothing is said if nothing is new."""
        from captioner.cli.commands.batch.progress import BatchProgress
        from captioner.files.new_folders import removing_unused
        from captioner.folder.outputs import make_output
        from captioner.folder.run import FolderRun, RunOptions
        from captioner.folder.sources.open import open_sources

        request = self.request
        opened = open_sources(request.paths, request.selection, self.names)
        with removing_unused(Path(request.output)), opened as sources:
            output = make_output(request.output, self.wanted, request.format)
            run_options = RunOptions(
                max_bytes=request.limits.max_bytes,
                overwrite=request.overwrite and is_first,
                retry_failed=request.retry_failed and is_first,
                may_be_empty=request.watch,
            )
            run = FolderRun(
                sources,
                self.engine,
                output,
                request.options,
                run_options,
                transform=self.wanted.transform,
                listed=self.corrections.match if self.corrections else None,
                stop=self.stop,
            )
            with run:
                if not is_first and not run.left and not run.outdated:
                    return 1 if run.count_failed()[0] else 0
                with BatchProgress(run.total, run.left, quiet=request.quiet) as progress:
                    if is_first:
                        self._say_first(progress, run, sources)
                    for result in run:
                        progress.count(result)
                counts = run.count_failed()
        if progress.done < run.left:
            progress.say(f"{interrupted(progress.done, run.left)}; the same command resumes")
            return INTERRUPTED
        return self._conclude(progress, getattr(output, "kept", 0), *counts)

    def _say_first(self, progress: BatchProgress, run: FolderRun, sources: Sequence[Source]) -> None:
        """What is known before any image is captioned."""
        _say_left_out(progress, sources)
        for text in unmatched_corrections(self.corrections) if self.corrections else ():
            progress.say(text)
        for result in run.failures():
            progress.say_failure(result, "from an earlier run")

    def _conclude(self, progress: BatchProgress, kept: int, failed: int, low_confidence: int) -> int:
        """Print how a whole run ended, and write the gallery; the exit status."""
        if kept:
            before = "it was" if kept == 1 else "they were"
            progress.say(f"{kept} kept as {before}: not written by this command, or edited since")
        progress.summarize(failed, low_confidence)
        if self.request.gallery and progress.total:
            _write_gallery(self.request, self.request.gallery)
        return 1 if failed else 0


def _say_left_out(progress: BatchProgress, sources: Sequence[Source]) -> None:
    """What the sources hold that is not captioned."""
    left_out = [source.left_out for source in sources]
    links = sum(one.links for one in left_out)
    archives = sum(one.archives for one in left_out)
    within = sum(one.archives_within for one in left_out)
    for count, noun, text in (
        (links, "link", "not followed: {} to folders or out of the folder"),
        (archives, "archive", "not opened: {} in the folder; name one to caption what it holds"),
        (within, "archive", "not opened: {} inside another archive; unpack the outer one"),
    ):
        if count:
            progress.say(text.format(counted(count, noun)))


def _check_gallery(request: Request, page: Path) -> None:
    from captioner.folder.outputs import choose_format
    from captioner.overlay.gallery.write import check_page

    is_jsonl = "," not in (request.format or "") and choose_format(request.output, request.format) == "jsonl"
    if not (request.folder and request.options.attention and is_jsonl):
        raise OptionsError("--gallery is for one folder, with --attention and jsonl", "gallery")
    check_page(page, overwrite=request.overwrite)


def _write_gallery(request: Request, page: Path) -> None:
    from captioner.folder.outputs import output_files
    from captioner.folder.records import read_records
    from captioner.overlay.gallery import GalleryOptions, write_gallery

    [captions] = output_files(request.output, request.format)
    options = GalleryOptions(limits=request.limits, overwrite=request.overwrite)
    write_gallery(read_records(captions), page, request.paths[0], options)


@contextmanager
def _open_engine(request: Request) -> Iterator[Engine]:
    if isinstance(request.model, ServedModel):
        from captioner.cli.commands.batch.servers import ServerEngine

        with ServerEngine(request.model.addresses, request.model.options) as servers:
            yield servers
    else:
        from captioner.folder.engine import DEFAULT_BATCH_SIZE, LocalEngine

        with request.model.open() as captioner:
            engine = LocalEngine(
                captioner,
                request.batch_size or DEFAULT_BATCH_SIZE,
                request.workers,
                include_keywords=request.include_keywords,
            )
            yield engine
            if not request.quiet:
                report_unknown_keywords(engine.unknown_keywords)


def _interruptible(stop: threading.Event) -> AbstractContextManager[None]:
    """Make the first Ctrl-C or SIGTERM end the run after the work in flight, and the second end it at
    once."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("finishing the batches in flight; interrupt again to stop at once")

    return handling((signal.SIGINT, signal.SIGTERM), interrupt)
