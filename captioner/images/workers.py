"""Decoding images in processes that can be killed.

Decoders hold Python's lock, may need minutes or gigabytes for a file of some kilobytes, and may crash.
Separate processes isolate them: each image has a limit of processor time and of memory, and if a process
dies, only its current image fails. Pixels come back through shared memory.
"""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from captioner.cores import available_cores
from captioner.errors import DecodingInterruptedError
from captioner.images.preparation import Pixels, Preparation
from captioner.images.worker_process import WorkerLostError, WorkerProcess, WorkersError

DEFAULT_MAX_CPU_S = 2.0
_TRIES = 5
_SMOOTHING = 0.05  # weight of the newest image in the running estimate


class DecodeWorkers:
    """Processes that decode one image each at a time. Thread-safe; use as a context, or close it."""

    def __init__(
        self,
        preparation: Preparation,
        count: int | None = None,
        max_cpu_s: float = DEFAULT_MAX_CPU_S,
        niceness: int = 0,
    ) -> None:
        """`count` processes (None: one per core), started when first needed. An image may take `max_cpu_s`
        seconds of processor time and the memory in the limits of `preparation`. With a `niceness` above 0, up
        to 19, the processes have a lower priority than others. Raises `WorkersError` on Windows."""
        if not hasattr(signal, "setitimer"):
            what = "photos are decoded in processes of their own, which this system does not support"
            raise WorkersError(f"{what}: use captioner caption, or WSL or a container")
        self.count = count or available_cores()
        self.image_s = 0.0
        """Recent time to decode an image, in seconds."""
        self._max_cpu_s = max_cpu_s
        # The last one first, so that those that have been started come first.
        self._idle: queue.LifoQueue[WorkerProcess] = queue.LifoQueue()
        self._workers = [WorkerProcess(preparation, max_cpu_s, niceness) for _ in range(self.count)]
        for worker in self._workers:
            self._idle.put(worker)

    def load(self, image: bytes, preempt: Callable[[float], bool] | None = None) -> Pixels:
        """The model's input, as from `Preparation.load`; waits for a free process.

        Raises an `ImageError`, also for an image that takes too long or too much memory, or crashes its
        decoder, and `DecodingInterruptedError` if its processes are killed again and again or hardly run;
        `PreemptedError` once `preempt` returns True, which is called about every 50 ms with the seconds of
        processor time used so far; `WorkersError` when no process can be started."""
        worker = self._idle.get()
        try:
            for _ in range(_TRIES):
                worker.busy_since = time.monotonic()
                try:
                    worker.start()
                    worker.wait_until_ready()
                    started = worker.busy_since = time.monotonic()
                    pixels = worker.load(image, preempt)
                    self.image_s += _SMOOTHING * (time.monotonic() - started - self.image_s)
                    return pixels
                except WorkerLostError:  # killed from outside: most likely it was not this image's fault
                    worker = self._exchange(worker)
            raise DecodingInterruptedError(
                "the process that decoded the image was killed repeatedly, most likely for want of memory"
            )
        finally:
            worker.busy_since = None
            self._idle.put(worker)

    def _exchange(self, worker: WorkerProcess) -> WorkerProcess:
        """Another free process, if there is one, because this one has just been restarted."""
        try:
            other = self._idle.get_nowait()
        except queue.Empty:
            return worker
        worker.busy_since = None
        self._idle.put(worker)
        return other

    @property
    def restarts(self) -> int:
        """Restarts of processes that crashed, reached a limit or were killed from outside."""
        return sum(max(0, worker.starts - 1) - worker.preempted for worker in self._workers)

    def expected_wait_s(self, ahead: int = 0) -> float:
        """Expected wait of a new image for a process, behind `ahead` others.

        A process that has been busy for longer than usual is expected to need as long again."""
        now = time.monotonic()
        busy = [since for worker in self._workers if (since := worker.busy_since) is not None]
        if len(busy) < self.count:
            return 0.0
        first_s = min(max(now - since, self.image_s - (now - since)) for since in busy)
        return min(first_s, self._max_cpu_s) + ahead * self.image_s / self.count

    def warm_up(self) -> None:
        """Start every process now. Raises `WorkersError`."""
        for worker in self._workers:
            worker.start()
        for worker in self._workers:
            try:
                worker.wait_until_ready()
            except WorkerLostError:
                raise WorkersError("a process to decode images was killed while it started") from None

    def close(self) -> None:
        """End all processes; calls of `load` that are running raise."""
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
