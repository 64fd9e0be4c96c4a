"""`captioner evaluate` on what references and boxes know of objects; its scores are tested with export."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from support.squares_run import told

from captioner.cli.main import main
from captioner.surrogates import image_of

EXAMPLES = Path(__file__).parents[2] / "examples"
PHOTOS = ("cat", "raccoon", "coffee")


@pytest.fixture
def command(tmp_path: Path, tiny_bundle: Path) -> list[str]:
    """Captions three photos with the model of the tests; the references say what is in them."""
    images = [
        {
            "filename": f"{name}.jpg",
            "split": "val",
            "objects": [name] if name == "cat" else [],
            "sentences": [{"raw": f"a {name}"}],
        }
        for name in PHOTOS
    ]
    references = tmp_path / "references.json"
    references.write_text(json.dumps({"images": images}))
    options = ["--images", str(EXAMPLES), "--model", str(tiny_bundle), "--device", "cpu"]
    return ["evaluate", str(references), *options]


@pytest.fixture
def boxes(tmp_path: Path) -> str:
    """The whole of every photo is a person, a cat, a dog, …"""
    from captioner.words.coco import CATEGORIES

    path = tmp_path / "instances.json"
    document = {
        "images": [
            {"id": number, "file_name": f"{name}.jpg", "width": 10, "height": 20}
            for number, name in enumerate(PHOTOS)
        ],
        "categories": [{"id": number, "name": name} for number, name in enumerate(CATEGORIES)],
        "annotations": [
            {"image_id": image, "category_id": number, "bbox": [0, 0, 10, 20]}
            for image in range(len(PHOTOS))
            for number in range(len(CATEGORIES))
        ],
    }
    path.write_text(json.dumps(document))
    return str(path)


def test_objects_of_the_references_are_looked_for(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert {"chair_i", "chair_s", "object_recall"} <= scores.keys()
    assert scores["chair_s"] >= 100 * 2 / 3 or scores["chair_i"] < 100  # two photos have no object at all
    assert main(command) == 0
    assert "objects that are not there" in capsys.readouterr().out


def test_no_input_is_overwritten(
    command: list[str], boxes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, archive = tmp_path / "photos", tmp_path / "photos.zip"
    (photos / "more").mkdir(parents=True)
    for photo in (photos / "cat.jpg", photos / "more" / "not-in-the-references.JPG"):
        shutil.copy(EXAMPLES / "cat.jpg", photo)
    (photos / "cat.txt").write_text("a cat")
    (tmp_path / "link.jsonl").symlink_to(photos / "cat.jpg")
    shutil.make_archive(str(archive.with_suffix("")), "zip", EXAMPLES, "cat.jpg")
    place = command.index("--images") + 1
    command[place : place + 1] = [str(photos), str(archive)]
    for references in (command[1], str(photos)):
        inputs = [references, *photos.rglob("*.jpg"), *photos.rglob("*.JPG"), archive, boxes]
        outputs = [Path(one) for one in (*inputs, tmp_path / "link.jsonl")]
        for output in (one for one in outputs if one.is_file()):
            before = output.read_bytes()
            assert main(["evaluate", references, *command[2:], "--boxes", boxes, "-o", str(output)]) == 2
            error = f"captioner: {output} is one of the inputs; choose another name for OUT\n"
            assert capsys.readouterr().err == error
            assert output.read_bytes() == before
    assert main(["evaluate", str(photos), *command[2:], "-o", str(photos / "cat.txt")]) == 2
    assert (photos / "cat.txt").read_text() == "a cat"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")  # noqa: PTH110
def test_a_full_disk_takes_the_captions_and_leaves_the_scores(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--json", "--no-meteor", "-o", "/dev/full"]) == 2
    shown, said = capsys.readouterr()
    assert "cider" in json.loads(shown)
    assert said == "captioner: cannot write /dev/full: No space left on device\n"


def test_captions_of_names_that_are_not_utf_8_are_json_for_all(command: list[str], tmp_path: Path) -> None:
    photos, out, name = tmp_path / "photos", tmp_path / "out.jsonl", os.fsdecode(b"lat\xe9.jpg")
    photos.mkdir()
    shutil.copy(EXAMPLES / "cat.jpg", photos / name)
    (photos / name).with_suffix(".txt").write_text("a cat")
    assert main(["evaluate", str(photos), *command[4:], "-o", str(out)]) == 0
    [record] = map(json.loads, out.read_text().splitlines())
    assert (record["image"], image_of(record)) == ("lat\\udce9.jpg", name)


def test_captions_among_the_photos_are_replaced(command: list[str], tmp_path: Path) -> None:
    for name in PHOTOS:
        shutil.copy(EXAMPLES / f"{name}.jpg", tmp_path)
    command[command.index("--images") + 1] = str(tmp_path)
    for _ in range(2):
        assert main([*command, "-o", str(tmp_path / "out.jsonl")]) == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == len(PHOTOS)


def test_a_folder_that_is_missing_is_named_before_anything_is_captioned(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captioner.captioner.Captioner.load", lambda *_, **__: pytest.fail("captions"))
    assert main([*command, "-o", str(tmp_path / "none" / "out.jsonl")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main([*command, "-o", str(tmp_path)]) == 2
    assert "it is a folder" in capsys.readouterr().err


def test_damaged_photos_are_all_named_and_leave_the_other_captions(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photos").mkdir()
    for name in PHOTOS:
        (tmp_path / "photos" / f"{name}.jpg").write_bytes(b"not an image")
    shutil.copy(EXAMPLES / "raccoon.jpg", tmp_path / "photos")
    command[command.index("--images") + 1] = str(tmp_path / "photos")
    assert main([*command, "-o", str(tmp_path / "out.jsonl")]) == 2
    first, second, last = capsys.readouterr().err.splitlines()
    assert first.startswith("captioner: cat.jpg: ") and second.startswith("captioner: coffee.jpg: ")
    assert last == "captioner: 2 of 3 photos cannot be captioned"
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["image"] for line in lines] == ["raccoon.jpg"]


def test_photos_that_are_missing_are_counted_before_anything_is_captioned(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captioner.captioner.Captioner.load", lambda *_, **__: pytest.fail("captions"))
    shutil.copy(EXAMPLES / "cat.jpg", tmp_path / "raccoon.JPG")
    command[command.index("--images") + 1] = str(tmp_path)
    assert main(command) == 2
    assert capsys.readouterr().err == (
        "captioner: 3 of 3 photos cannot be found; the first: the image cat.jpg is in none of the folders and"
        " archives given\n"
    )


def test_maps_are_held_against_boxes(
    command: list[str], boxes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--json", "--boxes", boxes, "--attention-size", "9x7"]) == 0
    found = json.loads(capsys.readouterr().out)["pointing"]
    assert found["words"] >= found["images"] > 0
    assert [found["pointing"], found["correctness"]] == [1, pytest.approx(1)]
    assert main([*command, "--boxes", boxes]) == 0
    assert "attention in the boxes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--boxes", "nowhere.json"], "nowhere.json: No such file"),
        (["--hidden-cells", "0.5"], "go with --faithfulness"),
        (["--faithfulness", "--hidden-share", "2"], "the share of attention to hide"),
        (["--meteor-data", "."], "not the archive of METEOR"),
        (["--faithfulness", "--server", "localhost:1"], "not one on a --server"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    command: list[str], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and len(printed.err.splitlines()) == 1
    assert printed.out == ""


def test_meteor_is_left_out(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--json", "--no-meteor"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert "cider" in scores and not any(name.startswith("meteor") for name in scores)


def test_a_folder_of_photos_with_texts(tmp_path: Path, command: list[str]) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    shutil.copy(EXAMPLES / "cat.jpg", photos)
    (photos / "cat.txt").write_text("a cat")
    assert main(["evaluate", str(photos), *command[4:]]) == 0


@pytest.mark.parametrize(
    ("references", "arguments", "reason"),
    [
        ("nowhere.json", [], "nowhere.json"),
        ("squares.toml", [], "squares.toml"),
        ("captions.json", [], "in none of the folders and archives given"),
        ("captions.json", ["--split", "holidays"], "holidays"),
        ("captions.json", ["--images", "nowhere"], "No such file"),
        ("captions.json", ["--images", "{data}/images", "-o", "/nowhere/captions.jsonl"], "cannot write"),
    ],
)
def test_what_cannot_be_evaluated(data, tiny_bundle, capsys, references, arguments, reason) -> None:
    arguments = [argument.replace("{data}", str(data)) for argument in arguments]
    options = ["--model", str(tiny_bundle), "--device", "cpu"]
    assert main(["evaluate", str(data / references), *options, *arguments]) == 2
    errors = told(capsys)
    assert reason in errors and errors.count("\n") == 1
