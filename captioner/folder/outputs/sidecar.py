"""A small text file for each photo, beside it or in a tree of the same shape."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from captioner.errors import OptionsError, OutputError
from captioner.folder.outputs.files import partial_path, writing
from captioner.folder.outputs.options import OutputOptions, Record
from captioner.folder.state import Entry, State


class SidecarOutput:
    """`dogs/1.jpg` has its caption in `dogs/1.txt`, as tools that train on captioned folders expect.
    Where two photos would share a file (1.jpg and 1.png), the later one's is called `1.png.txt`.

    A file that somebody else wrote, or has changed since, is left as it is, unless `replace_existing`.
    """

    suffix = ".txt"
    keeps_suffix = False
    """Whether the photo's suffix stays in the name of its file."""

    def __init__(self, path: Path, options: OutputOptions) -> None:
        if options.attention or options.alternatives:
            raise OptionsError(f"{self.suffix} files hold the caption alone; jsonl and parquet hold more")
        self._folder, self._options = path, options
        self.state_path = path / f".captioner{self.suffix}.state"
        self._last = -1
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)

    def begin(self, state: State) -> None:
        self.advance(state)

    def advance(self, state: State) -> None:
        for entry in state.ready(self._last):
            self._last = entry.number
            self.publish(entry, state)

    def finish(self, state: State) -> None:
        self.advance(state)

    def close(self) -> None:
        pass

    def publish(self, entry: Entry, state: State) -> None:
        """Make the photo's file what it should be."""
        record = self._options.shape(entry.record)
        target = self.find_target(entry.name, state)
        wanted = _digest(self.make_content(record)) if "caption" in record else None
        if wanted == entry.published and (wanted is None or _has_content(target)):
            return
        with writing(target):
            if wanted is None:
                if self._is_ours(target, entry):
                    target.unlink(missing_ok=True)
            elif self._may_write(target, entry, wanted):
                self.write(target, record)
            else:
                return
        state.mark_published(entry.name, wanted)

    def find_target(self, name: str, state: State) -> Path:
        """The file of a photo. Raises `OutputError` for a name that leads out of the folder."""
        own = Path(os.path.normpath(name))
        if own.is_absolute() or own.parts[0] == "..":
            raise OutputError(f"{name}: its {self.suffix} file would be outside of {self._folder}")
        full = own.with_name(f"{own.name}{self.suffix}")
        short = full if self.keeps_suffix else own.with_suffix(self.suffix)
        return self._folder / (short if state.claim_target(short.as_posix(), name) == name else full)

    def make_content(self, record: Record) -> bytes:
        return f"{record['caption']}\n".encode("utf-8", "surrogateescape")

    def write(self, target: Path, record: Record) -> None:
        # Not synced, which would cost far more than captioning: the system keeps the order of writing and
        # renaming, and a file that a power failure has left empty is written again by the next run.
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_path(target)
        partial.write_bytes(self.make_content(record))
        partial.replace(target)

    def _may_write(self, target: Path, entry: Entry, wanted: bytes) -> bool:
        if self._options.replace_existing or not _has_content(target):
            return True
        return self._is_ours(target, entry) or _digest(target.read_bytes()) == wanted

    def _is_ours(self, target: Path, entry: Entry) -> bool:
        return target.is_file() and _digest(target.read_bytes()) == entry.published


class CaptionOutput(SidecarOutput):
    """The same under the other suffix in use."""

    suffix = ".caption"


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
