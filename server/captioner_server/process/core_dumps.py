"""Core dumps, which would write what a process that crashes has in memory: images, tokens, private keys."""

from __future__ import annotations

import resource


def leave_no_core_dump() -> None:
    """Lower the soft limit only: `prlimit --core=unlimited --pid PID` has dumps again, to search a fault."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
