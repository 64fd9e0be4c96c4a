"""Teaches a model corrected captions, and says what that changed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from captioner.captioner import Captioner
from captioner.errors import CaptionerError, DataError
from captioner.export.bundle import export_bundle
from captioner.export.int8.add import LEAST_PHOTOS
from captioner.files import publish_folder, writing
from captioner.images.files import ImageFiles
from captioner.teaching.effects import Effect, table
from captioner.teaching.lesson import FEWEST_OTHERS, Lesson, has_checklist
from captioner.training.loop.trainer import train_on
from captioner.training.progress import Progress
from captioner.trial import load_bundle

MOST_CHANGED = 0.25
"""Share of the captions of other photos that teaching may change."""


@dataclass(frozen=True, slots=True)
class Taught:
    """What teaching did."""

    effects: Sequence[Effect]
    harm: Sequence[str]
    """What it did that nobody wants."""

    @property
    def table(self) -> str:
        return table(self.effects)


def teach(
    lesson: Lesson,
    bundle: Path,
    *,
    model: Path,
    name: str,
    device: str = "cpu",
    force: bool = False,
    progress: Progress | None = None,
    report: Callable[[str], None] = print,
) -> Taught:
    """Teach the bundle `model` a lesson, and write the new bundle, called `name`, to the folder `bundle`,
    which must not exist.

    The model's own captions of photos without corrections are kept (`caption_retention`). `report` receives
    the table of what changed. Raises `DataError` if that is harm, and nothing is written then, unless
    `force` is set; and as `Trainer` and `export_bundle` do.
    """
    if bundle.exists():
        raise DataError(f"{bundle} exists already; a model is taught into a new folder")
    progress = progress or Progress()
    bundle.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{bundle.name}-", dir=bundle.parent) as aside:
        place = Path(aside)
        every = [*lesson.taught, *lesson.held_out, *lesson.others]
        old = Captioner.load(load_bundle(model))
        before = _captions(lesson, old, every, progress, "captions before")
        lesson.write(place, before)
        if len(lesson.watched) < FEWEST_OTHERS:
            progress.note(
                f"only {len(lesson.others)} photos have no corrections: too few to keep what the"
                " model knew, and to tell what else teaching changes"
            )
        options = lesson.options(name, str(model.resolve()), has_checklist(old.bundle))
        train_on(options, place / "run", place, place / "cache", device, progress)
        photos = [path for photo in before if (path := lesson.folder / photo).is_file()]
        calibration = photos if len(photos) >= LEAST_PHOTOS else []
        if not calibration:
            progress.note(
                f"fewer than {LEAST_PHOTOS} photos: the bundle has no INT8 graphs; it is slower than a model"
                " that has them, and a few captions may differ"
            )
        progress.note("exporting")
        export_bundle(place / "run" / "best.pt", place / "bundle", name=name, calibration=calibration[:200])
        shown = [*lesson.taught, *lesson.held_out, *lesson.watched]
        after = _captions(lesson, Captioner.load(place / "bundle"), shown, progress, "captions after")
        taught = judge(lesson, before, after)
        report(taught.table)
        if taught.harm and not force:
            raise DataError(
                f"the model was not kept: {'; '.join(taught.harm)}. More photos without corrections in the"
                " folder keep more of what it knew; --force keeps it as it is"
            )
        for text in taught.harm:
            progress.note(f"kept although {text}")
        with writing(bundle):
            publish_folder(place / "bundle", bundle)
    return taught


def judge(lesson: Lesson, before: Mapping[str, str], after: Mapping[str, str]) -> Taught:
    """What changed from the captions `before` to those `after`, and what of it is harm."""

    def of(names: Iterable[str]) -> dict[str, str]:
        return {name: after[name] for name in names if name in after}

    corrected = Effect.measure("corrected", before, of(lesson.taught), lesson.taught)
    like = Effect.measure("like them, not taught", before, of(lesson.held_out), lesson.held_out)
    rest = Effect.measure("everything else", before, of(lesson.watched))
    harm = []
    # CIDEr of very few photos is 0.
    if not corrected.changed or (corrected.after or 0.0) < (corrected.before or 0.0):
        harm.append("the corrected photos are captioned no better than before")
    if like.worse:
        harm.append("photos like the corrected ones are captioned worse")
    if rest.count >= FEWEST_OTHERS and rest.share > MOST_CHANGED:
        harm.append(
            f"{100 * rest.share:.0f}% of the captions of other photos changed, more than"
            f" {100 * MOST_CHANGED:.0f}%"
        )
    return Taught([one for one in (corrected, like, rest) if one.count], harm)


def _captions(
    lesson: Lesson, captioner: Captioner, names: Sequence[str], progress: Progress, what: str
) -> dict[str, str]:
    """The captions of the photos that can be read."""
    files = ImageFiles([lesson.folder])
    found = {}

    def contents() -> Iterator[bytes]:
        for name in names:
            try:
                yield files.read(name)
            except DataError:
                yield b""  # no image, so no caption; training says which photos are missing

    with progress.task(what, len(names), 0) as tell:
        outcomes = captioner.caption_each(contents(), attention=False)
        for number, (name, outcome) in enumerate(zip(names, outcomes, strict=True), 1):
            if not isinstance(outcome, CaptionerError):
                found[name] = outcome.text
            tell(number, "")
    return found
