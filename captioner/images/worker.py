"""A process that decodes images for another: started, limited and, if need be, killed by `worker_process`.

The process and its parent communicate over a socket and share a file in memory: the first part holds the
pixels, the rest holds the image file. For each image the parent sends the length of the image file; the
answer is a status byte and a message. The process ends when the socket is closed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from captioner.errors import (
    CaptionerError,
    ImageTooLargeError,
    ImageUnreadableError,
    NotAnImageError,
    clip,
)
from captioner.images.letterbox import Letterbox
from captioner.images.limits import ImageLimits
from captioner.images.preparation import Preparation

REQUEST = struct.Struct("<Q")
"""Length of the image file in bytes."""
REPLY = struct.Struct("<BH")
"""Status, and length of the message in bytes."""
READY, DONE = 0, 1
ERRORS: dict[int, type[CaptionerError]] = {
    2: NotAnImageError,
    3: ImageTooLargeError,
    4: ImageUnreadableError,
    5: CaptionerError,
}
"""Kinds of errors by status; the message follows."""

_SPARE_BYTES = 256 * 2**20
"""Memory beside the decoded image: the file, strips of conversions, tables of decoders."""
_PLUGINS = ("JpegImagePlugin", "PngImagePlugin", "WebPImagePlugin", "ImageCms")


def main() -> None:
    """Serve until the parent closes the socket. The one argument is JSON: descriptors and limits."""
    given = json.loads(sys.argv[-1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which tells us by the socket
    preparation = read_preparation(given["preparation"])
    for plugin in _PLUGINS:  # loaded on first use otherwise, which the first caller would pay for
        __import__(f"PIL.{plugin}")
    _limit(given["max_memory"])
    _lower_priority(given["niceness"])
    with socket.socket(fileno=given["socket"]) as parent:
        parent.sendall(REPLY.pack(READY, 0))
        while request := receive(parent, REQUEST.size):
            (length,) = REQUEST.unpack(request)
            status, message = _answer(preparation, given["memory"], length, given["max_cpu_s"])
            parent.sendall(REPLY.pack(status, len(message)) + message)


def read_preparation(given: dict[str, Any]) -> Preparation:
    """The inverse of `dataclasses.asdict` and JSON."""
    box = given["letterbox"]
    letterbox = None if box is None else Letterbox(box["stride"], tuple(box["color"]))
    limits = ImageLimits(**{**given["limits"], "formats": tuple(given["limits"]["formats"])})
    return Preparation(given["size"], letterbox, limits)


def _answer(preparation: Preparation, memory: int, length: int, max_cpu_s: float) -> tuple[int, bytes]:
    # SIGPROF ends the process, wherever the decoder is: nothing in Python needs to run for that.
    signal.setitimer(signal.ITIMER_PROF, max_cpu_s)
    try:
        rows, columns, channels = preparation.shape
        image = os.pread(memory, length, rows * columns * channels)
        pixels = preparation.load(image)
        os.pwrite(memory, pixels.data, 0)
    except CaptionerError as error:
        return _failure(error)
    except MemoryError:
        return _failure(ImageTooLargeError("the image needs more memory than it may have"))
    except Exception as error:
        return _failure(CaptionerError(f"{type(error).__name__}: {error}"))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return DONE, b""


def _failure(error: CaptionerError) -> tuple[int, bytes]:
    status = next(status for status, kind in ERRORS.items() if isinstance(error, kind))
    return status, clip(str(error), 1000).encode(errors="replace")


def _limit(max_memory: int) -> None:
    """Limit the memory beyond its present use; if the system runs out, this process is killed first."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # others do not tell the size of a process, or do not keep to the limit
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + max_memory + _SPARE_BYTES
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)  # ulimit -v cannot be raised
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        with suppress(OSError):  # in some sandboxes, /proc is read-only
            Path("/proc/self/oom_score_adj").write_text("1000")


def _lower_priority(niceness: int) -> None:
    if niceness:
        os.nice(niceness)
        # Where Linux groups processes by session, the niceness of a group counts.
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(niceness))


def receive(source: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes; none at the end of the socket. Raises `OSError`."""
    found = b""
    while len(found) < count:
        part = source.recv(count - len(found))
        if not part:
            return b""
        found += part
    return found
