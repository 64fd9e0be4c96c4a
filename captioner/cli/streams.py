"""stdout and stderr: UTF-8, of what may be printed, and where one of them is closed."""

from __future__ import annotations

import io
import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

from captioner.errors import OutputError
from captioner.printable import printable


class _PrintableFormatter(logging.Formatter):
    """Messages may quote what a server said."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


class _ClosedOutput(io.TextIOBase):
    """stdout where it was closed before the start: `print` would drop results, and nobody would know. An
    `OSError` would be dropped by argparse."""

    def write(self, text: str, /) -> int:
        return self.buffer if text else 0

    @property
    def buffer(self) -> NoReturn:
        raise OutputError("stdout is closed, and the results go there")


def set_up_streams() -> None:
    if sys.stdout is None:
        sys.stdout = _ClosedOutput()
    if sys.stderr is None:  # closed before the start: `print` would write to stdout instead
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    if logging.lastResort:  # warnings of the client and of libraries
        logging.lastResort.setFormatter(_PrintableFormatter("captioner: %(message)s"))
    # UTF-8 whatever the locale; names of files that are not UTF-8 are written back byte for byte.
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
