"""Open files: every connection takes one, and a process may have only so many."""

from __future__ import annotations

import logging
import resource
from contextlib import suppress

from captioner_server.options import ServerOptions

log = logging.getLogger(__name__)

_OWN_FILES = 256
"""Reserved for the model, the ports, the log and libraries."""
_FILES_PER_WORKER = 8
"""Four for each process: one for ordinary images and one for slow ones."""
_ENOUGH = 2**16


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
