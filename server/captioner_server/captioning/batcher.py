"""Batching: images that arrive while the model is busy are captioned together.

When the model is idle, a batch starts at once; no image waits for others. Callers take turns, whatever their
options. Images that were cancelled, have waited too long or cannot be captioned before their deadline are
dropped before they cost compute.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from captioner.options import CaptionOptions
from captioner.protocol import Outcome, PixelModel, Pixels
from captioner.results import Caption
from captioner_server.captioning.compute import Computed, compute
from captioner_server.errors import BusyError, DeadlineError
from captioner_server.intake.fair_queue import FairQueue
from captioner_server.intake.ticket import Ticket
from captioner_server.intake.turns import submit
from captioner_server.observation.metrics import Metrics
from captioner_server.observation.tracing import begin_batch, begin_wait

if TYPE_CHECKING:
    from captioner_server.observation.spans import WaitSpans

log = logging.getLogger(__name__)

_RETRY_AFTER_S = 1.0
_DEAREST_BATCH = 2.0  # largest cost of a batch, in largest batches of default searches
_MIXED_SHARE = 1 / 4  # size of a batch of interactive and bulk images, in largest batches, ...
_MIXED_CALLS = 3 / 4  # ... unless more than this share of it would be interactive
_SMOOTHING = 0.2  # weight of the newest batch in the running estimates


@dataclass(slots=True, eq=False)
class _Job:
    pixels: Pixels
    options: CaptionOptions
    ticket: Ticket
    entered_s: float
    answer: asyncio.Future[Computed]
    trace: WaitSpans | None


class Batcher:
    """Runs the model on its own threads, as many batches at a time as the model has lanes.

    `run` must be running on the event loop. Times are those of `clock`, in seconds.
    """

    def __init__(
        self,
        model: PixelModel,
        sizes: Sequence[int],
        max_wait_s: float,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sizes` are the allowed batch sizes, ascending from 1."""
        self._model = model
        self._sizes = tuple(sizes)
        self._max_wait_s = max_wait_s
        self._metrics = metrics
        self._compute_seconds = metrics.compute_seconds.labels(model.precision)
        self._clock = clock
        self._queue: FairQueue[_Job] = FairQueue()
        self._wake = asyncio.Event()
        self._threads = ThreadPoolExecutor(model.lanes, thread_name_prefix="model")
        self._unit_s: dict[int, float] = {}  # time for a unit of cost, by batch size
        # Time and cost of recent batches, decaying exponentially.
        self._recent_s, self._recent_cost = 0.0, 0.0
        self.failures = 0
        """Consecutive batches that failed."""
        self._begun: list[float] = []
        """Start times of the batches that are being computed, by `time.monotonic`."""
        self.running = False

    @property
    def busy_since(self) -> float | None:
        """Start time of the oldest batch that is being computed, by `time.monotonic`."""
        return min(self._begun, default=None)

    @property
    def waiting(self) -> int:
        """Images in the queue."""
        return len(self._queue)

    @property
    def image_s(self) -> float:
        """Recent time per image with the default search; 0 before the first batch."""
        return self._recent_s / self._recent_cost / self._model.lanes if self._recent_cost else 0.0

    def least_entitled(self, caller: str) -> asyncio.Future[Computed] | None:
        """The answer to the newest waiting image of the caller that has the most, if `caller` has at least
        two fewer."""
        job = self._queue.newest_of_most(caller)
        return None if job is None or job.answer.done() else job.answer

    def learn(self, size: int, compute_s: float, cost: float | None = None) -> None:
        """Record that a batch took `compute_s`. Its cost is its size unless given."""
        cost = cost or size
        known_s = self._unit_s.get(size, compute_s / cost)
        self._unit_s[size] = known_s + _SMOOTHING * (compute_s / cost - known_s)
        self._recent_s = (1 - _SMOOTHING) * self._recent_s + compute_s
        self._recent_cost = (1 - _SMOOTHING) * self._recent_cost + cost

    async def submit(self, pixels: Pixels, options: CaptionOptions, ticket: Ticket) -> Computed:
        """Wait for the caption of one image, (size, size, channels), with resolved options.

        Cancelling the call removes the image from the queue. Raises `DeadlineError` if the deadline passes in
        the queue and `BusyError` after the longest wait allowed.
        """
        loop = asyncio.get_running_loop()
        now, answer, trace = self._clock(), loop.create_future(), begin_wait()
        job = _Job(pixels, options, ticket, now, answer, trace)
        self._queue.add(job, ticket, ticket.cost)
        self._wake.set()
        limit = loop.call_later(self._max_wait_s, self._overdue, job)
        try:
            return await job.answer
        finally:
            limit.cancel()
            if trace:
                trace.end()
            if job in self._queue:
                self._drop(job)

    async def run(self) -> None:
        """Process the queue until cancelled; images that still wait are left unanswered."""
        self.running = True
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._model.lanes):
                    tasks.create_task(self._run())
        finally:
            self.running = False

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            jobs = self._take(self._clock())
            if not jobs:
                self._wake.clear()
                continue
            started = self._clock()
            widest = max(job.options.beam_size or 1 for job in jobs)
            trace = begin_batch([job.trace for job in jobs], widest)
            work = trace.observing(compute) if trace else compute
            begun = time.monotonic()
            self._begun.append(begun)
            try:
                pixels, options = [job.pixels for job in jobs], [job.options for job in jobs]
                computing = submit(self._threads, work, self._model, pixels, options)
                outcomes = await asyncio.wrap_future(computing)
            except Exception as error:  # a defect, in the model or here: only this batch fails
                self.failures += 1
                self._metrics.failed_batches.inc()
                log.exception("the model failed on a batch of %d", len(jobs))
                for job in jobs:
                    if not job.answer.done():
                        job.answer.set_exception(error)
                continue
            finally:
                self._begun.remove(begun)
                if trace:
                    trace.end()
            self._answer(jobs, outcomes, started)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _take(self, now: float) -> list[_Job]:
        """The next batch, in fair order."""
        for job in self._queue:
            if job.answer.done() or job.ticket.deadline_s <= now:
                self._drop(job, DeadlineError("the deadline passed in the queue"), "deadline")
        waiting = list(self._queue.order())
        if not waiting:
            return []
        jobs = self._choose(waiting, now)
        for job in jobs:
            self._queue.take(job)
        return jobs

    def _choose(self, waiting: Sequence[_Job], now: float) -> list[_Job]:
        """The largest batch that can be computed before all its deadlines, in the given order. Batches of
        expensive searches are smaller, so that others do not wait longer for them. So are batches that bulk
        images would fill up, because interactive ones would wait for these."""
        largest = self._largest(waiting)
        for size in reversed(self._sizes):
            if size > largest:
                continue
            end = now + self._estimate_s(size, _cost(waiting[:size]))
            in_time = [job for job in waiting if end <= job.ticket.deadline_s][:size]
            dear = _cost(in_time) > _DEAREST_BATCH * self._sizes[-1]
            if len(in_time) == size and (size == 1 or not dear):
                return in_time
        # By the estimate, none can be computed in time. Try the one with the most time left: otherwise an
        # estimate that is too long would never be corrected.
        return [max(waiting, key=lambda job: job.ticket.deadline_s)]

    def _largest(self, waiting: Sequence[_Job]) -> int:
        """The largest size of a batch, by what waits."""
        calls = sum(not job.ticket.bulk for job in waiting)
        if calls in (0, len(waiting)):
            return self._sizes[-1]
        wanted = max(self._sizes[-1] * _MIXED_SHARE, calls / _MIXED_CALLS)
        return next((size for size in self._sizes if size >= wanted), self._sizes[-1])

    def _estimate_s(self, size: int, cost: float) -> float:
        """Estimated time of a batch, by the best time per unit of cost among the sizes up to this one: an
        image takes no longer in a larger batch."""
        return cost * min((unit_s for known, unit_s in self._unit_s.items() if known <= size), default=0.0)

    def _answer(self, jobs: list[_Job], outcomes: list[Outcome], started: float) -> None:
        compute_s = self._clock() - started
        self.learn(len(jobs), compute_s, _cost(jobs))
        nothing = all(isinstance(outcome, BusyError) for outcome in outcomes)
        self.failures = self.failures + 1 if nothing else 0
        self._metrics.batch_size.observe(len(jobs))
        self._compute_seconds.observe(compute_s)
        for job, outcome in zip(jobs, outcomes, strict=True):
            queue_s = started - job.entered_s
            self._metrics.queue_seconds.observe(queue_s)
            if job.answer.done():
                continue
            if isinstance(outcome, Caption):
                job.answer.set_result(Computed(outcome, queue_s, compute_s, len(jobs)))
            else:
                job.answer.set_exception(outcome)

    def _overdue(self, job: _Job) -> None:
        if job in self._queue:
            message = f"waited {self._max_wait_s:g} s for the model, the longest allowed (max_wait_s)"
            self._drop(job, BusyError(message, _RETRY_AFTER_S), "max_wait")

    def _drop(self, job: _Job, error: Exception | None = None, reason: str = "cancelled") -> None:
        """Remove a job from the queue; it fails with the error, unless its caller has gone."""
        self._queue.discard(job)
        if error is None or job.answer.done():
            reason = "cancelled"
        else:
            job.answer.set_exception(error)
        self._metrics.dropped.labels(reason).inc()


def _cost(jobs: Sequence[_Job]) -> float:
    return sum(job.ticket.cost for job in jobs)
