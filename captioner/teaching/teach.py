"""Teaches a model corrected captions, and finds what that changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from captioner.captioner import Captioner
from captioner.errors import CaptionerError, DataError
from captioner.export.taught.bundle import export_taught
from captioner.files.destination import writing
from captioner.files.whole_folder import folder_aside, is_taken, publish_folder
from captioner.model import bundle as bundles
from captioner.printable import counted
from captioner.references.files import ImageFiles
from captioner.teaching.effects import TOO_FEW, Effect, agreement
from captioner.teaching.lesson import MOST_TAUGHT, Lesson
from captioner.training.config.train_options import DAMAGED_SHARE
from captioner.training.corrections.learn import learn
from captioner.training.data.left_out import LeftOut
from captioner.training.progress import Progress
from captioner.training.weights.start import Start
from captioner.trial import load_bundle
from captioner.words.tokens import tokenize

MOST_CHANGED = 0.25
"""Share of the captions of other photos that teaching may change."""


@dataclass(frozen=True, slots=True)
class Taught:
    """What teaching did."""

    effects: Sequence[Effect]
    harm: Sequence[str]
    """What it did that nobody wants."""
    missed: Mapping[str, str]
    """Captions of corrected photos that are not what a person wrote, by photo."""
    changed: Mapping[str, tuple[str, str]]
    """Captions of photos like corrected ones that changed, before and after, by photo."""


def read_lesson(folder: Path, corrections: Path, start: Path) -> Lesson:
    """The lesson for the bundle `start`. Raises `DataError` as `Lesson.read` does."""

    def own(names: Sequence[str]) -> Mapping[str, str]:
        captioner = Captioner.load(load_bundle(start))
        return _captions(folder, captioner, names, Progress(), "captions of the list")[0]

    return Lesson.read(folder, corrections, own)


def teach(
    lesson: Lesson,
    to: Path,
    *,
    start: Path,
    name: str,
    device: str = "cpu",
    force: bool = False,
) -> Taught:
    """Teach the bundle `start` a lesson, and write the new bundle, called `name`, to the folder `to`, which
    must not exist or be empty.

    Photos that do not look like a corrected one keep their captions (`captioner.nn.encoder.taught`). If there
    is harm, nothing is written, unless `force` is set. Raises `DataError` as `learn` and `export_taught` do.
    """
    if is_taken(to):
        raise DataError(f"{to} exists already; a model is taught into a new folder")
    progress = Progress()
    with folder_aside(to.parent) as place:
        every = [*lesson.taught, *lesson.held_out, *lesson.others]
        old = Captioner.load(load_bundle(start))
        model = Start.of(old.bundle, str(start))
        unsaid = [name for name in every if name not in lesson.said]
        said, faults = _captions(lesson.folder, old, unsaid, progress, "captions before")
        before = {**lesson.said, **said}
        left_out = LeftOut(len(every), DAMAGED_SHARE, progress.note, f"{DAMAGED_SHARE:.0%}")
        left_out.add(f"{name}: {faults[name]}" for name in lesson.taught if name in faults)
        left_out.check()
        if before.keys().isdisjoint(lesson.taught):
            raise DataError("none of the corrected photos can be read")
        lesson.write(place, before)
        for text in _doubts(lesson, old.bundle.decoding.max_words or 1):
            progress.note(text)
        options = lesson.options(name, str(start.resolve()))
        learnt = learn(options, model, place, place / "cache", device, progress, before)
        taught_now = sum(photo in before for photo in lesson.taught)
        card = _card(name, old.bundle.name, taught_now, (start / bundles.CARD).read_bytes())
        export_taught(old.bundle, learnt.model, learnt.vocabulary, place / "bundle", name, card)
        new = Captioner.load(place / "bundle")
        readable = [name for name in every if name in before]
        after, _ = _captions(lesson.folder, new, readable, progress, "captions after")
        taught = judge(lesson, before, after, learnt.alike)
        if force or not taught.harm:
            with writing(to):
                publish_folder(place / "bundle", to)
    return taught


def _doubts(lesson: Lesson, most_words: int) -> Iterator[str]:
    """Why a lesson will not teach all that it could, to a model that says at most so many words."""
    if len(lesson.others) < TOO_FEW:
        yield (
            f"photos without corrections: {len(lesson.others)}; {TOO_FEW} or more would tell what else"
            " teaching changes"
        )
    if len(lesson.taught) > MOST_TAUGHT:
        yield (
            f"{len(lesson.taught)} corrections are enough for captioner train, which learns more from"
            " them for other photos (docs/training.md)"
        )
    long = [len(tokenize(texts[0])) > most_words for texts in lesson.taught.values()]
    if any(long):
        yield (
            f"{sum(long)} of {len(long)} corrections have more than {most_words} words, the most"
            " that this model says: they are cut, so they will not be learnt word by word"
        )


def _card(name: str, start: str, photos: int, of_start: bytes) -> str:
    """The card of a model that was taught so many photos, with the card `of_start`."""
    said = f"{start}, taught the captions of {counted(photos, 'photo')}. Scores below are those of {start}."
    return f"# {name}\n\n{said}\n\nThe card of {start}:\n\n{of_start.decode(errors='replace')}"


def judge(
    lesson: Lesson, before: Mapping[str, str], after: Mapping[str, str], alike: Collection[str]
) -> Taught:
    """What changed from the captions `before` to those `after`, and what of it is harm. `alike` are the other
    photos that look like corrected ones."""

    def of(names: Iterable[str]) -> dict[str, str]:
        return {name: after[name] for name in names if name in after}

    corrected = Effect.measure("corrected", before, of(lesson.taught), lesson.taught)
    held_out = Effect.measure("corrected, not taught", before, of(lesson.held_out), lesson.held_out)
    like = Effect.measure("others like them", before, of(name for name in lesson.others if name in alike))
    rest = Effect.measure("everything else", before, of(name for name in lesson.others if name not in alike))
    harm = []
    if not corrected.improved:
        harm.append("the corrected photos are captioned no better than before")
    if held_out.worse:
        harm.append("corrected photos that were not taught are captioned worse")
    count, changed = like.count + rest.count, like.changed + rest.changed
    if count >= TOO_FEW and changed > MOST_CHANGED * count:
        harm.append(
            f"{100 * changed / count:.0f}% of the captions of other photos changed, more than"
            f" {100 * MOST_CHANGED:.0f}%"
        )
    said = of(lesson.taught)
    missed = {photo: text for photo, text in said.items() if agreement(text, lesson.taught[photo]) < 1}
    reworded = {
        photo: (before[photo], after[photo])
        for photo in sorted(alike)
        if photo in after and after[photo] != before[photo]
    }
    return Taught([corrected, *([held_out] if held_out.count else []), like, rest], harm, missed, reworded)


def _captions(
    folder: Path, captioner: Captioner, names: Sequence[str], progress: Progress, what: str
) -> tuple[dict[str, str], dict[str, CaptionerError]]:
    """The captions of the photos that can be read, and what is wrong with the others."""
    files = ImageFiles([folder])
    found: dict[str, str] = {}
    faults: dict[str, CaptionerError] = {}

    def contents() -> Iterator[bytes]:
        for name in names:
            try:
                yield files.read(name)
            except DataError as error:
                faults[name] = error
                yield b""  # no image, so no caption

    with progress.task(what, len(names), 0) as tell:
        outcomes = captioner.caption_each(contents(), attention=False)
        for number, (name, outcome) in enumerate(zip(names, outcomes, strict=True), 1):
            if isinstance(outcome, CaptionerError):
                faults.setdefault(name, outcome)
            else:
                found[name] = outcome.text
            tell(number, "")
    return found, faults
