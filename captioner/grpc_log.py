"""What the log of gRPC must not have."""

from __future__ import annotations

import logging


def leave_out_headers() -> None:
    """Drop what gRPC logs of headers that are not UTF-8: a traceback, and values that may be tokens."""
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_no_header)


def _is_no_header(record: logging.LogRecord) -> bool:
    return "Invalid encoding" not in str(record.msg)
