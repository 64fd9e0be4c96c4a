"""References in CSV, JSON lines, and text files beside the images."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from captioner.errors import DataError
from captioner.references import CaptionedImage, read_references
from captioner.surrogates import to_unicode


def test_an_unnamed_column_of_a_csv_is_no_split(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",image,caption\n0,a.jpg,a dog\n1,a.jpg,one dog\n")  # as pandas writes its index
    assert read_references(path) == [CaptionedImage("a.jpg", ("a dog", "one dog"), "")]


def test_csv_has_a_row_for_each_caption(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        'image,caption,split\na.jpg,"a dog, and\na cat",train\nb.jpg,a bird,val\na.jpg,two pets,train\n'
    )
    [one, two] = read_references(path)
    assert (one.name, one.captions, one.split) == ("a.jpg", ("a dog, and a cat", "two pets"), "train")
    assert read_references(path, "val") == [two]
    path.write_text("file_name,text\na.jpg,a dog\n")
    assert read_references(path)[0].captions == ("a dog",)
    path.write_text("picture,words\na.jpg,a dog\n")
    with pytest.raises(
        DataError, match="no column image: the first line names picture, words; known are image, "
    ):
        read_references(path)


@pytest.mark.parametrize(
    ("first", "column"), [("image,caption,Caption ", "caption"), ("image,image,caption", "image")]
)
def test_csv_with_a_column_twice_is_refused(first: str, column: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{first}\na.jpg,a dog,a cat\n")
    with pytest.raises(DataError, match=f"the first line names the column {column} more than once"):
        read_references(path)
    path.write_text("image,caption,note,note\na.jpg,a dog,,\n")
    assert read_references(path)[0].captions == ("a dog",)


def test_what_an_error_quotes_of_a_file_stays_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('"pictures\nand\x1b[31m",caption\na.jpg,a dog\n')
    with pytest.raises(DataError) as raised:
        read_references(path)
    assert r"names pictures\nand\x1b[31m, caption" in str(raised.value)
    path.write_text('image,caption,split\n"a\nb.jpg",a dog,train\n"a\nb.jpg",a cat,val\n')
    with pytest.raises(DataError) as raised:
        read_references(path)
    assert r"a\nb.jpg is in two splits" in str(raised.value)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_spreadsheets_separate_columns_in_several_ways(separator: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        f'\ufeffimage{separator}caption\r\na.jpg{separator}"a dog{separator} a cat"\r\n', encoding="utf-8"
    )
    assert read_references(path)[0].captions == (" ".join(f"a dog{separator} a cat".split()),)


def test_rows_that_excel_cuts_or_leaves_empty_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("image,caption,log_prob,error_code\na.jpg,a dog\n,,,\nb.jpg,a cat,-1.2\n")
    assert [image.captions for image in read_references(path)] == [("a dog",), ("a cat",)]
    assert not caplog.text
    path.write_text("image,caption,split\na.jpg,a dog\n")
    with pytest.raises(DataError, match="line 2: fewer columns"):
        read_references(path)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("a.jpg,a dog, running", "line 2: more columns than the first line names"),
        ("a.jpg,a dog\nb.jpg", "line 3: fewer columns than the first line names"),
        ('a.jpg,"a dog\nb.jpg,a cat', "after line 1: not CSV"),
        ("a.jpg,", "no image with a caption"),
        (f"a.jpg,{'x' * 200_000}", "after line 1: not CSV"),
    ],
)
def test_captions_that_would_be_cut_or_swallowed_are_refused(rows: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"image,caption\n{rows}\n")
    with pytest.raises(DataError, match=reason):
        read_references(path)


def test_the_records_of_a_batch_are_references(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"image": "sub/a.jpg", "caption": "a dog", "log_prob": -3.2}\n\n'
        '{"image": "b.jpg", "error": {"code": "image_unreadable"}}\n'
    )
    assert [(image.name, image.captions) for image in read_references(path)] == [("sub/a.jpg", ("a dog",))]
    path.write_text('{"image": "a.jpg", "caption": 3}\n')
    with pytest.raises(DataError, match="line 1: no object with the strings image and caption"):
        read_references(path)
    path.write_text('{"image": "a.jpg", "caption": "a"}\n[]\n')
    with pytest.raises(DataError, match="line 2: not an object"):
        read_references(path)


def test_names_that_are_not_utf_8_are_those_of_the_files(tmp_path: Path) -> None:
    name, path = os.fsdecode(b"lat\xe9.jpg"), tmp_path / "a.jsonl"
    path.write_text(json.dumps(to_unicode({"image": name, "caption": "a dog"})))
    assert [image.name for image in read_references(path)] == [name]


def test_names_that_are_not_utf_8_are_found_again_in_csv(tmp_path: Path) -> None:
    table = tmp_path / "captions.csv"  # as `captioner batch` writes it
    table.write_text(
        "image,caption\n" + to_unicode({"image": os.fsdecode(b"lat\xe9.jpg")})["image"] + ",a cat\n"
    )
    assert [os.fsencode(image.name) for image in read_references(table)] == [b"lat\xe9.jpg"]


def test_of_corrections_the_last_counts_and_rejected_ones_do_not(tmp_path: Path) -> None:
    path = tmp_path / "corrections.jsonl"
    lines = [
        ("a.jpg", "a dog", "approved"),
        ("b.jpg", "a cat", "rejected"),
        ("a.jpg", "a brown dog", "edited"),
    ]
    path.write_text(
        "".join(
            f'{{"image": "{name}", "caption": "{text}", "status": "{status}"}}\n'
            for name, text, status in lines
        )
    )
    assert [(image.name, image.captions) for image in read_references(path)] == [("a.jpg", ("a brown dog",))]


def test_captions_in_text_files_beside_the_images(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.jpg", "a.cr2", "sub/b.png", "sub/d.PPM", "c.jpg", "note.md"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "a.txt").write_text("a dog\n\na brown dog\n")
    (tmp_path / "sub" / "b.png.txt").write_text("a cat")
    (tmp_path / "sub" / "d.caption").write_text("a map")
    found = read_references(tmp_path)
    assert [(image.name, image.captions) for image in found] == [
        ("a.jpg", ("a dog", "a brown dog")),
        ("sub/b.png", ("a cat",)),
        ("sub/d.PPM", ("a map",)),
    ]


def test_a_text_file_belongs_to_one_image(tmp_path: Path) -> None:
    """As `captioner batch --format txt` writes them."""
    for name in ("a.jpg", "a.png", "b.jpg", "b.png"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "a.txt").write_text("of the jpg")
    (tmp_path / "a.png.txt").write_text("of the png")
    (tmp_path / "b.txt").write_text("of the first")
    found = {image.name: image.captions for image in read_references(tmp_path)}
    assert found == {"a.jpg": ("of the jpg",), "a.png": ("of the png",), "b.jpg": ("of the first",)}


def test_the_split_of_an_image_in_a_table(tmp_path: Path) -> None:
    table = tmp_path / "captions.csv"
    table.write_text('image, caption, split\na.jpg, "x, y", train\na.jpg, z,\n')
    assert read_references(table) == [CaptionedImage("a.jpg", ("x, y", "z"), "train")]
    table.write_text("image,caption,split\na.jpg,x,train\na.jpg,y,val\n")
    with pytest.raises(DataError, match=r"captions.csv: a.jpg is in two splits, train and val"):
        read_references(table)
