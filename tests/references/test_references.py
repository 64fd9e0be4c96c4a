"""The formats of references."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioner.errors import DataError
from captioner.references import CaptionedImage, image_key, read_references
from captioner.references.labels import read_labels

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


def test_karpathy_captions_have_splits_objects_and_ids(tmp_path: Path) -> None:
    path = write(tmp_path, KARPATHY)
    images = read_references(path)
    assert images[0] == CaptionedImage("a.jpg", ("A dog .", "A cat ."), "train")
    assert images[1] == CaptionedImage("val2014/b.jpg", ("A bird",), "restval", ("dog",), 5)
    assert [image.name for image in read_references(path, "train+restval")] == ["a.jpg", "val2014/b.jpg"]
    with pytest.raises(DataError, match="no split 'test'; it has restval, train, val"):
        read_references(path, "test")


def test_coco_captions_are_grouped_by_image(tmp_path: Path) -> None:
    assert read_references(write(tmp_path, COCO)) == [
        CaptionedImage("nine.jpg", ("Nine",), "", image_id=9),
        CaptionedImage("four.jpg", ("Four", "4"), "", image_id=4),
    ]


@pytest.mark.parametrize("others", [[], [{"image_id": 9, "caption": " "}, {"image_id": 4, "caption": "\n"}]])
def test_an_image_without_a_caption_is_left_out(
    tmp_path: Path, others: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, {**COCO, "annotations": [COCO["annotations"][0], *others]})
    assert read_references(path) == [CaptionedImage("four.jpg", ("Four",), "", image_id=4)]
    assert "1 of 2 images have no caption" in caplog.text


def test_a_caption_that_is_null_is_none(tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    null = {"image_id": 9, "caption": None}
    path.write_text(json.dumps({**COCO, "annotations": [null, *COCO["annotations"]]}))
    assert [image.captions for image in read_references(path)] == [("Nine",), ("Four", "4")]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32"])
def test_an_encoding_that_is_not_told_is_said(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "captions.csv"
    path.write_text("image,caption\na.jpg,A dog\n", encoding=encoding)
    with pytest.raises(DataError, match="not in UTF-8; save it as UTF-8"):
        read_references(path)


def test_records_without_a_field_for_captions_are_said(tmp_path: Path) -> None:
    path = tmp_path / "florence.jsonl"
    path.write_text('{"image": "a.jpg", "prefix": "<CAPTION>", "suffix": "a dog"}\n' * 2)
    with pytest.raises(
        DataError, match=r"line 1: .*image, prefix, suffix; known are caption, captions, text"
    ):
        read_references(path)


def test_the_metadata_of_a_folder_of_hugging_face(tmp_path: Path) -> None:
    path = tmp_path / "metadata.jsonl"
    path.write_text('{"file_name": "a.jpg", "text": "a dog"}\n')
    assert read_references(path) == read_references(tmp_path) == [CaptionedImage("a.jpg", ("a dog",), "")]
    path.rename(tmp_path / "metadata.csv")
    (tmp_path / "metadata.csv").write_text("file_name,text\na.jpg,a dog\n")
    assert read_references(tmp_path) == [CaptionedImage("a.jpg", ("a dog",), "")]


@pytest.mark.parametrize(
    "content",
    [
        'image,caption\na.jpg,"a dog, wet"\na.jpg,two\n',  # captions.txt of Flickr8k on Kaggle
        "image_name| comment_number| comment\na.jpg| 0| a dog, wet\na.jpg| 1| two\n",  # of Flickr30k
    ],
)
def test_tables_in_text_files(tmp_path: Path, content: str) -> None:
    path = tmp_path / "captions.txt"
    path.write_text(content)
    assert read_references(path) == [CaptionedImage("a.jpg", ("a dog, wet", "two"), "")]


@pytest.mark.parametrize(
    "content",
    [
        [{"image": "a.jpg", "caption": "a dog"}, {"file_name": "a.jpg", "text": "two"}],
        {"a.jpg": ["a dog", "two"]},
        '{"image_path": "a.jpg", "captions": ["a dog", "two"]}',
        "sep=;\nphoto;description\na.jpg;a dog\na.jpg ; two\n",
        'sep=,\nfilepath,caption\na.jpg,a dog\n"a.jpg",two\n',
        {
            "images": [{"id": "007", "file_name": "a.jpg"}],
            "annotations": [{"image_id": 7, "caption": "a dog"}, {"image_id": "7", "caption": "two"}],
        },
    ],
)
def test_what_others_write_is_read(tmp_path: Path, content: object) -> None:
    path = tmp_path / ("a.jsonl" if isinstance(content, str) and content.startswith("{") else "a.txt")
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    [image] = read_references(path)
    assert (image.name, image.captions) == ("a.jpg", ("a dog", "two"))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_text_with_a_byte_order_mark_is_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.csv").write_text("image,caption\na.jpg,a café\n", encoding=encoding)
    assert read_references(tmp_path / "a.csv")[0].captions == ("a café",)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_zeros_that_a_power_failure_leaves_at_the_end_are_said(
    encoding: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("image,caption\na.jpg,a café\n".encode(encoding) + bytes(4096))
    assert read_references(path)[0].captions == ("a café",)
    assert caplog.messages == [f"{path} ends in zeros, as after a power failure: what was there is lost"]
    path.write_text("image,caption\na.jpg,a ca\0fé\n", encoding=encoding)
    with pytest.raises(DataError, match="not in UTF-8"):
        read_references(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", b"PK\3\4\0\0\xff", "not a text file; captions are read from CSV"),
        ("a.parquet", b"PAR1\0\xff", "not a text file; captions are read from CSV"),
        (
            "a.csv",
            "image,caption\na.jpg,a café\n".encode("cp1252"),
            "not in UTF-8; save it as UTF-8, in Excel",
        ),
        ("a.csv", b"image,caption1,caption2\na.jpg,a,b\n", "known are caption, .*; give each caption a row"),
        (
            "a.json",
            b'{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "bbox": []}]}',
            r"lacks 'caption'; captions of COCO are in captions_\*\.json",
        ),
        (
            "a.json",
            b'{"images": [{"filename": "a.jpg", "words": ["cat"]}]}',
            "lacks 'sentences'; words instead",
        ),
    ],
)
def test_what_cannot_be_read_is_said_with_what_can(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_references(tmp_path / name)


def test_capitals_of_splits_count(tmp_path: Path) -> None:
    path = write(tmp_path, "image,caption,split\na.jpg,a dog,Train\n")
    with pytest.raises(DataError, match=r"no split 'train'; it has Train \(capitals count"):
        read_references(path, "train")


@pytest.mark.parametrize("name", ["metadata.parquet", "train/metadata.jsonl"])
def test_metadata_that_is_elsewhere_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.jpg").touch()
    (tmp_path / name).touch()
    with pytest.raises(
        DataError, match=f"no image has a text file .* if they are in .*{name}, give that file"
    ):
        read_references(tmp_path)


def test_rows_and_photos_without_captions_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("image,caption\na.jpg,a dog\nb.jpg, \n,a cat\n")
    assert [image.name for image in read_references(path)] == ["a.jpg"]
    assert "1 row without an image" in caplog.text and "1 of 2 images have no caption" in caplog.text
    (tmp_path / "a.jsonl").write_text(
        '{"image": "a.jpg", "caption": "a"}\n{"image": "b.jpg", "caption": ""}\n'
    )
    (tmp_path / "a.txt").write_text("a dog")
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (tmp_path / name).touch()
    for place, said in ((tmp_path / "a.jsonl", "1 of 2"), (tmp_path, "2 of 3")):
        caplog.clear()
        assert len(read_references(place)) == 1
        assert f"{said} images have no caption" in caplog.text


def test_captions_without_spaces_between_their_words_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("image,caption\na.jpg,一只猫坐在桌子上\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"no spaces between the words of '一只猫坐在桌子上'; separate"):
        read_references(path)


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
    with pytest.raises(DataError, match=r"test\.txt: 1 image of the split lists without captions, such as z"):
        read_references(path, "test", split_lists={"test": listed})
    listed.write_text("\n")
    with pytest.raises(DataError, match=r"test\.txt: names no image"):
        read_references(path, "test", split_lists={"test": listed})


def one(**changes: object) -> dict[str, object]:
    entry = {"filename": "a.jpg", "split": "val", "sentences": [{"raw": "A dog"}]}
    return {"images": [{key: value for key, value in (entry | changes).items() if value is not None}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no image with a caption"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON of captions"),
        (f'{{"images": [{"1" * 5000}]}}', "not JSON"),
        ("[]", "no image with a caption"),
        ({"info": "x"}, 'no list "images"'),
        ({"images": []}, "no image with a caption"),
        ("a line of text\n", "line 1: not NAME#NUMBER<TAB>caption"),
        ("x.jpg#0\t \n", "no image with a caption"),
        (one(split=None), "lacks 'split'"),
        (one(sentences=[]), "no image with a caption"),
        (one(sentences=[{"raw": 3}]), "wrong type"),
        (one(sentences=[{"raw": ""}]), "no image with a caption"),
        (one(filename=3), "wrong type"),
        (one(split=3), "wrong type"),
        ({"images": one()["images"] * 2}, "a.jpg occurs twice"),
        (
            {**COCO, "images": [*COCO["images"], {**COCO["images"][0], "file_name": "b.jpg"}]},
            "nine.jpg and b.jpg have the same id, 9",
        ),
        ({"images": COCO["images"][:1], "annotations": COCO["annotations"]}, "image 4, which is not listed"),
    ],
)
def test_what_is_malformed_is_named(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_references(write(tmp_path, content))


def test_a_split_that_is_null_is_none(tmp_path: Path) -> None:
    entry = one()["images"][0]  # type: ignore[index]
    path = write(tmp_path, {"images": [entry, {**entry, "filename": "b.jpg", "split": None}]})
    assert [image.split for image in read_references(path)] == ["val", ""]
    with pytest.raises(DataError, match="no split 'test'; it has val"):
        read_references(path, "test")
    labelled = read_labels(path, '{"images": [{"filename": "a.jpg", "split": null, "words": ["cat"]}]}')
    assert [image.split for image in labelled] == [""]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_references(tmp_path / "none.json")
    with pytest.raises(DataError, match="no image has a text file"):
        read_references(tmp_path)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a/b.c.jpg", "b.c"),
        ("b.jpg", "b"),
        ("b", "b"),
        (".hidden", ".hidden"),
        ("a\\b.jpg", "b"),
        ("cafe\u0301.jpg", "caf\u00e9"),
    ],
)
def test_keys_are_names_without_folder_and_extension(name: str, key: str) -> None:
    assert image_key(name) == key


def test_coco_results_are_said_to_have_no_names(tmp_path) -> None:
    path = tmp_path / "captions.json"
    path.write_text('[{"image_id": 1, "caption": "a cat"}]')
    with pytest.raises(DataError, match="COCO results have only numbers for images"):
        read_references(path)
