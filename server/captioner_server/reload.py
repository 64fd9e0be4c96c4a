"""Replaces models while the server runs: on SIGHUP, and when the files of a bundle change."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from captioner.errors import CaptionerError, clip
from captioner_server.captioning.model_source import ModelSource
from captioner_server.captioning.models import Models
from captioner_server.observation.metrics import Metrics

log = logging.getLogger(__name__)

_THREADS_END_S = 0.5
OUTCOMES = ("replaced", "unchanged", "failed")
Stamp = tuple[tuple[str, int, int, int], ...]


class Reloader:
    """Tries a new model in a process of its own, loads and warms it up while the old one serves, then swaps
    them. If any of that fails, the old one stays."""

    def __init__(self, sources: Sequence[ModelSource], models: Models, metrics: Metrics) -> None:
        self._sources, self._models, self._metrics = sources, models, metrics
        self._lock = asyncio.Lock()  # one at a time: each needs the memory of another model
        self._served = {source.name: stamp_of(source.folder) for source in sources}
        for source in sources:
            for outcome in OUTCOMES:  # Prometheus sees an increase only of what was there before
                metrics.reloads.labels(source.name, outcome)

    async def reload(self) -> None:
        """Load every model again."""
        for source in self._sources:
            await self._reload(source)

    async def watch(self, interval_s: float) -> None:
        """Until cancelled, reload each model whose files have changed and then stayed the same for an
        interval, so that no incomplete bundle is loaded."""
        seen = dict(self._served)
        while True:
            await asyncio.sleep(interval_s)
            for source in self._sources:
                try:
                    stamp = await asyncio.to_thread(stamp_of, source.folder)
                except RuntimeError:  # the system allows no further thread now
                    continue
                if stamp == seen[source.name] != self._served[source.name]:
                    await self._reload(source)
                seen[source.name] = stamp

    async def _reload(self, source: ModelSource) -> None:
        async with self._lock:
            started = time.monotonic()
            old = self._models.get(source.name).model
            fields: dict[str, object] = {"name": source.name, "old": old.model}
            try:
                self._served[source.name] = await asyncio.to_thread(stamp_of, source.folder)
                model = await asyncio.to_thread(source.load)
                if (model.digest, model.device) == (old.digest, old.device):
                    outcome = "unchanged"
                else:
                    self._models.put(source.name, await self._models.prepare(model))
                    outcome = "replaced"
                fields["model"] = model.model
            except Exception as error:  # whatever is wrong with the new one, the old one keeps serving
                outcome = "failed"
                fields["reason"] = clip(str(error) or type(error).__name__)
                if not isinstance(error, CaptionerError):
                    log.exception("a defect, while a model was reloaded")
            if outcome == "failed":  # cycles hold the new model, and its last threads for a moment too
                asyncio.get_running_loop().call_later(_THREADS_END_S, gc.collect)
            self._metrics.reloads.labels(source.name, outcome).inc()
            fields["seconds"] = round(time.monotonic() - started, 2)
            log.log(
                logging.ERROR if outcome == "failed" else logging.INFO,
                f"model {outcome}",
                extra={"fields": fields},
            )


def stamp_of(folder: Path | None) -> Stamp:
    """Names, sizes and times of a bundle's files, which show that it was replaced; empty where there are
    none."""
    try:
        files = sorted(folder.iterdir()) if folder else []
        statuses = [(file.name, file.stat()) for file in files]
    except OSError:
        return ()
    return tuple((name, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for name, one in statuses)
