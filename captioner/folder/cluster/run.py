"""Batch captioning over Ray Data: shards of images in, Parquet files out, a pool of actors with one model
each.

One actor captions a shard and writes one file atomically, so that finished work survives the loss of any
actor, node or driver. Ray reassigns the shards of an actor that dies.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from captioner.captioner import Captioner
from captioner.errors import (
    CaptionerError,
    DataError,
    DeviceError,
    LowConfidenceError,
    OptionsError,
    OutputError,
    RuntimeMissingError,
    how_to_install,
)
from captioner.folder.cluster.locks import hold
from captioner.folder.cluster.parts import PartFolder
from captioner.folder.cluster.shards import Shard, cut
from captioner.folder.engine import Loader, LocalEngine
from captioner.folder.items import Item
from captioner.folder.outputs.options import OutputOptions, Record, unchanged
from captioner.folder.outputs.parquet import write_parquet
from captioner.folder.run import read_error
from captioner.folder.sources.selection import Selection
from captioner.folder.sources.uris import open_place
from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.options import CaptionOptions
from captioner.results import Caption, error_to_dict

_NOTE = ".captioner.json"
"""File in OUT that records state beside the parts."""
_LEFT_OUT = (LowConfidenceError.code,)
"""Errors that were asked for, which are no failures."""
_CONNECT_TIMEOUT_S = 10.0
_WATCH_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOptions:
    """How work is distributed. Raises `OptionsError` for resources that Ray cannot give an actor."""

    actors: int = 2
    """Models that run in parallel."""
    cpus_per_actor: float = 1.0
    gpus_per_actor: float = 0.0
    """A fraction lets actors share a GPU."""
    images_a_shard: int = 10_000
    """Images captioned again, at most, when an actor dies."""
    batch_size: int = 32

    def __post_init__(self) -> None:
        if not 0 < self.cpus_per_actor < math.inf:
            cpus = f"{self.cpus_per_actor:g}"
            raise OptionsError(f"--cpus-per-actor must be above 0, got {cpus}", "cpus_per_actor")
        gpus = self.gpus_per_actor
        if not 0 <= gpus < math.inf or (gpus > 1 and gpus % 1):
            raise OptionsError(
                f"--gpus-per-actor must be 0 to 1 or a whole number, got {gpus:g}", "gpus_per_actor"
            )


@dataclass(frozen=True, slots=True)
class Job:
    """The settings sent to each actor."""

    uri: str
    out: str
    bundle: str | None
    """Bundle path that is valid on every node; None for the embedded model."""
    options: CaptionOptions
    limits: ImageLimits
    ray: RayOptions
    transform: Callable[[Record], Record]


@dataclass(frozen=True, slots=True)
class ShardDone:
    """The outcome of one shard."""

    images: int
    failed: Mapping[str, str]
    """Images without a caption: name and reason."""


class ShardCaptioner:
    """The actor: holds a model and captions shards."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._is_open = False

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Caption the shard in the one input row. The output row holds the number of images, those that
        failed, and the error that ends the run, if any: raised here, Ray would bury it in tracebacks."""
        shard = Shard.from_json(batch["shard"][0])
        try:
            failed, problem = self._publish(shard), ""
        except CaptionerError as error:
            failed, problem = {}, str(error)
        return {
            "images": np.array([len(shard.found)]),
            "failed": np.array([json.dumps(failed)]),
            "problem": np.array([json.dumps(problem)]),
        }

    def _publish(self, shard: Shard) -> dict[str, str]:
        self._open()
        records = list(map(self._job.transform, self._caption(shard)))
        content = io.BytesIO()
        options = self._job.options
        written = OutputOptions(
            attention=options.attention, alternatives=options.alternatives > 0, grid=self._grid
        )
        write_parquet(content, iter(records), written)
        self._parts.put(shard.file, content.getvalue())
        errors = {record["image"]: read_error(record) for record in records}
        return {
            name: str(error)
            for name, error in errors.items()
            if error is not None and not isinstance(error, LowConfidenceError)
        }

    def _open(self) -> None:
        if self._is_open:
            return
        job = self._job
        device = "cuda" if job.ray.gpus_per_actor else "cpu"
        threads = max(1, int(job.ray.cpus_per_actor))
        captioner = Captioner.load(job.bundle, device=device, threads=threads, limits=job.limits)
        self._engine = LocalEngine(captioner, job.ray.batch_size, threads)
        self._grid = job.options.attention_size or self._engine.grid
        self._loader = Loader([open_place(job.uri)], job.limits.max_bytes)
        self._parts = PartFolder(job.out)
        self._is_open = True

    def _caption(self, shard: Shard) -> Iterator[dict[str, Any]]:
        items = (Item(number, 0, found) for number, found in enumerate(shard.found))
        options = self._job.options
        for part in self._engine.run(items, self._loader, options, threading.Event()):
            for done in part:
                name = done.loaded.item.found.name
                if isinstance(done.outcome, CaptionerError):
                    yield error_to_dict(name, done.outcome)
                elif isinstance(done.outcome, Caption):
                    others = options.alternatives > 0
                    yield done.outcome.to_dict(name, words=options.attention, alternatives=others)


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
        uri: str,
        out: str,
        *,
        bundle: str | None = None,
        model: str,
        options: CaptionOptions,
        selection: Selection | None = None,
        names: Iterable[str] | None = None,
        limits: ImageLimits = DEFAULT_LIMITS,
        ray: RayOptions | None = None,
        wording: str = "",
        transform: Callable[[Record], Record] = unchanged,
        retry_failed: bool = False,
        overwrite: bool = False,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`model` is the NAME@DIGEST of `bundle`; `names` are relative to `uri`; `wording` identifies what
        `transform` does; `report` receives progress messages. Raises `RuntimeMissingError` without Ray."""
        _import_ray()
        if "://" not in uri:
            uri = os.path.abspath(uri)  # noqa: PTH100 (workers have another current folder)
        if "://" not in out:
            out = os.path.abspath(out)  # noqa: PTH100
        self._job = Job(uri, out, bundle, options, limits, ray or RayOptions(), transform)
        self._source = open_place(uri, selection, names)
        self._parts = PartFolder(out)
        self._settings = [model, options.identity(), wording]
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
            fingerprint = json.dumps([*self._settings, self._count_overwrites()], sort_keys=True)
            self._shards = cut(found, fingerprint, self._job.ray.images_a_shard)
            wanted = {shard.file for shard in self._shards}
            there = wanted & self._parts.names()
            failed = self._parts.count_failed(there)
            for name in sorted(there - failed.keys()):
                self._report(f"{name} is damaged, and is made again")
            done = {name for name in failed if not (self._retry_failed and _may_succeed(failed[name]))}
            self._pending = [shard for shard in self._shards if shard.file not in done]
            self.total = len(found)
            self.left = sum(len(shard.found) for shard in self._pending)
            self.failed = sum(
                number for name in done for code, number in failed[name].items() if code not in _LEFT_OUT
            )
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
            _check_reachable(address)
            if address == "local":
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report its usage
            # Without an address, Ray would wait for the last cluster of this machine, even if it is gone.
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        settings = self._job.ray
        actors = min(settings.actors, len(self._pending))
        if address == "local":
            actors = min(actors, _count_actors(ray.cluster_resources(), settings))
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


@contextmanager
def watching(ray: Any, actors: int, settings: RayOptions, report: Callable[[str], None]) -> Iterator[None]:
    """Report when the cluster loses room for actors: Ray then waits for another node, without a word and
    without an end."""
    done = threading.Event()

    def watch() -> None:
        before = actors
        while not done.wait(_WATCH_S):
            try:
                room = min(actors, _count_room(ray.cluster_resources(), settings))
            except Exception:  # the cluster has gone, which ends the run
                return
            if room < before:
                report(
                    f"the cluster has room for {room} of {actors} actors; the run waits for another node "
                    "(or stop it, and resume with fewer --actors)"
                )
            before = room

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _check_reachable(address: str) -> None:
    """Raise `DeviceError` if nothing listens at HOST:PORT; Ray itself would take minutes to say so."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):  # "auto", "local"
        return
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DeviceError(f"no Ray answers at {address} (RAY_ADDRESS): {reason}") from None


def _count_actors(resources: Mapping[str, float], settings: RayOptions) -> int:
    """The number of actors that fit. Ray would wait forever for resources that this machine lacks; a
    cluster may still grow. Raises `DeviceError` if none fits."""
    for kind, wanted in _wanted(settings).items():
        if (there := resources.get(kind, 0.0)) < wanted:
            flag = f"--{kind.lower()}s-per-actor {wanted:g}"
            raise DeviceError(f"Ray finds {there:g} {kind}s on this machine, too few for {flag}")
    return _count_room(resources, settings)


def _count_room(resources: Mapping[str, float], settings: RayOptions) -> int:
    """The number of actors that fit, whatever the nodes that they are on."""
    return min(int(resources.get(kind, 0.0) / wanted) for kind, wanted in _wanted(settings).items() if wanted)


def _wanted(settings: RayOptions) -> dict[str, float]:
    """Resources of an actor."""
    return {"CPU": settings.cpus_per_actor, "GPU": settings.gpus_per_actor}


def _may_succeed(failed: Mapping[str, int]) -> bool:
    """Whether captioning again may help any of the images without a caption. `failed` counts them by code."""
    return any(code not in _LEFT_OUT for code in failed)


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
