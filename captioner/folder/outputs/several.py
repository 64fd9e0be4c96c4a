"""Several formats from one run, in one folder: tables beside each other, files of photos in a tree."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.errors import OptionsError, OutputError
from captioner.files.destination import writing
from captioner.folder.outputs.options import OutputOptions
from captioner.folder.transform import Record, Transform

if TYPE_CHECKING:
    from captioner.folder.outputs import Output
    from captioner.folder.state import State


class SeveralOutputs:
    """Writes each format as if it was alone, from one state in the folder."""

    def __init__(self, path: Path, outputs: Mapping[str, Callable[[], Output]]) -> None:
        """`outputs` makes each format."""
        if path.exists() and not path.is_dir():
            raise OutputError(f"cannot write {path}: several formats need a folder")
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        self.state_path: Path | None = path / ".captioner.state"
        self._outputs: list[tuple[str, Output]] = []
        try:
            for name, make in outputs.items():
                self._outputs.append((name, make()))
        except BaseException:
            self.close()
            raise

    @property
    def kept(self) -> int:
        """Files left unchanged because something else wrote or edited them."""
        return sum(getattr(output, "kept", 0) for _, output in self._outputs)

    @property
    def files(self) -> Sequence[Path]:
        return [file for _, output in self._outputs for file in output.files]

    def begin(self, state: State) -> None:
        for name, output in self._outputs:
            output.begin(state.share(name))

    def advance(self, state: State) -> None:
        for name, output in self._outputs:
            output.advance(state.share(name))

    def finish(self, state: State) -> None:
        for name, output in self._outputs:
            output.finish(state.share(name))

    def close(self) -> None:
        for _, output in self._outputs:
            output.close()


def options_for(options: OutputOptions, fields: Sequence[str], *, has_words: bool) -> OutputOptions:
    """The options of one of several formats: without those `fields` that are for others."""
    changes: dict[str, Any] = {
        field.name: field.default for field in dataclasses.fields(options) if field.name in fields
    }
    if not has_words:
        changes |= {"attention": False, "alternatives": False}
    return dataclasses.replace(options, transform=_without_failed_writes(options.transform), **changes)


def _without_failed_writes(transform: Transform) -> Transform:
    """That the file of a photo could not be written is of no other format."""

    def change(record: Record) -> Record:
        if "caption" in record and "error" in record:
            record = {key: value for key, value in record.items() if key != "error"}
        return transform(record)

    return change


def check_formats(names: Sequence[str]) -> None:
    """Raise `OptionsError` for a format that is named twice."""
    if len(set(names)) < len(names):
        raise OptionsError(f"--format names a format twice: {','.join(names)}", "format")
