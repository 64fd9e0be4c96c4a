"""Decoding images in processes that can be killed.

Decoders hold Python's lock, may need minutes or gigabytes for a file of some kilobytes, and may crash.
Separate processes isolate them: each image has a limit of processor time and of memory, and if a process
dies, only its current image fails. Pixels come back through shared memory.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from captioner.cores import available_cores
from captioner.errors import (
    CaptionerError,
    DecodingInterruptedError,
    ImageError,
    ImageTooLargeError,
    NotAnImageError,
)
from captioner.images.preparation import Pixels, Preparation
from captioner.images.worker import DONE, ERRORS, READY, REPLY, REQUEST, _receive

DEFAULT_MAX_CPU_S = 2.0
_START_S = 60.0
_TRIES = 5
_POLL_MS = 50
_SMOOTHING = 0.05  # weight of the newest image in the running estimate
_CRASHES = frozenset(
    getattr(signal, f"SIG{name}")
    for name in ("SEGV", "ABRT", "BUS", "FPE", "ILL", "TRAP")
    if hasattr(signal, f"SIG{name}")  # Windows lacks some
)
_INHERITED = frozenset(
    ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
) | {"TMPDIR", "SYSTEMROOT", "TEMP", "TMP"}
"""All that a decoder gets of the environment, which may hold keys and passwords: an image that takes over its
decoder must not read them."""
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # glibc keeps this much freed memory for the next image. Otherwise it returns it to the system after each
    # one, and faulting the pages in again takes a quarter of the time that a photo takes.
    "MALLOC_MMAP_THRESHOLD_": str(8 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(16 * 2**20),
}


class WorkersError(CaptionerError):
    """No process that decodes images can be started."""

    code = "no_workers"
    exit_status = 2


class PreemptedError(Exception):
    """Decoding was stopped because others wait; the image can be decoded again."""


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
        self.lost = 0
        """Processes that were killed from outside, for instance by the system when memory ran out."""
        self._max_cpu_s = max_cpu_s
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()  # those that have been started come first
        self._workers = [_Worker(preparation, max_cpu_s, niceness) for _ in range(self.count)]
        for worker in self._workers:
            self._idle.put(worker)

    def load(self, image: bytes, preempt: Callable[[float], bool] | None = None) -> Pixels:
        """The model's input, as from `Preparation.load`; waits for a free process.

        Raises an `ImageError`, also for an image that takes too long or too much memory, or crashes its
        decoder, and `DecodingInterruptedError` if its processes are killed again and again or hardly run;
        `PreemptedError`
        once `preempt` returns True, which is called about every 50 ms with the seconds of processor time used
        so far; `WorkersError` when no process can be started."""
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
                except _WorkerLost:  # killed from outside: most likely it was not this image's fault
                    self.lost += 1
                    worker = self._exchange(worker)
            raise DecodingInterruptedError(
                "the process that decoded the image was killed repeatedly, most likely for want of memory"
            )
        finally:
            worker.busy_since = None
            self._idle.put(worker)

    def _exchange(self, worker: _Worker) -> _Worker:
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
            except _WorkerLost:
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


class _WorkerLost(Exception):
    """The process has gone without having been at fault."""


class _Worker:
    """One process, which is started again whenever it has ended."""

    def __init__(self, preparation: Preparation, max_cpu_s: float, niceness: int) -> None:
        self.busy_since: float | None = None
        """Since when it has been decoding, by `time.monotonic`; None if idle."""
        self.starts = self.preempted = 0
        self._shape = preparation.shape
        self._offset = int(np.prod(self._shape))
        self._settings = {
            "preparation": dataclasses.asdict(preparation),
            "max_memory": preparation.limits.max_memory,
            "max_cpu_s": max_cpu_s,
            "niceness": niceness,
        }
        # Many times the processor time: a machine may be busy with other things.
        self._wall_s = 10 * max_cpu_s + 10
        self._max_cpu_s = max_cpu_s
        self._lock = threading.Lock()
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._memory = -1
        self._ready = False

    def load(self, image: bytes, preempt: Callable[[float], bool] | None) -> Pixels:
        """The process must be ready."""
        assert self._socket is not None
        try:
            os.ftruncate(self._memory, self._offset + len(image))
            _write(self._memory, image, self._offset)
            self._socket.sendall(REQUEST.pack(len(image)))
            ends = time.monotonic() + self._wall_s
            if preempt and not self._replies(preempt, ends):
                self._stop(at_once=True)
                self.preempted += 1
                self._replace()
                raise PreemptedError
            status, message = self._reply(max(ends - time.monotonic(), _POLL_MS / 1000))
            os.ftruncate(self._memory, self._offset)  # a large file does not stay in memory
        except TimeoutError:  # not the image's fault, for which the process would have ended itself
            self._stop()
            self._replace()
            raise DecodingInterruptedError(
                f"the process that decodes the image got too little processor time within {self._wall_s:g} s"
            ) from None
        except OSError:  # the socket is broken
            raise self._reason() from None
        if status == DONE:
            pixels = np.empty(self._shape, np.uint8)
            os.preadv(self._memory, [pixels.data], 0)
            return pixels
        raise ERRORS.get(status, NotAnImageError)(message)

    def start(self) -> None:
        with self._lock:
            if self._closed:
                raise WorkersError("the processes that decode images have been closed")
            if self._process is not None:
                return
            try:
                self._spawn()
            except OSError as error:  # for want of processes, memory or open files
                raise WorkersError(f"cannot start a process to decode images: {error.strerror}") from None
            self.starts += 1
            self._ready = False

    def _spawn(self) -> None:
        with ExitStack() as opened:
            memory = _memory_file(self._offset)
            opened.callback(os.close, memory)
            ours, theirs = socket.socketpair()
            opened.enter_context(ours)
            with theirs:
                given = {**self._settings, "socket": theirs.fileno(), "memory": memory}
                self._process = subprocess.Popen(
                    _command(json.dumps(given)),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), memory),
                    start_new_session=True,
                    env=_environment(),
                )
            opened.pop_all()
            self._memory, self._socket = memory, ours

    def wait_until_ready(self) -> None:
        if self._ready:
            return
        try:
            status, message = self._reply(_START_S)
        except TimeoutError:
            self._stop()
            raise WorkersError(f"a process to decode images has not started within {_START_S:g} s") from None
        except OSError:
            killed = self._stop() == -signal.SIGKILL
            if killed:
                raise _WorkerLost from None
            raise WorkersError("a process to decode images cannot be started") from None
        if status != READY:
            raise WorkersError(f"a process to decode images cannot be started: {message}")
        self._ready = True

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
        if self.busy_since is None:  # else the thread that waits for its answer cleans up
            self._stop()

    def _replies(self, preempt: Callable[[float], bool], ends: float) -> bool:
        """Wait for the reply, or until a time; False once `preempt` returns True."""
        assert self._socket is not None and self._process is not None
        replies = select.poll()
        replies.register(self._socket, select.POLLIN)
        if replies.poll(_POLL_MS):
            return True
        # Read only now, because most images are decoded by now. This one has used at most this much.
        started_cpu_s = _cpu_s(self._process.pid) - _POLL_MS / 1000
        while not preempt(_cpu_s(self._process.pid) - started_cpu_s):
            if replies.poll(_POLL_MS) or time.monotonic() >= ends:
                return True
        return False

    def _reply(self, timeout_s: float) -> tuple[int, str]:
        """Raises `OSError` when the process has gone, and `TimeoutError`."""
        if self._socket is None:
            raise OSError
        self._socket.settimeout(timeout_s)
        header = _receive(self._socket, REPLY.size)
        if not header:
            raise OSError
        status, length = REPLY.unpack(header)
        return status, _receive(self._socket, length).decode(errors="replace") if length else ""

    def _reason(self) -> Exception:
        """The reason why the process ended while decoding. It is restarted."""
        status = self._stop()
        if self._closed:
            return WorkersError("the processes that decode images have been closed")
        if status == -signal.SIGPROF:
            self._replace()
            return self._too_slow()
        if -status in _CRASHES:
            self._replace()
            return NotAnImageError("the image crashes its decoder")
        self.start()
        return _WorkerLost()

    def _replace(self) -> None:
        """Restart the process at once, so that the next image does not wait for it."""
        with suppress(WorkersError, _WorkerLost):  # the next image says so
            self.start()
            self.wait_until_ready()

    def _too_slow(self) -> ImageError:
        limit = f"{self._max_cpu_s:g} s of processor time (max_decode_s)"
        return ImageTooLargeError(f"decoding the image takes more than {limit}")

    def _stop(self, at_once: bool = False) -> int:
        """Kill the process, if it still runs; returns its exit status."""
        with self._lock:
            process, self._process = self._process, None
            if process is None:
                return 0
            self._ready = False
            # A process that has exited needs a moment until its status is known.
            try:
                status = process.wait(0 if self._closed or at_once else 0.5)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
            if self._socket is not None:
                self._socket.close()
            os.close(self._memory)
            return status


def _command(argument: str) -> list[str]:
    # What this process can import, and nothing from the working directory.
    paths = json.dumps([path or os.getcwd() for path in sys.path])  # noqa: PTH109
    code = f"import sys; sys.path[:] = {paths!s}; from captioner.images.worker import main; main()"
    return [sys.executable, "-P", "-c", code, argument]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.upper() in _INHERITED} | _ENVIRONMENT


def _cpu_s(pid: int) -> float:
    """Processor time of a process of ours, in seconds; where the system does not tell, the time of day."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_file(length: int) -> int:
    """The descriptor of a file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("captioner-image")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, length)
    return descriptor


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
