"""The address space of the process, which `ulimit -v` limits."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

_ENOUGH_BYTES = 2**30


def tell_low_address_space() -> None:
    """Log a warning if gRPC and ONNX Runtime may get less than they need: they then end the process without
    an error message."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _ENOUGH_BYTES:
        fields = {"limit": limit, "needed": _ENOUGH_BYTES, "hint": "raise it with ulimit -v"}
        log.warning("the limit of address space is low", extra={"fields": fields})
