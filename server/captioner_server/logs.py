"""Log lines for people (`text`) or for programs (`json`), on stderr."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

from captioner.errors import clip

_MAX_TRACEBACK = 8000

Format = Literal["text", "json"]


def set_up(format: Format, level: int = logging.INFO) -> None:
    """Send the server's log lines to stderr. A record's fields are its `extra={"fields": {...}}`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if format == "json" else _TextFormatter())
    logger = logging.getLogger("captioner_server")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "event": record.getMessage()}
        if record.exc_info:
            line["exception"] = clip(self.formatException(record.exc_info), _MAX_TRACEBACK)
        return json.dumps(line | getattr(record, "fields", {}), default=str)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_quoted(value)}" for key, value in getattr(record, "fields", {}).items())
        line = f"{_time(record)} {record.levelname.lower()} {record.getMessage()}{fields}"
        if record.exc_info:
            return f"{line}\n{clip(self.formatException(record.exc_info), _MAX_TRACEBACK)}"
        return line


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in ' "=\n' for c in text) else text
