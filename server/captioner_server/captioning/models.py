"""The models of a server by name, which can be replaced without losing a request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from captioner import __version__
from captioner.errors import CaptionerError, clip
from captioner.model.info import ModelInfo
from captioner.protocol import PixelModel
from captioner_server.captioning.hosted_model import HostedModel
from captioner_server.captioning.shadow import OUTCOMES, Shadow
from captioner_server.captioning.supervisor import Condition
from captioner_server.errors import ModelNotFoundError
from captioner_server.intake.ticket import Ticket
from captioner_server.observation.metrics import Metrics
from captioner_server.options import ServerOptions
from captioner_server.process.heap import settle_garbage

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
        self._hosted: dict[str, HostedModel] = {}
        self._supervisors: dict[str, asyncio.Task[None]] = {}
        self._retiring: dict[HostedModel, asyncio.Task[None]] = {}
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
        return tuple(self._hosted)

    def get(self, name: str = "") -> HostedModel:
        """The model of that name, the default for "". Raises `ModelNotFoundError`."""
        if hosted := self._hosted.get(name or next(iter(self._hosted), "")):
            return hosted
        raise ModelNotFoundError(
            f"there is no model {clip(repr(name))}, only {', '.join(self._hosted) or 'none yet'}"
        )

    def describe(self, name: str = "") -> ModelInfo:
        """A model and the limits of this server. Raises `ModelNotFoundError`."""
        hosted, served_as = self.get(name), name or self.names[0]
        return hosted.model.info.within(
            self._options,
            defaults=hosted.search.defaults,
            server_version=__version__,
            served_as=served_as,
            models=self.names,
        )

    def rejection(self, ticket: Ticket) -> CaptionerError | None:
        """The error that a call with an image is rejected with now, whichever model it names; None if one of
        them has room. The shadow, which nearly always has room, does not count."""
        first = None
        for hosted in self._for_callers():
            rejection = hosted.rejection(ticket)
            if rejection is None:
                return None
            first = first or rejection
        return first

    async def prepare(self, model: PixelModel) -> HostedModel:
        """Warm up a model while others are served. Raises what the model raises."""
        hosted = HostedModel(model, self._options, self._metrics)
        try:
            await hosted.warm_up()
        except BaseException:
            hosted.close()
            raise
        return hosted

    def put(self, name: str, hosted: HostedModel) -> None:
        """Serve a prepared model: new requests go to it. The model that it replaces finishes its requests."""
        hosted.start()
        old = self._hosted.get(name)
        if supervisor := self._supervisors.get(name):
            supervisor.cancel()
        self._hosted[name] = hosted
        if name == self._options.shadow:
            self._shadow.hosted = hosted
        elif self._options.shadow and name == self.names[0]:
            hosted.observe = self._shadow.observe
        self._supervisors[name] = asyncio.create_task(self._supervise(name, hosted))
        if old:
            self._metrics.model.remove(*_labels(name, old.model))
            self._retiring[old] = asyncio.create_task(self._retire(old))
        self._metrics.model.labels(*_labels(name, hosted.model)).set(1)

    async def failed(self) -> str:
        """Wait until a model has failed permanently; returns the reason."""
        return await self._failures.get()

    def close(self) -> None:
        for task in (*self._supervisors.values(), *self._retiring.values()):
            task.cancel()
        for hosted in self._live():
            hosted.close()

    def _for_callers(self) -> Iterator[HostedModel]:
        """The models that are served, without the shadow."""
        return (one for name, one in self._hosted.items() if name != self._options.shadow)

    def _live(self) -> Iterator[HostedModel]:
        yield from self._hosted.values()
        yield from self._retiring

    async def _supervise(self, name: str, hosted: HostedModel) -> None:
        shadow = name == self._options.shadow

        async def report(condition: Condition) -> None:
            if shadow:  # callers do not depend on it
                return
            self._conditions[name] = condition
            await self._report(max(self._conditions.values()))

        if self._conditions.get(name):
            await report(Condition.WORKS)  # a new model starts with a clean record
        reason = await hosted.supervise(report).run()
        if shadow:
            self._shadow.hosted = None
            log.error("the shadow is given up", extra={"fields": {"name": name, "reason": reason}})
        else:
            self._failures.put_nowait(reason)

    async def _retire(self, hosted: HostedModel) -> None:
        """Close a model once it has been idle for a moment, and free its memory."""
        idle = False
        while not (idle and hosted.idle):
            idle = hosted.idle
            await asyncio.sleep(_IDLE_S)
        self._past_restarts += hosted.decoder_restarts
        del self._retiring[hosted]
        hosted.close()
        model = hosted.model.model
        del hosted
        await asyncio.sleep(_IDLE_S)  # its tasks and threads end
        settle_garbage()
        log.info("model closed", extra={"fields": {"model": model}})


def _labels(name: str, model: PixelModel) -> tuple[str, ...]:
    return name, model.model, model.device, model.provider, model.precision
