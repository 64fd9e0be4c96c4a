"""The models of a server by name, which can be replaced without losing a request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from captioner import __version__
from captioner.errors import CaptionerError, clip
from captioner.model.info import ModelInfo
from captioner.protocol import PixelModel
from captioner_server.captioning.pipeline import Pipeline
from captioner_server.captioning.shadow import OUTCOMES, Shadow
from captioner_server.captioning.supervisor import Condition
from captioner_server.errors import ModelNotFoundError
from captioner_server.heap import settle_garbage
from captioner_server.intake.ticket import Ticket
from captioner_server.observation.metrics import Metrics
from captioner_server.options import ServerOptions

log = logging.getLogger(__name__)

_IDLE_S = 0.5
"""A replaced model is closed after this time without images."""


class Models:
    """For use on one event loop. The first model is the default, for requests without a model name."""

    def __init__(
        self, options: ServerOptions, metrics: Metrics, report: Callable[[Condition], Awaitable[None]]
    ) -> None:
        """`report` receives the condition of the model that is worst off."""
        self._options, self._metrics, self._report = options, metrics, report
        self._pipelines: dict[str, Pipeline] = {}
        self._supervisors: dict[str, asyncio.Task[None]] = {}
        self._retiring: dict[Pipeline, asyncio.Task[None]] = {}
        self._conditions: dict[str, Condition] = {}
        self._failures: asyncio.Queue[str] = asyncio.Queue()
        self._past_restarts = 0
        self._shadow = Shadow(options.shadow_share, metrics)
        if options.shadow:
            for outcome in OUTCOMES:  # Prometheus sees an increase only of what was there before
                metrics.shadow.labels(outcome)
        metrics.admitted.set_function(lambda: sum(one.admitted for one in self._live()))
        metrics.waiting.set_function(lambda: sum(one.waiting for one in self._live()))
        metrics.expected_wait.set_function(
            lambda: max((one.expected_wait_s for one in self._for_callers()), default=0.0)
        )
        metrics.count_decoder_restarts(
            lambda: self._past_restarts + sum(one.decoder_restarts for one in self._live())
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The default first."""
        return tuple(self._pipelines)

    def get(self, name: str = "") -> Pipeline:
        """The model of that name, the default for "". Raises `ModelNotFoundError`."""
        if pipeline := self._pipelines.get(name or next(iter(self._pipelines), "")):
            return pipeline
        raise ModelNotFoundError(
            f"there is no model {clip(repr(name))}, only {', '.join(self._pipelines) or 'none yet'}"
        )

    def describe(self, name: str = "") -> ModelInfo:
        """A model and the limits of this server. Raises `ModelNotFoundError`."""
        pipeline, served_as = self.get(name), name or self.names[0]
        return pipeline.engine.info.within(
            self._options,
            defaults=pipeline.defaults,
            server_version=__version__,
            served_as=served_as,
            models=self.names,
        )

    def refusal(self, ticket: Ticket) -> CaptionerError | None:
        """The error that a call with an image is refused with now, whichever model it names; None if one of
        them has room. The shadow, which nearly always has room, does not count."""
        first = None
        for pipeline in self._for_callers():
            refusal = pipeline.refusal(ticket)
            if refusal is None:
                return None
            first = first or refusal
        return first

    async def prepare(self, engine: PixelModel) -> Pipeline:
        """Warm up a model while others are served. Raises what the model raises."""
        pipeline = Pipeline(engine, self._options, self._metrics)
        try:
            await pipeline.warm_up()
        except BaseException:
            pipeline.close()
            raise
        return pipeline

    def put(self, name: str, pipeline: Pipeline) -> None:
        """Serve a prepared model: new requests go to it. The model that it replaces finishes its requests."""
        pipeline.start()
        old = self._pipelines.get(name)
        if supervisor := self._supervisors.get(name):
            supervisor.cancel()
        self._pipelines[name] = pipeline
        if name == self._options.shadow:
            self._shadow.pipeline = pipeline
        elif self._options.shadow and name == self.names[0]:
            pipeline.observe = self._shadow.observe
        self._supervisors[name] = asyncio.create_task(self._supervise(name, pipeline))
        if old:
            self._metrics.model.remove(*_labels(name, old.engine))
            self._retiring[old] = asyncio.create_task(self._retire(old))
        self._metrics.model.labels(*_labels(name, pipeline.engine)).set(1)

    async def failed(self) -> str:
        """Wait until a model has failed permanently; returns the reason."""
        return await self._failures.get()

    def close(self) -> None:
        for task in (*self._supervisors.values(), *self._retiring.values()):
            task.cancel()
        for pipeline in self._live():
            pipeline.close()

    def _for_callers(self) -> Iterator[Pipeline]:
        """The models that are served, without the shadow."""
        return (one for name, one in self._pipelines.items() if name != self._options.shadow)

    def _live(self) -> Iterator[Pipeline]:
        yield from self._pipelines.values()
        yield from self._retiring

    async def _supervise(self, name: str, pipeline: Pipeline) -> None:
        shadow = name == self._options.shadow

        async def report(condition: Condition) -> None:
            if shadow:  # callers do not depend on it
                return
            self._conditions[name] = condition
            await self._report(max(self._conditions.values()))

        if self._conditions.get(name):
            await report(Condition.WORKS)  # a new model starts with a clean record
        reason = await pipeline.supervise(report).run()
        if shadow:
            self._shadow.pipeline = None
            log.error("the shadow is given up", extra={"fields": {"name": name, "reason": reason}})
        else:
            self._failures.put_nowait(reason)

    async def _retire(self, pipeline: Pipeline) -> None:
        """Close a model once it has been idle for a moment, and free its memory."""
        idle = False
        while not (idle and pipeline.idle):
            idle = pipeline.idle
            await asyncio.sleep(_IDLE_S)
        self._past_restarts += pipeline.decoder_restarts
        del self._retiring[pipeline]
        pipeline.close()
        model = pipeline.engine.model
        del pipeline
        await asyncio.sleep(_IDLE_S)  # its tasks and threads end
        settle_garbage()
        log.info("model closed", extra={"fields": {"model": model}})


def _labels(name: str, engine: PixelModel) -> tuple[str, ...]:
    return name, engine.model, engine.device, engine.provider, engine.precision
