"""Open files: every connection takes one, and a process may have only so many."""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import time
from contextlib import suppress
from typing import Any

from captioner_server.options import ServerOptions

log = logging.getLogger(__name__)

_OWN_FILES = 256
"""Reserved for the model, the ports, the log and libraries."""
_FILES_PER_WORKER = 8
"""Four for each process: one for ordinary images and one for slow ones."""
_ENOUGH = 2**16
_NO_FILES = "socket.accept() out of system resource"
"""What asyncio says."""
_SAID_EVERY_S = 10.0


def raise_file_limit(options: ServerOptions) -> None:
    """Raise the soft limit of open files to the hard one. Logs a warning if that does not suffice for a
    connection for each call."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    wanted = max(soft, _ENOUGH) if hard == resource.RLIM_INFINITY else hard
    with suppress(OSError, ValueError):  # some systems allow less than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    needed = options.max_calls + _FILES_PER_WORKER * options.decode_workers + _OWN_FILES
    if soft < needed:
        fields = {"limit": soft, "needed": needed, "hint": "raise it with ulimit -n, or lower --max-calls"}
        log.warning("the limit of open files is low", extra={"fields": fields})


def say_once_without_files(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop say every ten seconds that no file is left for new connections, which wait; by itself it
    does so hundreds of times a second, with a traceback."""
    said_s = -math.inf

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said_s
        if not str(context.get("message")).startswith(_NO_FILES):
            loop.default_exception_handler(context)
        elif time.monotonic() - said_s >= _SAID_EVERY_S:
            said_s = time.monotonic()
            fields = {"reason": str(context.get("exception"))}
            log.error("no new HTTP connection can be accepted now", extra={"fields": fields})

    loop.set_exception_handler(handle)
