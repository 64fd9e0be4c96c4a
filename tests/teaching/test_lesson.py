"""What a lesson is made of: the corrections in files of people, and other photos."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import squares
from support.lessons import corrections

from captioner.errors import DataError
from captioner.teaching.lesson import Lesson


def test_a_lesson_has_corrected_photos_and_others(data: Path, tmp_path: Path) -> None:
    given = corrections(tmp_path / "c.jsonl", {"00.png": "a red thing", "01.png": "a thing"})
    lesson = Lesson.read(data / "images", given)
    assert list(lesson.taught) == ["00.png", "01.png"] and not lesson.held_out
    assert len(lesson.others) == 28 and {"00.png", "01.png"}.isdisjoint(lesson.others)


def test_captions_of_a_table_that_the_model_says_are_no_corrections(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, own = tmp_path / "c.csv", {"00.png": "a blue thing", "01.png": "a thing"}
    table.write_text("image;caption\n00.png;a red thing\n01.png;A thing.\n02.png;\n")
    lesson = Lesson.read(data / "images", table, lambda names: {name: own[name] for name in names})
    assert list(lesson.taught) == ["00.png"] and len(lesson.others) == 29 and "01.png" in lesson.others
    assert "1 of 2 captions are the model's own" in caplog.text
    with pytest.raises(DataError, match="all captions are the model's own: there is nothing to teach"):
        Lesson.read(data / "images", table, lambda names: {"00.png": "a red thing", "01.png": "a thing"})
    approved = corrections(tmp_path / "c.jsonl", own)
    assert list(Lesson.read(data / "images", approved, lambda names: own).taught) == list(own)


def test_json_lines_of_a_model_are_corrections_where_they_were_changed_or_decided(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines, asked = tmp_path / "c.jsonl", []
    records: list[dict[str, object]] = [
        {"image": "00.png", "caption": "a red thing", "log_prob": -1.5, "model": "m@1"},
        {"image": "01.png", "caption": "A blue thing.", "model": "m@1"},
        {"image": "02.png", "caption": "a thing", "log_prob": -1.5, "model": "m@1", "status": "approved"},
        {"image": "03.png", "caption": "a thing"},
        {"image": "04.png", "error": {"code": "image_unreadable", "message": "the file is empty"}},
    ]

    def own(names: Sequence[str]) -> dict[str, str]:
        asked.extend(names)
        return {"00.png": "a blue thing", "01.png": "a blue thing"}

    lines.write_text("".join(json.dumps(record) + "\n" for record in records))
    lesson = Lesson.read(data / "images", lines, own)
    assert list(lesson.taught) == ["00.png", "02.png", "03.png"] and asked == ["00.png", "01.png"]
    assert "01.png" in lesson.others and "1 of 4 captions are the model's own" in caplog.text
    lines.write_text(json.dumps(records[1]))
    with pytest.raises(DataError, match="all captions are the model's own: there is nothing to teach"):
        Lesson.read(data / "images", lines, own)


@pytest.mark.parametrize("caption", ["!!! ...", "\N{CAT FACE}"])
def test_captions_without_words_are_refused(data: Path, tmp_path: Path, caption: str) -> None:
    given = corrections(tmp_path / "c.jsonl", {"00.png": "a red thing", "01.png": caption})
    with pytest.raises(DataError, match=r"the caption of 01\.png has no words"):
        Lesson.read(data / "images", given)


def test_two_names_of_one_photo_are_refused(data: Path, tmp_path: Path) -> None:
    given = corrections(tmp_path / "c.jsonl", {"00.png": "a red thing", "./00.png": "a blue thing"})
    with pytest.raises(DataError, match=r"00\.png and \./00\.png are one photo, "):
        Lesson.read(data / "images", given)


@pytest.mark.parametrize("name", ["images/00.png", "elsewhere\\\\00.png"])
def test_a_corrected_photo_is_none_of_the_others_however_it_is_named(
    data: Path, tmp_path: Path, name: str
) -> None:
    lesson = Lesson.read(data / "images", corrections(tmp_path / "c.jsonl", {name: "a red thing"}))
    assert list(lesson.taught) == [name] and len(lesson.others) == 29 and "00.png" not in lesson.others


def test_few_corrected_photos_may_be_missing(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = corrections(tmp_path / "c.jsonl", {"00.png": "a red thing", "no.png": "a thing"})
    assert list(Lesson.read(data / "images", given).taught) == ["00.png"]
    assert "left out: no.png: the image no.png is in none" in caplog.text
    for names in (["no.png"], ["00.png", *map(str, range(10))]):
        given = corrections(tmp_path / "c.jsonl", dict.fromkeys(names, "a red thing"))
        with pytest.raises(
            DataError, match=r"none of the photos|10 of 41 photos are missing .*more than 5%: "
        ):
            Lesson.read(data / "images", given)


def test_some_of_many_corrections_are_held_out(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"{number}.png").touch()
    given = corrections(tmp_path / "c.jsonl", {f"{n}.png": "a thing" for n in range(60)})
    lesson = Lesson.read(tmp_path, given)
    assert len(lesson.taught) == 54 and len(lesson.held_out) == 6


@pytest.mark.parametrize("place", ["c.jsonl", "photos/metadata.csv", "photos/a.txt"])
def test_files_that_are_too_large_are_refused_unread(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    squares.draw("red", "left", 0).save(folder / "a.png")
    with (tmp_path / place).open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(DataError, match="has 1099511627776 bytes, the limit is"):
        Lesson.read(folder, folder if place.startswith("photos") else tmp_path / place)
