"""Variables that libraries read when they are imported, of which some are meant for other programs."""

from __future__ import annotations

import os

_OF_OTHERS = ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir")
"""With these, prometheus_client keeps the metrics of several processes in files. This server is one."""


def settle_environment() -> None:
    """Call this in a process that is the server, before anything else of this package is imported."""
    # gRPC writes to stderr itself, which blocks if nobody reads it.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for name in _OF_OTHERS:
        os.environ.pop(name, None)
