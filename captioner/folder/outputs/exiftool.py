"""A running exiftool, the program that reads and writes the metadata of all photo formats.

It is started once and receives one file after another (options -stay_open and -@), as a start takes 0.2 s.
PyExifTool is not used: it runs Python between fork and exec, where a program with threads may hang.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from captioner.errors import RuntimeMissingError


class ExifToolError(Exception):
    """Why exiftool could not read or write a file."""


class ExifTool:
    """Starts with the first command, and again after it was killed. Raises `RuntimeMissingError` if the
    program is missing.

    Each path and each value is a line of input for exiftool; those with line breaks are quoted.
    """

    def __init__(self) -> None:
        program = shutil.which("exiftool")
        if program is None:
            raise RuntimeMissingError(
                "XMP needs the program exiftool (https://exiftool.org; Debian: libimage-exiftool-perl)"
            )
        self._command = [program, "-stay_open", "True", "-@", "-"]
        # At the end of its input exiftool waits for more. On Linux it ends with us, should we be killed.
        if guard := shutil.which("setpriv"):
            self._command = [guard, "--pdeathsig", "TERM", *self._command]
        self._process: subprocess.Popen[bytes] | None = None

    def get_tags(self, path: Path, tags: Sequence[str]) -> dict[str, Any]:
        """The values of those of `tags`, "GROUP:NAME", that the file has. Raises `ExifToolError`."""
        [found] = json.loads(
            self._execute("-j", *(f"-{tag}" for tag in tags), str(path)).decode(errors="replace")
        )
        return dict(found)

    def set_tags(self, path: Path, tags: Mapping[str, str | Sequence[str]]) -> None:
        """Write to the file, or a new one, and keep its modification time. An empty value removes the tag.
        Raises `ExifToolError`."""
        values = {tag: [value] if isinstance(value, str) else value for tag, value in tags.items()}
        changes = (f"-{tag}={value}" for tag, several in values.items() for value in several)
        self._execute("-P", "-overwrite_original", *changes, str(path))

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            with suppress(BrokenPipeError), process:  # closes the pipes and waits
                pass

    def _execute(self, *arguments: str) -> bytes:
        if self._process is None or self._process.poll() is not None:
            self.close()
            pipe = subprocess.PIPE
            # In a session of its own: Ctrl-C lets the run finish the photo that is being written.
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        process = self._process
        assert process.stdin and process.stdout and process.stderr
        lines = ["-G1", "-n", *arguments, "-echo4", "{status ${status}}", "-execute"]
        try:
            process.stdin.write(b"".join(_line(argument) for argument in lines))
            process.stdin.flush()
        except BrokenPipeError:
            raise ExifToolError("exiftool has ended") from None
        output, _ = _read_until(process.stdout, b"{ready}")
        messages, status = _read_until(process.stderr, b"{status ")
        if status != b"{status 0}":
            raise ExifToolError(messages.decode(errors="replace") or "exiftool has failed")
        return output


def _line(argument: str) -> bytes:
    """An argument as a line of input: with line breaks, as exiftool's C string, which garbles `$` and `@`."""
    if "\n" in argument or "\r" in argument:
        if "$" in argument or "@" in argument:
            raise ExifToolError("a name with a line break and $ or @ cannot be handed to exiftool")
        quoted = argument.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        argument = f"#[CSTR]{quoted}"
    return argument.encode("utf-8", "surrogateescape") + b"\n"


def _read_until(pipe: IO[bytes], mark: bytes) -> tuple[bytes, bytes]:
    """The lines before the one that begins with `mark`, and that line."""
    lines: list[bytes] = []
    for line in pipe:
        if line.startswith(mark):
            return b"".join(lines), line.strip()
        lines.append(line)
    raise ExifToolError("exiftool has ended")
