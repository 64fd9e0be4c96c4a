"""Writes log lines without blocking the server.

A pipe that is not read is full after some hundred lines, and then blocks the process that writes to it. Lines
therefore pass through a bounded queue to a thread; lines that do not fit are dropped and counted.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time

QUEUE_LINES = 10_000


class LogWriter(logging.Handler):
    """A handler that writes to a file descriptor. A closed one or a full disk costs lines, nothing else."""

    def __init__(self, descriptor: int, queue_lines: int = QUEUE_LINES) -> None:
        super().__init__()
        self.dropped = 0
        """Number of lines that were not written."""
        self._descriptor = descriptor
        self._records: queue.Queue[logging.LogRecord] = queue.Queue(queue_lines)
        self._dropped_before = 0
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:  # as text, for its frames hold the messages of calls
            record.exc_text = (self.formatter or logging.Formatter()).formatException(record.exc_info)
            record.exc_info = None
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def drain(self, timeout_s: float) -> None:
        """Wait until all lines are written, at most `timeout_s`."""
        end = time.monotonic() + timeout_s
        while self._records.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.005)

    def close(self) -> None:
        """Wait briefly for the remaining lines, at the end of the process."""
        self.drain(0.5)
        super().close()

    def _write_all(self) -> None:
        while True:
            record = self._records.get()
            try:
                if missing := self.dropped - self._dropped_before:
                    self._write(_dropped_lines(missing))
                    self._dropped_before += missing
                self._write(record)
            except Exception:  # a line that cannot be formatted must not stop the thread
                self.dropped += 1
            finally:
                self._records.task_done()

    def _write(self, record: logging.LogRecord) -> None:
        data = memoryview(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        while data:
            data = data[os.write(self._descriptor, data) :]


def _dropped_lines(count: int) -> logging.LogRecord:
    values = {"msg": "log lines dropped", "levelno": logging.WARNING, "levelname": "WARNING"}
    return logging.makeLogRecord({**values, "fields": {"lines": count}})
