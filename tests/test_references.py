"""The three formats of references."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioner.errors import DataError
from captioner.references import CaptionedImage, image_key, read_references

KARPATHY = {
    "dataset": "x",
    "images": [
        {"filename": "a.jpg", "split": "train", "sentences": [{"raw": "A dog ."}, {"raw": " A cat . "}]},
        {
            "filename": "b.jpg",
            "filepath": "val2014",
            "split": "restval",
            "cocoid": 5,
            "objects": ["dog"],
            "sentences": [{"raw": "A bird", "tokens": ["a", "bird"]}],
        },
        {"filename": "c.jpg", "split": "val", "sentences": [{"raw": "A fish"}]},
    ],
}
COCO = {
    "images": [{"id": 9, "file_name": "nine.jpg"}, {"id": 4, "file_name": "four.jpg"}],
    "annotations": [
        {"image_id": 4, "caption": "Four"},
        {"image_id": 9, "caption": "Nine"},
        {"image_id": 4, "caption": "4"},
    ],
}
TOKENS = "x.jpg#0\tA dog .\r\nx.jpg#1\tA cat .\n\ny.jpg.1#0\tA bird .\n"


def write(folder: Path, content: object) -> Path:
    path = folder / "references"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_karpathy(tmp_path: Path) -> None:
    path = write(tmp_path, KARPATHY)
    images = read_references(path)
    assert images[0] == CaptionedImage("a.jpg", ("A dog .", "A cat ."), "train")
    assert images[1] == CaptionedImage("val2014/b.jpg", ("A bird",), "restval", ("dog",), 5)
    assert [image.name for image in read_references(path, "train+restval")] == ["a.jpg", "val2014/b.jpg"]
    with pytest.raises(DataError, match="no split 'test'; it has restval, train, val"):
        read_references(path, "test")


def test_coco(tmp_path: Path) -> None:
    assert read_references(write(tmp_path, COCO)) == [
        CaptionedImage("nine.jpg", ("Nine",), "", image_id=9),
        CaptionedImage("four.jpg", ("Four", "4"), "", image_id=4),
    ]


def test_flickr8k_tokens_with_lists_of_splits(tmp_path: Path) -> None:
    path = write(tmp_path, TOKENS)
    assert [(image.name, len(image.captions)) for image in read_references(path)] == [
        ("x.jpg", 2),
        ("y.jpg.1", 1),
    ]
    listed = tmp_path / "test.txt"
    listed.write_text("x.jpg\n\n")
    assert read_references(path, "test", split_lists={"test": listed})[0].split == "test"
    with pytest.raises(DataError, match="no split 'test'; it has none"):
        read_references(path, "test")
    listed.write_text("z.jpg\n")
    with pytest.raises(DataError, match=r"1 images of the split lists have no captions, such as z\.jpg"):
        read_references(path, "test", split_lists={"test": listed})


def one(**changes: object) -> dict[str, object]:
    entry = {"filename": "a.jpg", "split": "val", "sentences": [{"raw": "A dog"}]}
    return {"images": [{key: value for key, value in (entry | changes).items() if value is not None}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no images"),
        ("{", "not JSON"),
        ("[]", 'no list "images"'),
        ({"images": []}, "no images"),
        ("a line of text\n", "line 1: not NAME#NUMBER<TAB>caption"),
        ("x.jpg#0\t \n", "x.jpg has an empty caption"),
        (one(split=None), "lacks 'split'"),
        (one(sentences=[]), "a.jpg has no caption"),
        (one(sentences=[{"raw": 3}]), "wrong type"),
        (one(sentences=[{"raw": ""}]), "empty caption"),
        (one(filename=3), "wrong type"),
        ({"images": one()["images"] * 2}, "a.jpg occurs twice"),
        ({"images": COCO["images"], "annotations": COCO["annotations"][:1]}, "nine.jpg has no caption"),
        ({"images": COCO["images"][:1], "annotations": COCO["annotations"]}, "image 4, which is not listed"),
    ],
)
def test_what_is_malformed_is_named(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_references(write(tmp_path, content))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_references(tmp_path / "none.json")
    with pytest.raises(DataError, match="directory"):
        read_references(tmp_path)


@pytest.mark.parametrize(
    ("name", "key"), [("a/b.c.jpg", "b.c"), ("b.jpg", "b"), ("b", "b"), (".hidden", ".hidden")]
)
def test_keys_are_names_without_folder_and_extension(name: str, key: str) -> None:
    assert image_key(name) == key
