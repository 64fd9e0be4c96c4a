"""Tries a new model on real requests: it also captions a share of the images of the default model, and its
captions are compared and discarded."""

from __future__ import annotations

import asyncio
import logging
import random
import time

from captioner.errors import CaptionerError
from captioner.options import CaptionOptions
from captioner.results import Caption
from captioner_server.captioning.hosted_model import HostedModel
from captioner_server.errors import BusyError
from captioner_server.intake.ticket import Ticket
from captioner_server.observation.call import Call, current_call
from captioner_server.observation.metrics import SHADOW, Metrics
from captioner_server.observation.tracing import current_trace

log = logging.getLogger(__name__)

OUTCOMES = ("same", "different", "failed", "dropped")
_PATIENCE_S = 60.0
_MOST = 16
"""Most images that are compared at the same time; others are skipped."""


class Shadow:
    """Counts how often the captions of another model differ. For use on one event loop."""

    def __init__(self, share: float, metrics: Metrics) -> None:
        self.hosted: HostedModel | None = None
        """The other model, once it is ready."""
        self._share, self._metrics = share, metrics
        self._tasks: set[asyncio.Task[None]] = set()

    def observe(self, image: bytes, options: CaptionOptions, caption: Caption) -> None:
        """Caption an image again, with the probability `share`, without delaying its call."""
        if self.hosted is None or random.random() >= self._share:
            return
        if len(self._tasks) >= _MOST:
            self._metrics.shadow.labels("dropped").inc()
            return
        task = asyncio.create_task(self._compare(self.hosted, image, options, caption))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _compare(
        self, hosted: HostedModel, image: bytes, options: CaptionOptions, caption: Caption
    ) -> None:
        current_call.set(Call(SHADOW, "", caller=SHADOW))
        ticket = Ticket("shadow", deadline_s=time.monotonic() + _PATIENCE_S)
        current_trace.set(None)  # not part of the call
        try:
            options = hosted.search.resolve(options)
            with hosted.enter(ticket, options):
                other = await hosted.caption(ticket, image, options)
            outcome = "same" if other.text == caption.text else "different"
        except BusyError:
            outcome = "dropped"
        except CaptionerError:
            outcome = "failed"
        except Exception:
            outcome = "failed"
            log.exception("a defect, in the shadow model")
        self._metrics.shadow.labels(outcome).inc()
