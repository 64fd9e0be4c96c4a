"""`captioner.caption_folder`: a batch from Python."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from captioner.captioner import Captioner
from captioner.files.new_folders import removing_unused
from captioner.folder.engine import DEFAULT_BATCH_SIZE, LocalEngine
from captioner.folder.items import FolderResult
from captioner.folder.outputs import OutputOptions, make_output, output_files
from captioner.folder.outputs.place import check_no_input
from captioner.folder.run import FolderRun, RunOptions
from captioner.folder.sources.open import open_sources
from captioner.folder.sources.selection import Selection
from captioner.folder.text import TextOptions
from captioner.folder.transform import unchanged
from captioner.options import CaptionOptions


def caption_folder(
    folder: str | Path | Iterable[str | Path],
    output: str | Path | None = None,
    options: CaptionOptions | None = None,
    **settings: Any,
) -> list[FolderResult]:
    """Caption a folder, a zip or tar archive, or several, as `captioner batch` does, and return what became
    of each image.

    With an `output`, results are also kept there: images that an earlier call has finished are neither
    captioned nor returned again. `settings` are the keyword arguments of `iter_folder`, which does the same
    image by image, for folders whose results do not fit into memory. Raises a `CaptionerError` if the
    folder, the model or the output cannot be used.
    """
    try:
        inspect.signature(iter_folder).bind(folder, output, options, **settings)
    except TypeError as error:  # which should name the function that was called
        raise TypeError(f"caption_folder() {error}") from None
    return list(iter_folder(folder, output, options, **settings))


def iter_folder(
    folder: str | Path | Iterable[str | Path],
    output: str | Path | None = None,
    options: CaptionOptions | None = None,
    *,
    captioner: Captioner | None = None,
    format: str | None = None,
    selection: Selection | None = None,
    text: TextOptions | None = None,
    overwrite: bool = False,
    retry_failed: bool = False,
    batch_size: int = DEFAULT_BATCH_SIZE,
    workers: int | None = None,
) -> Iterator[FolderResult]:
    """Caption a folder as `caption_folder` does, yielding each image as soon as its result is known.

    Nothing happens before the first result is taken, and `output` is complete when the iterator ends.
    `captioner` is the embedded model by default; `options` are without attention maps by default; `format`
    is that of `captioner batch --format`; `workers` processes decode images (default: one per core).
    """
    paths = [folder] if isinstance(folder, (str, Path)) else list(folder)
    out = Path(output or "")
    with removing_unused(out), open_sources([Path(path) for path in paths], selection) as sources:
        if output is not None:
            for file in output_files(output, format):
                check_no_input(file, paths)
        captioner = captioner or Captioner.load(lanes=None)
        engine = LocalEngine(captioner, batch_size, workers)
        options = options or CaptionOptions(attention=False)
        written = None
        if output is not None:
            wanted = OutputOptions.of(
                options,
                engine.grid,
                root=Path(paths[0]) if len(paths) == 1 and Path(paths[0]).is_dir() else None,
                transform=text.transform if text else unchanged,
            )
            written = make_output(output, wanted, format)
        run_options = RunOptions(
            max_bytes=captioner.limits.max_bytes, overwrite=overwrite, retry_failed=retry_failed
        )
        with FolderRun(sources, engine, written, options, run_options) as run:
            yield from run
