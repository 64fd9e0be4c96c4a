"""Runs over Ray Data: shards of images in, Parquet files out, a pool of actors with one model each.

One actor captions a shard and writes one file atomically, so that finished work survives the loss of any
actor, node or driver. Ray reassigns the shards of an actor that dies.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from captioner.errors import DataError, LowConfidenceError, OutputError, RuntimeMissingError, how_to_install
from captioner.folder.cluster.actor import Job, ShardCaptioner
from captioner.folder.cluster.capacity import check_reachable, count_actors, watching
from captioner.folder.cluster.locks import hold
from captioner.folder.cluster.parts import PartFolder
from captioner.folder.cluster.shards import cut
from captioner.folder.sources.selection import Selection
from captioner.folder.sources.uris import open_place

_NOTE = ".captioner.json"
"""File in OUT that records state beside the parts."""


@dataclass(frozen=True, slots=True)
class ShardDone:
    """The outcome of one shard."""

    images: int
    failed: Mapping[str, str]
    """Images without a caption: name and reason."""


class RayRun:
    """A run on a cluster or on this machine, possibly resumed. Use as a context, and iterate over it once."""

    total: int
    """Images found."""
    left: int
    """Images not yet done when the run began."""
    failed: int
    """Images that could not be captioned, including those of earlier runs."""

    def __init__(
        self,
        job: Job,
        *,
        model: str,
        selection: Selection | None = None,
        names: Iterable[str] | None = None,
        wording: str = "",
        retry_failed: bool = False,
        overwrite: bool = False,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`model` is the NAME@DIGEST of the job's bundle; `names` are relative to its `uri`; `wording`
        identifies what its `transform` does; `report` receives progress messages. Raises
        `RuntimeMissingError` without Ray."""
        _import_ray()
        self._job = job
        self._source = open_place(job.uri, selection, names)
        self._parts = PartFolder(job.out)
        self._settings = [model, job.options.identity(), wording]
        self._retry_failed, self._overwrite, self._report = retry_failed, overwrite, report
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Raises `OutputError` if another run writes this output, `DataError` if there are no images."""
        found = list({one.name: one for one in self._source.find()}.values())
        if not found:
            raise DataError("there are no images")
        self._parts.create()
        with ExitStack() as opened:
            opened.enter_context(hold(self._parts, self._report))
            asked = json.dumps([*self._settings, self._count_overwrites()], sort_keys=True)
            self._shards = cut(found, asked, self._job.ray.images_a_shard)
            wanted = {shard.file for shard in self._shards}
            there = wanted & self._parts.names()
            # A low confidence was asked for, and is no failure.
            failed = {
                name: codes.total() - codes[LowConfidenceError.code]
                for name, codes in self._parts.count_failed(there).items()
            }
            for name in sorted(there - failed.keys()):
                self._report(f"{name} is damaged, and is made again")
            done = {name for name in failed if not (self._retry_failed and failed[name])}
            self._pending = [shard for shard in self._shards if shard.file not in done]
            self.total = len(found)
            self.left = sum(len(shard.images) for shard in self._pending)
            self.failed = sum(failed[name] for name in done)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def __iter__(self) -> Iterator[ShardDone]:
        """Each shard when it is done; finally, stale parts are removed."""
        if self._pending:
            for row in self._work():
                if problem := json.loads(row["problem"]):
                    raise OutputError(f"an actor gave up: {problem}; the same command resumes")
                done = ShardDone(int(row["images"]), json.loads(row["failed"]))
                self.failed += len(done.failed)
                yield done
        for name in self._parts.names() - {shard.file for shard in self._shards}:
            self._parts.remove(name)
        self._parts.remove_stale()
        self._note(self._overwrites, unfinished=False)

    def _count_overwrites(self) -> int:
        """The number of complete overwrites, which is part of the names of parts. An unfinished overwrite
        is resumed."""
        note = _read_note(self._parts.read(_NOTE))
        self._overwrites = note.get("overwrites", 0)
        if self._overwrite and not note.get("unfinished", False):
            self._overwrites += 1
        self._note(self._overwrites, unfinished=self._overwrite)
        return self._overwrites

    def _note(self, overwrites: int, *, unfinished: bool) -> None:
        note = {"overwrites": overwrites, "unfinished": unfinished}
        if _read_note(self._parts.read(_NOTE)) != note:
            self._parts.put(_NOTE, json.dumps(note).encode())

    def _work(self) -> Iterator[dict[str, Any]]:
        ray = _import_ray()
        try:
            yield from self._start(ray)
        except (ray.exceptions.RayError, ConnectionError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise OutputError(f"Ray gave up: {reason}; the same command resumes") from error

    def _start(self, ray: Any) -> Iterator[dict[str, Any]]:
        # RAY_ADDRESS in the environment names the cluster; without it, Ray starts on this machine.
        address = os.environ.get("RAY_ADDRESS", "local")
        if not ray.is_initialized():
            check_reachable(address)
            if address == "local":
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report its usage
            # Without an address, Ray would wait for the last cluster of this machine, even if it is gone.
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        settings = self._job.ray
        actors = min(settings.actors, len(self._pending))
        if address == "local":
            actors = min(actors, count_actors(ray.cluster_resources(), settings))
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        ray.data.DataContext.get_current().enable_progress_bars = False
        shards = ray.data.from_items(
            [{"shard": shard.to_json()} for shard in self._pending], override_num_blocks=len(self._pending)
        )
        rows = shards.map_batches(
            ShardCaptioner,
            fn_constructor_args=(self._job,),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=actors),
            num_cpus=settings.cpus_per_actor,
            num_gpus=settings.gpus_per_actor or None,
        ).iter_rows()
        with watching(ray, actors, settings, self._report):
            yield from rows


def _read_note(content: bytes | None) -> dict[str, Any]:
    try:
        note = json.loads(content or b"{}")
    except ValueError:
        note = None
    if not isinstance(note, dict):
        raise OutputError(f"{_NOTE} in the output is not what a batch wrote; move it away")
    return note


def _import_ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError:
        raise RuntimeMissingError(f"--engine ray needs Ray: {how_to_install('ray')}") from None
    return ray
