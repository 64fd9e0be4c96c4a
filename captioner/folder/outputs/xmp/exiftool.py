"""A running exiftool, the program that reads and writes the metadata of all photo formats.

It is started once and receives one file after another (options -stay_open and -@), as a start takes 0.2 s.
PyExifTool is not used: it runs Python between fork and exec, where a program with threads may hang.

Arguments and answers are lines in the same pipes. So exiftool gets copies in a folder of its own, under
a name of ours: the names of photos are in no line. An answer ends with a random number, another for each
command.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from captioner.errors import RuntimeMissingError
from captioner.files.destination import writing
from captioner.images.suffixes import PICTURES
from captioner.words.tokens import joiners

_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")
_BY_CONTENT = frozenset(f".{one}" for one in PICTURES)
"""Suffixes that are left out, as they may be wrong: exiftool then goes by the content. RAW needs its own."""


class ExifToolError(Exception):
    """Why exiftool could not read or write a file."""


class ExifTool:
    """Starts with the first command, and again after it was ended. Raises `RuntimeMissingError` if the
    program is missing. Close it at the end."""

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
        self._place: tempfile.TemporaryDirectory[str] | None = None

    def get_tags(self, content: bytes, suffix: str, tags: Sequence[str]) -> dict[str, Any]:
        """The values of those of `tags`, "GROUP:NAME", that a file of this content has. `suffix` is that of
        its name. Raises `ExifToolError`."""
        path = self._put(suffix, content)
        answer = self._execute("-j", *(f"-{tag}" for tag in tags), path.name)
        try:
            [found] = json.loads(answer.decode(errors="replace"))
            return dict(found)
        except (ValueError, TypeError, RecursionError):
            self.close()
            raise ExifToolError("exiftool gave no answer") from None

    def set_tags(self, content: bytes | None, suffix: str, tags: Mapping[str, str | Sequence[str]]) -> bytes:
        """The content with these tags written; without a content, that of a new file. An empty value removes
        the tag. Raises `ExifToolError`, and `OutputError` if there is no room for a copy."""
        path = self._put(suffix, content)
        values = {tag: [value] if isinstance(value, str) else value for tag, value in tags.items()}
        changes = (f"-{tag}={one_line(value)}" for tag, several in values.items() for value in several)
        self._execute("-overwrite_original", *changes, path.name)
        changed = path.read_bytes()
        if changed == content:  # exiftool takes this for no error, as for a PPM file
            raise ExifToolError("it cannot hold this metadata")
        return changed

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            with suppress(BrokenPipeError), process:  # closes the pipes and waits
                pass
        place, self._place = self._place, None
        if place is not None:
            place.cleanup()

    def _put(self, suffix: str, content: bytes | None) -> Path:
        """The path of the file that exiftool gets."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._place is not None
        kept = _SUFFIX.fullmatch(suffix) and suffix.lower() not in _BY_CONTENT
        path = Path(self._place.name, f"photo{suffix if kept else ''}")
        for left in path.parent.iterdir():
            left.unlink()
        if content is not None:
            with writing(path):  # on a disk of its own, which may be full
                path.write_bytes(content)
        return path

    def _start(self) -> None:
        self.close()
        self._place = tempfile.TemporaryDirectory(prefix="captioner-", ignore_cleanup_errors=True)
        pipe = subprocess.PIPE
        # In a session of its own: Ctrl-C lets the run finish the photo that is being written.
        self._process = subprocess.Popen(
            self._command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
            cwd=self._place.name,
        )

    def _execute(self, *arguments: str) -> bytes:
        process, number = self._process, str(secrets.randbits(63))
        assert process and process.stdin and process.stdout and process.stderr
        lines = ["-G1", "-n", "-q", "-q", *arguments, "-echo4", f"{number} ${{status}}", f"-execute{number}"]
        try:
            process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            process.stdin.flush()
            output, _ = _read_until(process.stdout, f"{{ready{number}}}")
            messages, status = _read_until(process.stderr, number)
        except (BrokenPipeError, EOFError):
            self.close()
            raise ExifToolError("exiftool has ended") from None
        if status != f"{number} 0".encode():
            raise ExifToolError(messages.decode(errors="replace") or "exiftool has failed")
        return output


def one_line(value: str) -> str:
    """A value as XMP holds it: on one line, without control characters."""
    needed = joiners(value)
    kept = "".join(
        letter if letter.isprintable() or place in needed else " " for place, letter in enumerate(value)
    )
    return " ".join(kept.encode("utf-8", "replace").decode().split())


def _read_until(pipe: IO[bytes], mark: str) -> tuple[bytes, bytes]:
    """The lines before the one that begins with `mark`, and that line. Raises `EOFError`."""
    lines: list[bytes] = []
    for line in pipe:
        if line.startswith(mark.encode()):
            return b"".join(lines), line.strip()
        lines.append(line)
    raise EOFError
