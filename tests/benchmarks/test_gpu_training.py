"""From packed photos to weights that come back, as on a machine that is lent for minutes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import squares

pytest.importorskip("torch", reason="trained with PyTorch")
GPU = Path(__file__).parents[2] / "benchmarks" / "gpu"
RUN = """
name = "small"
weights = "random"
min_count = 1

[search]
max_words = 8

[model]
encoder = "efficientnet_lite0"
image_size = 32
stride = 8
features = 16
hidden = 16
embedding = 16
attention_hidden = 8

[[data]]
name = "squares"
captions = "squares/captions.json"
images = ["squares/{images}"]

[[data]]
name = "named"
labels = "named/labels.json"
images = ["named/{images}"]

[[stages]]
name = "words"
epochs = 1000
seconds = 0.5
batch_captions = 20
tuned_segments = 3
"""


def run(script: str, *flags: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(GPU / script), *map(str, flags)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts with coloured squares: 24 with captions for training, 6 for validation, and 4 with labels."""
    folder = tmp_path_factory.mktemp("data")
    squares.write(folder / "squares")
    (folder / "named" / "images").mkdir(parents=True)
    entries = []
    for number, color in enumerate(("red", "green", "blue", "red")):
        squares.draw(color, "left", 50 + number).save(folder / "named" / "images" / f"{number}.png")
        split = "val" if number == 3 else "train"
        entries.append({"filename": f"{number}.png", "split": split, "words": [f"{color} square", "square"]})
    (folder / "named" / "labels.json").write_text(json.dumps({"images": entries}))
    (folder / "run.toml").write_text(RUN.replace("{images}", "images"))
    done = run(
        "pack_photos.py", folder / "run.toml", "--data-root", folder, "--part-size", "20K", folder / "parts"
    )
    assert done.returncode == 0, done.stderr
    return folder / "parts"


def test_parts_hold_the_most_useful_photos_first(packed: Path) -> None:
    parts = sorted(packed.iterdir())
    assert len(parts) > 1 and all(path.stat().st_size <= 20 * 2**10 for path in parts)
    with zipfile.ZipFile(parts[0]) as part:
        captions = json.loads(part.read("squares/captions.json"))["images"]
        labels = json.loads(part.read("named/labels.json"))["images"]
        names = [name for name in part.namelist() if name.endswith(".webp")]
    # All photos for validation, and something of each source to train on.
    assert [entry["split"] for entry in captions].count("val") == 6
    assert {entry["split"] for entry in labels} == {"train", "val"}
    assert len(names) == len(captions) + len(labels)
    assert captions[0]["sentences"] and labels[0]["words"][-1] == "square"
    with zipfile.ZipFile(parts[-1]) as part:
        assert "named/labels.json" in part.namelist()  # five captions count for more


def test_what_arrived_is_trained_on_and_comes_back(packed: Path, tmp_path: Path) -> None:
    parts, data, out = tmp_path / "parts", tmp_path / "data", tmp_path / "out"
    parts.mkdir()
    for path in sorted(packed.iterdir())[:-1]:
        (parts / path.name).write_bytes(path.read_bytes())
    (parts / "photos.999.zip").write_bytes(b"PK broken off")
    done = run("pack_photos.py", "--unpack", parts, data)
    assert done.returncode == 0 and "photos.999.zip" in done.stderr
    (data / "run.toml").write_text(RUN.replace("{images}", "photos"))
    flags = ["--device", "cpu", "--threads", "1", "--data-root", data, "--cache", tmp_path / "cache"]
    done = run("train.py", "--out", out, data / "run.toml", *flags, "-o", tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"best.pt.00", "log.jsonl", "train.log", "training.json"} == {path.name for path in out.iterdir()}
    whole = b"".join(path.read_bytes() for path in sorted(out.glob("best.pt.*")))
    assert whole == (tmp_path / "run" / "best.pt").read_bytes()
    results = json.loads((out / "training.json").read_text())
    [table] = results["sections"]["training"]
    assert table["rows"][0]["photos/s"] > 0 and results["holds"] == {"a run is trained to its end": True}
    document = tmp_path / "card.md"
    document.write_text("<!-- gpu -->\n<!-- /gpu -->\n")
    done = run("measure.py", "--results", out / "training.json", "--write", document, document)
    assert done.returncode == 0 and "### Training" in document.read_text()
    (tmp_path / "bundle.json").write_text("{}")
    done = run("measure.py", "--results", out / "training.json", "--write", document)
    assert done.returncode == 2 and "is part of a bundle" in done.stderr
