"""One process that decodes images, as the process that starts it sees it: `worker` runs in it."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
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

import numpy as np

from captioner.errors import (
    CaptionerError,
    DecodingInterruptedError,
    ImageTooLargeError,
    NotAnImageError,
    reason_of,
)
from captioner.images.preparation import Pixels, Preparation
from captioner.images.worker import DONE, ERRORS, READY, REPLY, REQUEST, receive

_START_S = 60.0
_POLL_MS = 50
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


class WorkerLostError(Exception):
    """The process has gone without having been at fault."""


class WorkerProcess:
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
        """The model's input, uint8 (size, size, channels), for an image file; the process must be
        ready. Raises as `DecodeWorkers.load` does, and `WorkerLostError`."""
        assert self._socket is not None
        try:
            self._give(image)
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

    def _give(self, image: bytes) -> None:
        try:
            os.ftruncate(self._memory, self._offset + len(image))
            _write(self._memory, image, self._offset)
        except OSError as error:
            if error.errno not in (errno.EFBIG, errno.ENOSPC, errno.ENOMEM):
                raise
            raise DecodingInterruptedError(
                f"the image cannot be given to the process that decodes it: {reason_of(error)}"
            ) from None

    def start(self) -> None:
        """Start the process if it does not run. Raises `WorkersError`."""
        with self._lock:
            if self._closed:
                raise WorkersError("the processes that decode images have been closed")
            if self._process is not None:
                return
            try:
                self._spawn()
            except OSError as error:  # for want of processes, memory or open files
                raise WorkersError(f"cannot start a process to decode images: {reason_of(error)}") from None
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
        """Raises `WorkersError`, and `WorkerLostError` for a process that was killed as it started."""
        if self._ready:
            return
        try:
            status, message = self._reply(_START_S)
        except TimeoutError:
            self._stop()
            raise WorkersError(f"a process to decode images has not started within {_START_S:g} s") from None
        except OSError:
            if self._stop() == -signal.SIGKILL:
                raise WorkerLostError from None
            raise WorkersError("a process to decode images cannot be started") from None
        if status != READY:
            raise WorkersError(f"a process to decode images cannot be started: {message}")
        self._ready = True

    def close(self) -> None:
        """End the process; it is not started again."""
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
        header = receive(self._socket, REPLY.size)
        if not header:
            raise OSError
        status, length = REPLY.unpack(header)
        return status, receive(self._socket, length).decode(errors="replace") if length else ""

    def _reason(self) -> Exception:
        """The reason why the process ended while decoding. It is restarted."""
        status = self._stop()
        if self._closed:
            return WorkersError("the processes that decode images have been closed")
        if status == -signal.SIGPROF:
            self._replace()
            limit = f"{self._max_cpu_s:g} s of processor time (max_decode_s)"
            return ImageTooLargeError(f"decoding the image takes more than {limit}")
        if -status in _CRASHES:
            self._replace()
            return NotAnImageError("the image crashes its decoder")
        self.start()
        return WorkerLostError()

    def _replace(self) -> None:
        """Restart the process at once, so that the next image does not wait for it."""
        with suppress(WorkersError, WorkerLostError):  # the next image says so
            self.start()
            self.wait_until_ready()

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
