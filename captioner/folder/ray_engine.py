"""A batch over Ray Data: shards of images in, Parquet files out, a pool of actors with a model each.

Each shard is the work of one actor and ends in one file that is there whole or not at all, so that what
has been done survives any actor, node or driver. Ray gives the shards of an actor that died to another.
"""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from captioner.captioner import Captioner
from captioner.errors import CaptionerError, DataError, DeviceError, OutputError, RuntimeMissingError
from captioner.folder.items import Item
from captioner.folder.outputs.options import OutputOptions, Record, unchanged
from captioner.folder.outputs.parquet import write_parquet
from captioner.folder.pipeline import Loader, LocalEngine
from captioner.folder.shards import PartFolder, Shard, UriSource, cut
from captioner.folder.sources import Selection
from captioner.image import DEFAULT_LIMITS, ImageLimits
from captioner.options import CaptionOptions
from captioner.results import Caption, error_to_dict


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOptions:
    """How the work is spread."""

    actors: int = 2
    """Models that work at the same time."""
    cpus_per_actor: float = 1.0
    gpus_per_actor: float = 0.0
    """A fraction lets actors share a GPU."""
    images_a_shard: int = 10_000
    """What is done again at most when an actor dies."""
    batch_size: int = 32


@dataclass(frozen=True, slots=True)
class Job:
    """All that an actor needs to know; travels to it."""

    uri: str
    out: str
    bundle: str | None
    """A path that is good on every node; None is the embedded model."""
    options: CaptionOptions
    limits: ImageLimits
    ray: RayOptions
    shape: Callable[[Record], Record]


@dataclass(frozen=True, slots=True)
class ShardDone:
    """What became of one shard."""

    images: int
    failed: Mapping[str, str]
    """Name and reason of the images without a caption."""


class ShardCaptioner:
    """The actor: a model, and captioning a shard with it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        device = "cuda" if job.ray.gpus_per_actor else "cpu"
        threads = max(1, int(job.ray.cpus_per_actor))
        captioner = Captioner.load(job.bundle, device=device, threads=threads, limits=job.limits)
        self._engine = LocalEngine(captioner, job.ray.batch_size, threads)
        self._grid = job.options.attention_size or captioner.grid
        self._loader = Loader([UriSource(job.uri)], job.limits.max_bytes)
        self._parts = PartFolder(job.out)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """One row, a shard, in; one row out: how many images, and which failed."""
        shard = Shard.from_json(batch["shard"][0])
        records = [dict(self._job.shape(record)) for record in self._caption(shard)]
        content = io.BytesIO()
        options = self._job.options
        written = OutputOptions(
            attention=options.attention, alternatives=options.alternatives > 0, grid=self._grid
        )
        write_parquet(content, iter(records), written)
        self._parts.put(shard.file, content.getvalue())
        failed = {r["image"]: r["error"]["message"] for r in records if "error" in r}
        return {"images": np.array([len(records)]), "failed": np.array([json.dumps(failed)])}

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
    """A run over a cluster, or over this machine, that may have been begun before."""

    total: int
    left: int

    def __init__(
        self,
        uri: str,
        out: str,
        *,
        bundle: str | None = None,
        model: str,
        options: CaptionOptions,
        selection: Selection | None = None,
        limits: ImageLimits = DEFAULT_LIMITS,
        ray: RayOptions | None = None,
        wording: str = "",
        shape: Callable[[Record], Record] = unchanged,
        retry_failed: bool = False,
    ) -> None:
        """`model` is the NAME@DIGEST of `bundle`; `wording` stands for what `shape` does. Raises
        `DataError`, `OutputError`, or `RuntimeMissingError` without Ray."""
        _import_ray()
        if "://" not in uri:
            uri = os.path.abspath(uri)  # noqa: PTH100 (workers have another current folder)
        if "://" not in out:
            out = os.path.abspath(out)  # noqa: PTH100
        self._job = Job(uri, out, bundle, options, limits, ray or RayOptions(), shape)
        found = list(UriSource(uri, selection).find())
        if not found:
            raise DataError("there are no images")
        asked = json.dumps([model, dataclasses.asdict(options), wording], sort_keys=True)
        self._parts = PartFolder(out)
        self._parts.create()
        self._shards = cut(found, asked, self._job.ray.images_a_shard)
        done = self._parts.names()
        if retry_failed:
            done = {name for name in done if not self._parts.count_failed(name)}
        self._pending = [shard for shard in self._shards if shard.file not in done]
        self.total = len(found)
        self.left = sum(len(shard.found) for shard in self._pending)

    def __iter__(self) -> Iterator[ShardDone]:
        """Each shard as it is done; at the end, parts that are of an earlier state of things are removed."""
        if self._pending:
            for row in self._work():
                yield ShardDone(int(row["images"]), json.loads(row["failed"]))
        for name in self._parts.names() - {shard.file for shard in self._shards}:
            self._parts.remove(name)

    def count_failed(self) -> int:
        """Images without a caption, those of earlier runs included."""
        return sum(self._parts.count_failed(shard.file) for shard in self._shards)

    def _work(self) -> Iterator[dict[str, Any]]:
        ray = _import_ray()
        try:
            yield from self._start(ray)
        except (ray.exceptions.RayError, ConnectionError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise OutputError(f"Ray gave up: {reason}; the same command goes on") from error

    def _start(self, ray: Any) -> Iterator[dict[str, Any]]:
        if not ray.is_initialized():
            # RAY_ADDRESS in the environment names the cluster; without it, Ray starts on this machine.
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        # For what this machine lacks Ray would wait for ever; a cluster may yet grow.
        wanted = self._job.ray.gpus_per_actor
        if "RAY_ADDRESS" not in os.environ and ray.cluster_resources().get("GPU", 0) < wanted:
            raise DeviceError("Ray finds no GPU for --gpus-per-actor on this machine")
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        settings = self._job.ray
        shards = ray.data.from_items(
            [{"shard": shard.to_json()} for shard in self._pending], override_num_blocks=len(self._pending)
        )
        rows: Iterator[dict[str, Any]] = shards.map_batches(
            ShardCaptioner,
            fn_constructor_args=(self._job,),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(settings.actors, len(self._pending))),
            num_cpus=settings.cpus_per_actor,
            num_gpus=settings.gpus_per_actor or None,
        ).iter_rows()
        return rows


def _import_ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError:
        raise RuntimeMissingError("--engine ray needs Ray: pip install 'captioner[ray]'") from None
    return ray
