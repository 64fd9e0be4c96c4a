"""The actor of a run over Ray: captions a shard of the images, and writes it as one Parquet file."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from captioner.captioner import Captioner
from captioner.errors import CaptionerError, LowConfidenceError
from captioner.folder.cluster.options import RayOptions
from captioner.folder.cluster.parts import PartFolder
from captioner.folder.cluster.shards import Shard
from captioner.folder.engine import Loader, LocalEngine
from captioner.folder.items import Item
from captioner.folder.outputs.options import OutputOptions
from captioner.folder.outputs.parquet import write_parquet
from captioner.folder.run import read_error
from captioner.folder.sources.uris import open_place
from captioner.folder.transform import Transform, unchanged
from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.options import CaptionOptions
from captioner.results import Caption, error_to_dict


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What each actor needs to caption its share of the images. Paths are made absolute, because an actor
    runs in another current folder."""

    uri: str
    out: str
    bundle: str | None = None
    """Bundle path that is valid on every node; None for the embedded model."""
    options: CaptionOptions
    limits: ImageLimits = DEFAULT_LIMITS
    ray: RayOptions = field(default_factory=RayOptions)
    transform: Transform = unchanged

    def __post_init__(self) -> None:
        for name, place in (("uri", self.uri), ("out", self.out)):
            if "://" not in place:
                object.__setattr__(self, name, os.path.abspath(place))  # noqa: PTH100


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
            "images": np.array([len(shard.images)]),
            "failed": np.array([json.dumps(failed)]),
            "problem": np.array([json.dumps(problem)]),
        }

    def _publish(self, shard: Shard) -> dict[str, str]:
        self._open()
        records = list(map(self._job.transform, self._caption(shard)))
        content = io.BytesIO()
        write_parquet(content, iter(records), OutputOptions.of(self._job.options, self._engine.grid))
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
        self._loader = Loader([open_place(job.uri)], job.limits.max_bytes)
        self._parts = PartFolder(job.out)
        self._is_open = True

    def _caption(self, shard: Shard) -> Iterator[dict[str, Any]]:
        items = (Item(number, 0, image) for number, image in enumerate(shard.images))
        options = self._job.options
        for part in self._engine.run(items, self._loader, options, threading.Event()):
            for done in part:
                name = done.loaded.item.image.name
                if isinstance(done.outcome, CaptionerError):
                    yield error_to_dict(name, done.outcome)
                elif isinstance(done.outcome, Caption):
                    others = options.alternatives > 0
                    yield done.outcome.to_dict(name, words=options.attention, alternatives=others)
