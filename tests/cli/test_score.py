"""`captioner score`, as a user runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from captioner.cli.main import main

DATA = Path(__file__).parents[1] / "data/metrics"
REFERENCES, CAPTIONS = str(DATA / "references.json"), str(DATA / "captions.jsonl")
EXPECTED = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))


def test_the_table_shows_scores_intervals_and_diversity(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", CAPTIONS, REFERENCES, "--no-meteor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line.split() for line in lines if "BLEU-4" in line)
    assert row[1] == f"{100 * EXPECTED['scores']['bleu_4']:.2f}"
    assert float(row[2]) < float(row[1]) < float(row[4])
    assert any("20 images" in line for line in lines)
    assert any("shared by several images" in line and "0.0%" in line for line in lines)


def test_json_has_what_the_table_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", CAPTIONS, REFERENCES, "--json", "--no-meteor", "--samples", "100"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["images"] == 20
    assert record["cider"] == pytest.approx(100 * EXPECTED["scores"]["cider"], abs=1e-4)
    low, high = record["intervals"]["cider"]
    assert low < record["cider"] < high
    assert record["bad_endings"] == 0.05  # "…at sunset with a"
    assert "meteor" not in record


def test_a_split_is_scored_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["score", CAPTIONS, REFERENCES, "--json", "--no-meteor", "--split", "test"]) == 0
    by_split = json.loads(capsys.readouterr().out)
    assert by_split["images"] == 4
    listed = tmp_path / "list.txt"
    listed.write_text("soccer.jpg\nhorse.jpg\ntv.jpg\nmud.jpg\n")
    assert main(["score", CAPTIONS, REFERENCES, "--json", "--no-meteor", "--split-list", str(listed)]) == 0
    assert json.loads(capsys.readouterr().out) == by_split


@pytest.fixture
def others(tmp_path: Path) -> str:
    """A safe sentence for every image."""
    path = tmp_path / "safe.jsonl"
    lines = [json.loads(line) for line in Path(CAPTIONS).read_text().splitlines()]
    path.write_text("".join(json.dumps(line | {"caption": "a man in a"}) + "\n" for line in lines))
    return str(path)


def test_comparing_gives_differences(capsys: pytest.CaptureFixture[str], others: str) -> None:
    command = ["score", CAPTIONS, REFERENCES, "--compare", others, "--no-meteor"]
    assert main([*command, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    cider = record["differences"]["cider"]
    assert cider["value"] == pytest.approx(record["first"]["cider"] - record["second"]["cider"], abs=1e-3)
    assert cider["interval"][0] > 0
    assert cider["p_value"] < 0.05
    assert record["second"]["repeated"] == record["second"]["bad_endings"] == 1
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "captions.jsonl" in shown and "safe.jsonl" in shown and "CIDEr-D" in shown


def test_a_part_of_meteor_is_called_what_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captioner.metrics.meteor.scorer.find_data", lambda: None)
    monkeypatch.setattr("captioner.metrics.meteor.scorer.load_stemmer", lambda: None)
    assert main(["score", CAPTIONS, REFERENCES]) == 0
    printed = capsys.readouterr()
    assert "METEOR 1.5 (exact)" in printed.out
    assert printed.err.startswith("captioner: METEOR 1.5 (exact); for METEOR 1.5: pip install '.[metrics]'")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.jsonl", REFERENCES], "none.jsonl: No such file"),
        ([CAPTIONS, str(DATA / "expected.json")], "captioner: "),
        ([REFERENCES, REFERENCES], "not JSON"),
        ([CAPTIONS, REFERENCES, "--split", "train"], "no split 'train'; it has test, val"),
        ([CAPTIONS, REFERENCES, "--samples", "0"], "--samples"),
        ([CAPTIONS, REFERENCES, "--samples", "1000000000"], "--samples must be from 1 to 100000"),
        ([CAPTIONS, REFERENCES, "--seed", "-1"], "--seed"),
        (
            [CAPTIONS, REFERENCES, "--labels", "--compare", CAPTIONS],
            "--labels cannot be combined with --compare",
        ),
        (
            [CAPTIONS, REFERENCES, "--labels", "--samples", "1000"],
            "--labels cannot be combined with --samples",
        ),
        ([CAPTIONS, REFERENCES, "--labels", "--seed", "0"], "--labels cannot be combined with --seed"),
        ([CAPTIONS, REFERENCES, "--labels", "--no-meteor"], "--labels cannot be combined with --no-meteor"),
        ([CAPTIONS, REFERENCES, "--meteor-data", "."], "not the archive of METEOR"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


def test_a_missing_caption_is_no_score(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    short = tmp_path / "short.jsonl"
    short.write_text("".join(Path(CAPTIONS).read_text().splitlines(keepends=True)[:-1]))
    assert main(["score", str(short), REFERENCES]) == 2
    assert "1 of 20 images have no caption, the first is mud" in capsys.readouterr().err


def test_the_file_that_lacks_captions_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    numbered = tmp_path / "numbered.json"
    numbered.write_text('[{"image_id": 391895, "caption": "a man on a bike"}]')
    assert main(["score", CAPTIONS, REFERENCES, "--compare", str(numbered)]) == 2
    told = "20 of 20 images have no caption, the first is dog-snow; its captions are of others, such as "
    assert capsys.readouterr().err == f"captioner: {numbered}: {told}391895\n"


def test_scoring_needs_neither_torch_nor_a_runtime() -> None:
    code = f"""
import sys
from captioner.cli.main import main
main(["score", {CAPTIONS!r}, {REFERENCES!r}, "--no-meteor"])
print(*{{"torch", "onnxruntime", "nltk", "pycocoevalcap", "PIL"}} & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_no_number_is_cut_in_a_pipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "a captions file with quite a long name.jsonl"
    other.write_text(Path(CAPTIONS).read_text())
    assert main(["score", CAPTIONS, REFERENCES, "--compare", str(other), "--no-meteor"]) == 0
    out = capsys.readouterr().out
    assert "…" not in out and other.name in out


def test_labelled_photos_of_one_name_are_rejected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    labels = tmp_path / "labels.json"
    images = [{"filename": f"{name}/1.jpg", "words": [name], "split": "val"} for name in ("cat", "dog")]
    labels.write_text(json.dumps({"images": images}))
    captions = tmp_path / "captions.jsonl"
    captions.write_text('{"image": "cat/1.jpg", "caption": "a cat"}\n')
    assert main(["score", str(captions), str(labels), "--labels"]) == 2
    assert "two images are called 1" in capsys.readouterr().err


def test_other_images_of_one_name_are_ignored(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    captions = tmp_path / "captions.jsonl"
    others = "".join(f'{{"image": "{folder}/other.jpg", "caption": "a cat"}}\n' for folder in "xy")
    captions.write_text(Path(CAPTIONS).read_text() + others)
    command = ["score", str(captions), REFERENCES, "--no-meteor", "--json"]
    assert main(command) == 0
    captions.write_text(captions.read_text() + Path(CAPTIONS).read_text().splitlines()[0] + "\n")
    assert main(command) == 2
    assert "a second caption of" in capsys.readouterr().err


def test_exchanged_arguments_are_suspected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    references, captions = tmp_path / "references.jsonl", tmp_path / "captions.jsonl"
    captions.write_text('{"image": "a.jpg", "caption": "a dog"}\n')
    references.write_text(2 * captions.read_text())
    assert main(["score", str(references), str(captions), "--no-meteor"]) == 2
    assert "the order is CAPTIONS REFERENCES" in capsys.readouterr().err


_KARPATHY = {
    "images": [{"filename": "1.jpg", "split": "val", "sentences": [{"raw": "a dog"}, {"raw": "dogs"}]}]
}
_COCO = {
    "images": [{"id": 1, "file_name": "1.jpg"}],
    "annotations": [{"image_id": 1, "caption": "a dog"}, {"image_id": 1, "caption": "dogs"}],
}


_LABELS = {"images": [{"filename": "1.jpg", "words": ["dog"], "split": "val"}]}


@pytest.mark.parametrize(
    "captions", ['{"image": "1.jpg", "caption": "a dog"}', '[{"image_id": 1, "caption": "a dog"}]']
)
@pytest.mark.parametrize(
    ("references", "flags"),
    [
        (_KARPATHY, ["--no-meteor"]),
        (_KARPATHY, ["--no-meteor", "--split", "val"]),
        (_COCO, ["--no-meteor"]),
        ("1.jpg#0\ta dog\n1.jpg#1\tdogs\n", ["--no-meteor"]),
        (_LABELS, ["--labels"]),
    ],
)
def test_exchanged_files_of_all_formats_are_suspected(
    capsys, tmp_path: Path, references, captions, flags
) -> None:
    first, second = tmp_path / "references", tmp_path / "captions.json"
    first.write_text(references if isinstance(references, str) else json.dumps(references, indent=1))
    second.write_text(captions)
    hint = "(the order is CAPTIONS REFERENCES: are they exchanged?)\n"
    assert main(["score", str(first), str(second), *flags]) == 2
    assert capsys.readouterr().err.endswith(hint)
    assert main(["score", str(second), str(first), *flags]) == 0
    second.write_text("no captions")
    for paths in ((first, second), (second, first)):
        assert main(["score", *map(str, paths), *flags]) == 2
        assert hint not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["captions.jsonl", "folder", "--labels"], "labels are read from JSON"),
        (["folder", "captions.jsonl"], "captions to score are read from JSON lines or CSV"),
        (["captions.jsonl", "captions.jsonl", "--split-list", "folder"], "the name of an image on each line"),
    ],
)
def test_a_folder_in_place_of_a_file_is_told_what_is_wanted(
    tmp_path: Path, monkeypatch, capsys, arguments, wanted
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("captions.jsonl").write_text('{"image": "a.jpg", "caption": "a dog"}\n')
    assert main(["score", *arguments, "--no-meteor"][: -1 if "--labels" in arguments else None]) == 2
    assert re.search(f"^captioner: folder: a folder; .*{wanted}", capsys.readouterr().err)
