"""`captioner.caption_folder`: a batch from Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from captioner.captioner import Captioner
from captioner.folder.items import FolderResult
from captioner.folder.open import open_sources
from captioner.folder.outputs import OutputOptions, make_output
from captioner.folder.outputs.options import unchanged
from captioner.folder.pipeline import DEFAULT_BATCH_SIZE, LocalEngine
from captioner.folder.run import FolderRun
from captioner.folder.sources import Selection
from captioner.folder.text import TextOptions
from captioner.options import CaptionOptions


def caption_folder(
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
    """Caption a folder, a zip or tar archive, or several, as `captioner batch` does.

    Hands out each image as soon as its caption, or why there is none, is known. With an `output`, that
    is then kept: images that an earlier call has done are not captioned and not handed out again, and
    `output` is whole when the iterator ends. Without one, nothing is kept. `captioner` is the embedded
    model by default; `options` are without attention maps by default. Raises a `CaptionerError` when
    the folder, the model or the output cannot be used.
    """
    places = [folder] if isinstance(folder, (str, Path)) else list(folder)
    sources = open_sources([Path(place) for place in places], selection)
    captioner = captioner or Captioner.load()
    engine = LocalEngine(captioner, batch_size, workers)
    options = options or CaptionOptions(attention=False)
    written = None
    if output is not None:
        outcome = OutputOptions(
            attention=options.attention,
            alternatives=options.alternatives > 0,
            grid=options.attention_size or engine.grid,
            root=Path(places[0]) if len(places) == 1 else None,
            shape=text.shape if text else unchanged,
        )
        written = make_output(Path(output), outcome, format)
    with FolderRun(
        sources,
        engine,
        written,
        options,
        max_bytes=captioner.limits.max_bytes,
        overwrite=overwrite,
        retry_failed=retry_failed,
    ) as run:
        yield from run
