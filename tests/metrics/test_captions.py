"""Files of captions to score."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from captioner.errors import DataError, RuntimeMissingError
from captioner.folder.outputs.options import OutputOptions
from captioner.folder.outputs.parquet import write_parquet
from captioner.metrics.captions import keys_by_number, read_captions, references_by_image
from captioner.references import CaptionedImage
from captioner.surrogates import to_unicode

IMAGES = [
    CaptionedImage("COCO_val2014_000000000042.jpg", ("a dog",), "val"),
    CaptionedImage("photos/cat.webp", ("a cat",), "val", image_id=7),
]


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def test_json_lines_are_matched_by_name_without_folder_and_extension(tmp_path: Path) -> None:
    path = write(
        tmp_path / "captions.jsonl",
        {"image": "elsewhere/cat.png", "caption": "a cat\u2028on two lines", "log_prob": -3.1},
        {"image": "cat.jpg", "error": {"code": "not_an_image", "message": "no"}},
        {"image": "other.jpg", "caption": ""},
    )
    assert read_captions(path, IMAGES) == {"cat": "a cat\u2028on two lines", "other": ""}


def test_csv_as_batch_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "captions.csv"
    path.write_text(
        "image,caption,log_prob,confidence,model,error_code,error_message\n"
        'x/cat.jpg,"a cat, asleep",-1,0.5,m,,\nbroken.jpg,,,,m,not_an_image,"no, not one"\n'
    )
    assert read_captions(path, IMAGES) == {"cat": "a cat, asleep"}


def test_parquet_as_batch_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    path, name = tmp_path / "captions.parquet", os.fsdecode(b"x/lat\xe9.jpg")
    words = [{"text": "a", "log_prob": -1.0, "attention": [[0.5, 0.5]]}]
    records = [
        {"image": "x/cat.jpg", "caption": "a cat, asleep", "log_prob": -1.0, "model": "m", "words": words},
        {"image": "broken.jpg", "error": {"code": "not_an_image", "message": "no"}},
        {"image": name, "caption": "a bar", "log_prob": -2.0, "model": "m", "words": words},
    ]
    with path.open("wb") as file:
        write_parquet(file, iter(records), OutputOptions(attention=True))
    images = [*IMAGES, CaptionedImage(name, ("a bar",), "")]
    assert read_captions(path, images) == {"cat": "a cat, asleep", name[2:-4]: "a bar"}
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"captions\.parquet: not Parquet, or damaged"):
        read_captions(path, images)
    with pytest.raises(DataError, match=r"none\.parquet: No such file"):
        read_captions(tmp_path / "none.parquet", images)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RuntimeMissingError, match=r"pip install '\.\[parquet\]'"):
        read_captions(path, images)


def test_parquet_of_others_without_captions_is_told(tmp_path: Path) -> None:
    pyarrow, path = pytest.importorskip("pyarrow"), tmp_path / "others.parquet"
    for table in ({"image": ["a.jpg"]}, {"caption": ["a dog"]}, {"image": [1.5], "caption": ["a dog"]}):
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(table), path)
        with pytest.raises(DataError, match=r'others\.parquet, row 1: no "caption", or no "image"'):
            read_captions(path, IMAGES)


def test_coco_results_are_matched_by_number(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    records = [{"image_id": 42, "caption": "a dog"}, {"image_id": 7, "caption": "a cat"}]
    path.write_text(json.dumps([*records, {"image_id": "x/y.jpg", "caption": "it"}], indent=1))
    assert read_captions(path, IMAGES) == {"COCO_val2014_000000000042": "a dog", "cat": "a cat", "y": "it"}


def test_text_files_of_a_folder_as_batch_writes_them(tmp_path: Path) -> None:
    for name, suffix in (("cat.jpg", ".txt"), ("COCO_val2014_000000000042.png", ".caption")):
        (tmp_path / name).touch()
        (tmp_path / name).with_suffix(suffix).write_text("a dog\n")
    assert read_captions(tmp_path, IMAGES) == {"COCO_val2014_000000000042": "a dog", "cat": "a dog"}
    (tmp_path / "cat.txt").write_text("a dog\na cat\n")
    with pytest.raises(DataError, match=r"cat\.jpg: a second caption of cat"):
        read_captions(tmp_path, IMAGES)
    (tmp_path / "cat.txt").unlink()
    for description, caption in (("a cat", "a cat"), ("SONY DSC", "A dog.")):
        (tmp_path / "cat.jpg.xmp").write_text(
            '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
            'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:i="http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/">'
            f"<dc:description><rdf:li>{description}</rdf:li></dc:description>"
            "<i:AltTextAccessibility><rdf:li>A dog.</rdf:li></i:AltTextAccessibility></rdf:RDF>"
        )
        assert read_captions(tmp_path, IMAGES)["cat"] == caption
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no photo in it has a text file"):
        read_captions(tmp_path / "empty", IMAGES)


def test_entities_of_html_are_the_characters_they_stand_for(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"cat.jpg": "salt &amp; pepper"}))
    assert read_captions(path, IMAGES) == {"cat": "salt & pepper"}


def test_a_table_of_captions_by_name(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    for indent in (None, 1):
        path.write_text(json.dumps({"x/cat.jpg": "a cat", "dog.png": "a dog"}, indent=indent))
        assert read_captions(path, IMAGES) == {"cat": "a cat", "dog": "a dog"}
    path.write_text(json.dumps({"cat.jpg": {"text": "a cat"}}))
    with pytest.raises(DataError, match=r'table\.json, cat\.jpg: no "caption"'):
        read_captions(path, IMAGES)


def test_a_name_of_thousands_of_digits_has_no_number() -> None:
    assert keys_by_number([CaptionedImage(f"{'1' * 4400}.jpg", ("a dog",), "val"), IMAGES[0]]) == {
        42: "COCO_val2014_000000000042"
    }


def test_names_that_are_not_utf_8_are_matched(tmp_path: Path) -> None:
    name = os.fsdecode(b"lat\xe9.jpg")
    path = write(tmp_path / "captions.jsonl", to_unicode({"image": name, "caption": "a cat"}))
    assert read_captions(path, [CaptionedImage(name, ("a cat",), "")]) == {name[:-4]: "a cat"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"image": "a.jpg", "caption": "x"}\n{"image"', "line 2: not JSON"),
        ("[{]", "not JSON"),
        ('{"image": "a.jpg"}', 'line 1: no "caption"'),
        ('{"caption": "x"}', 'line 1: no "caption", or no "image"'),
        ("[3]", "entry 1: not an object"),
        (
            '{"image": "a/cat.jpg", "caption": "1"}\n{"image": "b/cat.png", "caption": "2"}',
            "line 2: a second",
        ),
    ],
)
def test_malformed_captions_are_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "captions.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_captions(path, IMAGES)


def test_captions_without_spaces_between_their_words_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"image": "a.jpg", "caption": "一只猫坐在桌子上"})
    with pytest.raises(DataError, match="no spaces between the words of '一只猫坐在桌子上'; separate"):
        read_captions(path, IMAGES)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_captions(tmp_path / "none.jsonl", IMAGES)
    (tmp_path / "image.jpg").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(DataError, match="UTF-8"):
        read_captions(tmp_path / "image.jpg", IMAGES)


def test_references_with_the_same_name_cannot_be_told_apart() -> None:
    with pytest.raises(DataError, match="two images are called cat"):
        references_by_image([*IMAGES, CaptionedImage("others/cat.jpg", ("a cat",), "val")])
