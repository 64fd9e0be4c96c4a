"""What earlier versions wrote, every later version reads: bundles, outputs, state files.

tests/data/frozen/N holds what version N of the formats looked like when it was frozen. It is never changed; a
new version of a format gets a folder of its own.
"""

import csv
import json
import shutil
from pathlib import Path

import pytest

from captioner import Captioner
from captioner.cli.main import main
from captioner.model.bundle import ENCODER_INT8

FROZEN = sorted((Path(__file__).parent / "data" / "frozen").iterdir())
OUTPUTS = ("captions.jsonl", "captions.csv", "texts", "maps.jsonl")


@pytest.fixture(params=FROZEN, ids=lambda path: path.name)
def frozen(request, tmp_path) -> Path:
    """A copy, whose files are younger than what the state files say of them."""
    return Path(shutil.copytree(request.param, tmp_path / "frozen", copy_function=shutil.copyfile))


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file()]
    return {file.name: file.read_bytes() for file in files if not file.name.endswith(".state")}


def test_its_bundle_captions_as_it_did(frozen) -> None:
    captioner = Captioner.load(frozen / "bundle", device="cpu", threads=1, precision="float32")
    for line in (frozen / "captions.jsonl").read_text().splitlines():
        record = json.loads(line)
        [caption] = captioner.caption([frozen / "photos" / record["image"]])
        assert caption.text == record["caption"]
        assert caption.model == record["model"]
        assert caption.log_prob == pytest.approx(record["log_prob"], abs=1e-3)


@pytest.mark.parametrize(
    "folder",
    [path for path in FROZEN if (path / "bundle" / ENCODER_INT8).exists()],
    ids=lambda path: path.name,
)
def test_its_int8_graphs_caption(folder) -> None:
    captioner = Captioner.load(folder / "bundle", device="cpu", threads=1, precision="int8")
    [caption] = captioner.caption([folder / "photos" / "sub" / "raccoon.webp"])
    assert caption.words


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_batch_goes_on_from_its_state(frozen, name, monkeypatch, capsys) -> None:
    monkeypatch.chdir(frozen)
    before = contents(Path(name))
    flags = {"texts": ["--format", "txt"], "maps.jsonl": ["--attention", "--alternatives", "2"]}.get(name, [])
    model = ["--model", "bundle", "--device", "cpu", "--precision", "float32"]
    command = ["batch", "photos", "-o", name, *model, *flags]
    monkeypatch.setattr(Captioner, "caption_pixels", None)  # nothing is to be captioned again
    assert main(command) == 0
    assert "3 in all" in capsys.readouterr().err
    assert contents(Path(name)) == before


def test_its_outputs_are_read(frozen, tmp_path) -> None:
    rows = list(csv.DictReader((frozen / "captions.csv").read_text().splitlines()))
    assert {"image", "caption", "log_prob", "model"} <= set(rows[0])
    for name in ("captions.jsonl", "maps.jsonl"):
        page = tmp_path / f"{name}.html"
        command = ["gallery", str(frozen / name), "--images", str(frozen / "photos"), "-o", str(page)]
        assert main(command) == 0
        assert "raccoon.webp" in page.read_text() or list(tmp_path.rglob("*raccoon*"))
