"""`captioner model`: sound bundles are described, others refused with the reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from captioner.cli.main import main
from captioner.model.bundle import DEFAULT, Bundle, change_manifest


def test_show_prints_facts_and_the_card(tiny_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = Bundle.load(tiny_bundle)
    assert main(["model", "show", str(tiny_bundle)]) == 0
    output = capsys.readouterr().out
    assert bundle.identity in output and f"{len(bundle.vocabulary)} words" in output
    assert (tiny_bundle / "MODEL_CARD.md").read_text().strip() in output


def test_both_precisions_are_shown_and_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "show", "default"]) == 0
    output = capsys.readouterr().out
    assert main(["model", "show"]) == 0
    assert capsys.readouterr().out == output
    size = sum(path.stat().st_size for path in DEFAULT.iterdir())
    assert "float32 and int8" in output and f"{size / 1e6:.1f} MB" in output
    assert main(["model", "verify"]) == 0
    assert "6 files" in capsys.readouterr().out


def test_show_json(tiny_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = Bundle.load(tiny_bundle)
    assert main(["model", "show", "--json", str(tiny_bundle)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["model"], record["digest"]) == (bundle.identity, bundle.digest)
    assert record["grid"] == list(bundle.grid)


def test_verify_loads_the_graphs(tiny_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "verify", str(tiny_bundle)]) == 0
    assert "graphs load" in capsys.readouterr().out


def _alter(folder: Path) -> None:
    path = folder / "decoder.onnx"
    path.write_bytes(path.read_bytes() + b"\0")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_alter, "its digest differs"),
        (lambda folder: (folder / "vocabulary.txt").unlink(), "lacks vocabulary.txt"),
        (lambda folder: (folder / "weights.pkl").write_bytes(b""), "not part of it: weights.pkl"),
        (lambda folder: (folder / "bundle.json").unlink(), "has no bundle.json"),
        (lambda folder: (folder / "bundle.json").write_text("{"), "not valid JSON"),
        (shutil.rmtree, "does not exist"),
    ],
)
def test_damaged_bundles(damage, reason: str, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(copy)
    for action in ("show", "verify"):
        assert main(["model", action, str(copy)]) == 2
        output, errors = capsys.readouterr()
        assert output == "" and reason in errors and errors.count("\n") == 1


def test_what_strangers_wrote_is_escaped(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also a card that is not UTF-8; the bundle cannot have control characters in its name."""
    (copy / "MODEL_CARD.md").write_bytes(b"caf\xe9 \x1b[31mred \xe2\x80\xae\n")
    change_manifest(copy, {"name": "tiny\u3164"})
    assert main(["model", "show", str(copy)]) == 0
    output = capsys.readouterr().out
    assert r"tiny\u3164@" in output and "caf\ufffd \\x1b[31mred \\u202e\n" in output
    assert main(["model", "verify", str(copy)]) == 0
    assert r"tiny\u3164@" in capsys.readouterr().out
