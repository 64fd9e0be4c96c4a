"""Log lines on stderr for people (`text`) or programs (`json`), written without blocking."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Literal

from captioner.errors import clip
from captioner_server.observation.log_writer import LogWriter

_MAX_TRACEBACK = 8000

Format = Literal["text", "json"]


def set_up(format: Format, level: int = logging.INFO) -> LogWriter:
    """Send the server's log lines to stderr, and those of other libraries from level WARNING.

    The fields of a record are its `extra={"fields": {...}}`."""
    writer = LogWriter(_stderr())
    writer.setFormatter(_JsonFormatter() if format == "json" else _TextFormatter())
    logger = logging.getLogger("captioner_server")
    logger.handlers = [writer]
    logger.setLevel(level)
    logger.propagate = False
    logging.captureWarnings(True)
    others = logging.getLogger()
    others.handlers = [writer]
    others.setLevel(logging.WARNING)
    return writer


def _stderr() -> int:
    """The descriptor of stderr; that of the null device if it is closed."""
    try:
        return os.dup(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        return os.open(os.devnull, os.O_WRONLY)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "event": record.getMessage()}
        if record.exc_text:
            line["exception"] = clip(record.exc_text, _MAX_TRACEBACK)
        return json.dumps(line | getattr(record, "fields", {}), default=str)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_quoted(value)}" for key, value in getattr(record, "fields", {}).items())
        line = f"{_time(record)} {record.levelname.lower()} {record.getMessage()}{fields}"
        if record.exc_text:
            return f"{line}\n{clip(record.exc_text, _MAX_TRACEBACK)}"
        return line


def _quoted(value: object) -> str:
    text = str(value)
    if not text.isprintable():  # control characters would forge lines or change a terminal
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in ' "=' for c in text) else text
