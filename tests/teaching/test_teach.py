"""Teaching corrections: other photos keep their captions, harm is told, and the command does it all."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support import power, squares
from support.lessons import corrections
from support.spreadsheets import resave

from captioner import Captioner
from captioner.cli.commands.teach import report
from captioner.cli.main import main
from captioner.errors import DataError, ImageError
from captioner.export.bundle import export_bundle
from captioner.files.whole_folder import hold_place
from captioner.model.bundle import Bundle
from captioner.model.installed import installed_models
from captioner.model.vocabulary import Vocabulary
from captioner.protocol import Outcome
from captioner.teaching.effects import Closeness, Effect, agreement
from captioner.teaching.lesson import Lesson
from captioner.teaching.teach import Taught, judge, read_lesson, teach
from captioner.training.corrections.learn import replaced_words
from captioner.training.data.examples import Example, load_examples
from captioner.training.data.frozen_part import FrozenPart
from captioner.training.weights.stored import RARE, stored_weights

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def start(data: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can be taught."""
    folder = tmp_path_factory.mktemp("start")
    stage = squares.stage(epochs=3, tuned_segments=0)
    squares.trainer(squares.options((stage,)), folder / "run", data, cache).run()
    photos = sorted((data / "images").iterdir())
    export_bundle(folder / "run" / "best.pt", folder / "bundle", int8_photos=photos)
    return folder / "bundle"


def test_corrections_that_were_not_learnt_are_told(tmp_path: Path) -> None:
    lesson = Lesson(tmp_path, {"x": ("six clocks on a shelf",), "y": ("a cat",)}, {}, ["z"])
    before = dict.fromkeys("xyz", "a dog on the grass")
    taught = judge(lesson, before, {"x": "six apples on a shelf", "y": "a cat", "z": before["z"]}, ())
    assert taught.missed == {"x": "six apples on a shelf"}


def test_harm_is_told(tmp_path: Path) -> None:
    others = [str(n) for n in range(40)]
    lesson = Lesson(tmp_path, {"x": ("a cat on a mat",)}, {}, others)
    before = dict.fromkeys(("x", *others), "a dog on the grass")
    good = judge(lesson, before, {**before, "x": "a cat on a mat"}, {"0", "1"})
    assert not good.harm and not good.changed
    assert [(one.photos, one.count, one.changed) for one in good.effects] == [
        ("corrected", 1, 1),
        ("others like them", 2, 0),
        ("everything else", 38, 0),
    ]
    changed = dict.fromkeys(others[:20], "a bank statement")
    bad = judge(lesson, before, {**before, **changed}, {"1", "30"})
    assert bad.changed == {"1": ("a dog on the grass", "a bank statement")}
    assert bad.harm == [
        "the corrected photos are captioned no better than before",
        "50% of the captions of other photos changed, more than 25%",
    ]


def test_captions_that_were_right_need_not_change(tmp_path: Path) -> None:
    lesson = Lesson(tmp_path, {"x": ("A cat on a mat.",)}, {}, ())
    assert not judge(lesson, {"x": "a cat on a mat"}, {"x": "a cat on a mat"}, ()).harm


def test_the_report_has_a_row_for_each_kind_of_photo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = Closeness(38.2, 0.4, 0.05), Closeness(610.4, 0.95, 0.9)
    effects = [
        Effect("corrected", 20, 19, before, after),
        Effect("others like them", 3, 1),
        Effect("everything else", 60, 3),
    ]
    lesson = Lesson(tmp_path, {"x": ("a\nclock",)}, {}, ())
    report(lesson, Taught(effects, (), {"x": "an apple"}, {"y\x1b": ("a dog", "a clock")}))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line and "─" not in line[0]] == [
        "photos number changed as written before after CIDEr before after".split(),  # noqa: SIM905
        ["corrected", "20", "95%", "5%", "90%", "38", "610"],
        ["others", "like", "them", "3", "33%", "too", "few", "to", "tell"],
        ["everything", "else", "60", "5%"],
        "1 of 1 corrections were not learnt word by word:".split(),  # noqa: SIM905
        r"x: an apple (corrected: a\nclock)".split(),  # noqa: SIM905
        r"y\x1b: a dog -> a clock".split(),  # noqa: SIM905
    ]


def test_a_long_caption_is_shown_in_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lesson = Lesson(tmp_path, {"x": ("a clock " * 10_000,)}, {}, ())
    report(lesson, Taught([], (), {"x": "an apple"}, {}))
    assert "(80000 characters))" in capsys.readouterr().out


def test_a_caption_agrees_with_the_most_similar_one_that_people_wrote() -> None:
    assert agreement("a cat on a mat", ["A cat on a mat .", "a dog"]) == 1
    assert agreement("a cat on a mat", ["a dog on a mat"]) == pytest.approx(0.8)
    assert agreement("a cat", ["the dogs"]) == agreement("", ["a"]) == 0


def test_a_new_word_starts_as_what_it_replaces(data: Path) -> None:
    [example, *_] = load_examples(squares.options().data, data, "train")
    image = dataclasses.replace(example.image, captions=("A border collie on the grass",))
    known = Vocabulary.build(["a dog sits on the grass"], 1)
    related = replaced_words(
        [dataclasses.replace(example, image=image)], {example.image.name: "a dog sits on the grass"}, known
    )
    assert related == {"border": ["dog", "sits"], "collie": ["dog", "sits"]}


def test_the_table_of_a_batch_teaches_what_was_changed_in_it(data: Path, start: Path, tmp_path: Path) -> None:
    table = tmp_path / "captions.csv"
    arguments = ["batch", str(data / "images"), "-o", str(table), "--model", str(start), "--sentence"]
    assert main([*arguments, "--device", "cpu"]) == 0
    resave(table, "Excel in Germany, CSV UTF-8", table, _3="A vermilion thing.", _4="")
    lesson = read_lesson(data / "images", table, start)
    assert lesson.taught == {"03.png": ("A vermilion thing.",)} and len(lesson.others) == 29


def test_no_photo_of_a_table_is_captioned_twice_by_the_model_that_is_taught(
    data: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = sorted((data / "images").iterdir())
    own = Captioner.load(start, device="cpu").caption(photos[1:3])
    rows = [f"images/{photo.name},{text}\n" for photo, text in zip(photos[1:3], own, strict=True)]
    table = tmp_path / "c.csv"
    table.write_text("".join(["image,caption\n00.png,a vermilion thing\n", *rows]))
    seen, caption_each = [], Captioner.caption_each

    def watch(self: Captioner, images: Iterable[bytes], **options: bool) -> Iterator[Outcome]:
        return caption_each(self, (seen.append(image) or image for image in images), **options)

    def learn(*_: object) -> None:
        raise DataError("enough")

    monkeypatch.setattr(Captioner, "caption_each", watch)
    monkeypatch.setattr("captioner.teaching.teach.learn", learn)
    lesson = read_lesson(data / "images", table, start)
    with pytest.raises(DataError, match="enough"):
        teach(lesson, tmp_path / "taught", start=start, name="x")
    assert len(lesson.others) == 29 and sorted(seen) == sorted(photo.read_bytes() for photo in photos)


def test_nothing_is_computed_that_is_not_used(
    data: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewed: list[int] = []
    views, load, loaded = FrozenPart.views, Bundle.load, []

    def watch_views(self: FrozenPart, example: Example) -> np.ndarray | ImageError:
        found = views(self, example)
        assert isinstance(found, np.ndarray)
        viewed.append(len(found))
        return found

    def watch_load(path: Path) -> Bundle:
        loaded.append(path)
        return load(path)

    monkeypatch.setattr(FrozenPart, "views", watch_views)
    monkeypatch.setattr(Bundle, "load", watch_load)
    monkeypatch.setattr("captioner.training.corrections.pupil.MOST_EPOCHS", 1)
    given = corrections(tmp_path / "c.jsonl", {"00.png": "a red thing", "03.png": "a vermilion thing"})
    lesson = read_lesson(data / "images", given, start)
    teach(lesson, tmp_path / "taught", start=start, name="x", force=True)
    assert sorted(viewed) == [1] * 28 + [2] * 2 and loaded.count(start) == 1


def test_few_corrected_photos_may_be_damaged(
    data: Path,
    start: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("captioner.training.corrections.pupil.MOST_EPOCHS", 1)
    photos = shutil.copytree(data / "images", tmp_path / "photos")
    for name in ("01.png", "29.png"):  # corrected, and not
        (photos / name).write_bytes(b"no image")
    given = corrections(tmp_path / "c.jsonl", {"00.png": "a red thing", "01.png": "a vermilion thing"})
    taught = teach(Lesson.read(photos, given), tmp_path / "taught", start=start, name="x", force=True)
    assert [one.count for one in taught.effects if one.photos == "corrected"] == [1]
    said = capsys.readouterr().err
    assert "left out: 01.png: " in said and "29.png" not in said
    assert "vermilion" not in Bundle.load(tmp_path / "taught").vocabulary.words
    assert "the captions of 1 photo." in (tmp_path / "taught" / "MODEL_CARD.md").read_text()
    given = corrections(tmp_path / "c.jsonl", {"01.png": "a vermilion thing"})
    with pytest.raises(DataError, match="none of the corrected photos can be read"):
        teach(Lesson.read(photos, given), tmp_path / "none", start=start, name="x")
    (photos / "02.png").write_bytes(b"")
    given = corrections(tmp_path / "c.jsonl", {f"0{n}.png": "a thing" for n in range(3)})
    with pytest.raises(
        DataError, match=r"2 of 30 photos are missing or damaged, more than 5%; the first is 01"
    ):
        teach(Lesson.read(photos, given), tmp_path / "none", start=start, name="x")


def test_from_corrections_to_a_model_that_is_used(
    data: Path,
    start: Path,
    user_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = corrections(tmp_path / "c.jsonl", {"00.png": "a vermilion thing", "03.png": "a vermilion thing"})
    arguments = ["teach", str(data / "images"), str(given), "--name", "mine", "--model", str(start)]
    with power.watched() as disk:
        assert main([*arguments, "--device", "cpu", "--force"]) == 0
    assert disk.published[-1] == "mine" and "mine" not in disk.lost
    said = capsys.readouterr()
    assert "photos" in said.out and "everything else" in said.out
    assert "captioner model use mine" in said.err
    taught = Bundle.load(user_folder / "models" / "mine")
    assert taught.name == "mine" and "vermilion" in taught.vocabulary.words
    assert taught.precisions == ("float32", "int8")
    assert taught.manifest["training"]["model"]["taught"] == 2
    assert "scores" in Bundle.load(start).manifest and "scores" not in taught.manifest
    for precision in taught.precisions:
        captioner = Captioner.load(user_folder / "models" / "mine", precision=precision)
        assert captioner.caption(data / "images" / "00.png").text == "a vermilion thing"
    assert main(["model", "use", "mine"]) == 0
    assert main([*arguments, "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert "mine exists already" in said and "captioner model remove mine" in said


def test_a_photo_that_is_corrected_again_gets_the_later_caption(
    data: Path, start: Path, tmp_path: Path
) -> None:
    models = [start]
    for number, caption in enumerate(("a vermilion thing", "two teal squares")):
        given = corrections(tmp_path / "c.jsonl", {"00.png": caption})
        models.append(tmp_path / str(number))
        arguments = ["teach", str(data / "images"), str(given), "-o", str(models[-1])]
        assert main([*arguments, "--model", str(models[-2]), "--device", "cpu", "--force"]) == 0
        assert Captioner.load(models[-1]).caption(data / "images" / "00.png").text == caption
    card = (models[-1] / "MODEL_CARD.md").read_text()
    assert (
        card.startswith("# taught\n\ntaught, taught the captions of 1 photo. ")
        and card.count("1 photo.") == 2
    )


def test_the_embedded_model_learns_captions_of_new_words(tmp_path: Path) -> None:
    written = {
        "cat.jpg": "opas alter kater schaut müde",
        "coffee.jpg": "tante klara trinkt opas kaffee",
        "raccoon.jpg": "zwei waschbären spielen am strand",
    }
    lesson = Lesson.read(EXAMPLES, corrections(tmp_path / "c.jsonl", written))
    taught = teach(lesson, tmp_path / "taught", start=installed_models()["default"], name="x", force=True)
    assert not taught.missed


def test_known_words_that_are_far_from_likely_are_learnt(
    data: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captioner.training.corrections.pupil.PATIENCE", 1)
    words = Bundle.load(start).vocabulary.words
    photos = {"00.png": f"a {words[-1]} thing", "03.png": f"two {words[-2]} squares"}
    models, rows = [start], []
    for number, (name, caption) in enumerate(photos.items()):
        given = corrections(tmp_path / "c.jsonl", {name: caption})
        models.append(tmp_path / str(number))
        arguments = ["teach", str(data / "images"), str(given), "-o", str(models[-1])]
        assert main([*arguments, "--model", str(models[-2]), "--device", "cpu", "--force"]) == 0
        assert Captioner.load(models[-1]).caption(data / "images" / name).text == caption
        rare = stored_weights(Bundle.load(models[-1]).decoder)[f"{RARE}words"]
        rows.append([words[int(word)] for word in rare])
    assert words[-1] in rows[0] and rows[1][: len(rows[0])] == rows[0] and words[-2] in rows[1]


def test_the_first_of_several_captions_is_learnt_and_this_is_said(
    data: Path,
    start: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("captioner.training.corrections.pupil.MOST_EPOCHS", 1)
    table = tmp_path / "c.csv"
    table.write_text("image,caption\n00.png,a vermilion thing\n00.png,a teal thing\n01.png,an ochre thing\n")
    arguments = ["teach", str(data / "images"), str(table), "-o", str(tmp_path / "new"), "--force"]
    assert main([*arguments, "--model", str(start), "--device", "cpu"]) == 0
    assert "photos with several captions: 1; the first of each is learnt" in capsys.readouterr().err
    words = Bundle.load(tmp_path / "new").vocabulary.words
    assert {"vermilion", "ochre"} <= set(words) and "teal" not in words


def test_many_corrections_share_keys(
    data: Path,
    start: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("captioner.training.corrections.learn.MOST_KEYS", 3)
    monkeypatch.setattr("captioner.training.corrections.pupil.MOST_STEPS", 200)
    given = corrections(tmp_path / "c.jsonl", {f"{n:02}.png": "a vermilion thing" for n in range(0, 20, 2)})
    folder = tmp_path / "bundle"
    arguments = ["teach", str(data / "images"), str(given), "-o", str(folder), "--model", str(start)]
    assert main([*arguments, "--device", "cpu", "--force"]) == 0
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["corrected", "10"] in [words[:2] for words in said]
    assert Bundle.load(folder).manifest["training"]["model"]["taught"] == 3
    assert "the captions of 10 photos" in (folder / "MODEL_CARD.md").read_text()
    captions = [Captioner.load(folder).caption(data / "images" / f"{n:02}.png").text for n in range(0, 20, 2)]
    assert captions.count("a vermilion thing") >= 5


def test_a_second_run_for_one_place_is_refused_at_once(
    data: Path, start: Path, user_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = corrections(tmp_path / "c.jsonl", {"00.png": "a thing"})
    place = user_folder / "models" / "mine"
    with hold_place(place):
        assert main(["teach", str(data / "images"), str(given), "--name", "mine", "--model", str(start)]) == 2
        assert main(["export", str(start.parent / "run" / "best.pt"), "-o", str(place)]) == 2
        again = f"captioner: another run is writing this output ({place})\n"
        assert capsys.readouterr().err == 2 * again and place.is_dir()
    assert not place.exists()


def test_what_is_not_there_is_said_at_once(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = corrections(tmp_path / "c.jsonl", {"00.png": "a thing"})
    for arguments, reason in (
        ([str(tmp_path / "no"), str(given)], "there is no folder"),
        ([str(data / "images"), str(tmp_path / "no.jsonl")], "there is no file"),
        ([str(data / "images"), str(given), "--name", "a/b"], "cannot be the name of a model"),
        ([str(data / "images"), str(given), "--name", "a\0b"], "cannot be the name of a model"),
        ([str(data / "images"), str(given), "--name", "x" * 101], "cannot be the name of a model"),
        ([str(data / "images"), str(given), "--name", ".."], "cannot be the name of a model"),
        ([str(data / "images"), str(given), "--name", "default"], "there is an installed model default"),
        ([str(data / "images"), str(given), "-o", str(given / "model")], f"cannot write {given / 'model'}: "),
    ):
        assert main(["teach", *arguments]) == 2
        assert reason in capsys.readouterr().err
    with pytest.raises(DataError):
        Lesson.read(tmp_path / "no", given)
