"""Bundles of strangers are tried in a process with limits, before any command loads them."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from captioner import trial
from captioner.cli.main import main
from captioner.errors import BundleError
from captioner.model.bundle import DEFAULT, Bundle
from captioner.model.graphs.cache import user_folder

pytest.importorskip("onnxruntime")


def greedy(tiny_bundle: Path, bundle: Path, side: int = 60_000, products: int = 0) -> Path:
    """A bundle with harmless operators: two constants are multiplied to a square tensor (of 14 GB), and this
    with itself so many times."""
    onnx = pytest.importorskip("onnx")
    shutil.copytree(tiny_bundle, bundle)
    model = onnx.load(bundle / "encoder.onnx")
    ones = np.ones(side, np.float32)
    for name, value in (("row", ones[None]), ("column", ones[:, None]), ("nothing", np.float32(0))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    output = model.graph.output[0].name
    last = next(node for node in model.graph.node if output in node.output)
    last.output[list(last.output).index(output)] = "before"
    make = onnx.helper.make_node
    model.graph.node.append(make("Mul", ["row", "column"], ["power0"]))
    for number in range(products):
        model.graph.node.append(make("MatMul", [f"power{number}"] * 2, [f"power{number + 1}"]))
    model.graph.node.append(make("ReduceMean", [f"power{products}"], ["average"], keepdims=0))
    model.graph.node.append(make("Mul", ["average", "nothing"], ["zero"]))
    model.graph.node.append(make("Add", ["before", "zero"], [output]))
    onnx.save(model, bundle / "encoder.onnx")
    manifest = json.loads((bundle / "bundle.json").read_text())
    manifest["files"]["encoder.onnx"] = hashlib.sha256((bundle / "encoder.onnx").read_bytes()).hexdigest()
    (bundle / "bundle.json").write_text(json.dumps(manifest))
    return bundle


def refuse(folder: Path, digest: str) -> None:
    raise BundleError("it was tried")


def test_a_cache_that_cannot_be_reached_is_none(tiny_bundle: Path, tmp_path: Path, monkeypatch) -> None:
    """As that of root, whose HOME somebody else has taken along."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("x" * 300)))
    assert trial.load_bundle(tiny_bundle).digest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's notes are; none at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = user_folder()
    assert found
    return found.with_name("tried")


def test_a_bundle_is_tried_once(tiny_bundle: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = trial.load_bundle(tiny_bundle).digest
    assert [path.name for path in cache.iterdir()] == [digest]
    monkeypatch.setattr(trial, "try_bundle", refuse)
    assert trial.load_bundle(tiny_bundle).digest == digest
    if os.name == "posix":  # somebody else could have written the note
        cache.chmod(0o777)
        with pytest.raises(BundleError, match="it was tried"):
            trial.load_bundle(tiny_bundle)


def test_installed_models_need_no_trial(
    tiny_bundle: Path, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "try_bundle", refuse)
    taught = shutil.copytree(tiny_bundle, user_folder / "models" / "mine")
    for folder in (None, DEFAULT, taught):
        assert trial.load_bundle(folder).digest


@pytest.mark.skipif(os.name != "posix", reason="limits")
def test_what_takes_too_much_is_refused(tiny_bundle: Path, tmp_path: Path, cache: Path) -> None:
    bundle = greedy(tiny_bundle, tmp_path / "greedy")
    with pytest.raises(BundleError, match="it needs more memory than it may have") as caught:
        trial.load_bundle(bundle)
    assert len(str(caught.value).splitlines()) == 1 and not cache.exists()


@pytest.mark.skipif(os.name != "posix", reason="limits")
def test_what_computes_too_long_is_refused(
    tiny_bundle: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = greedy(tiny_bundle, tmp_path / "bundle", 2000, 1000)
    monkeypatch.setattr(trial, "_CPU_S", 3.0)
    with pytest.raises(BundleError, match="4 s of processor time"):
        trial.load_bundle(bundle)
    assert not cache.exists()


def test_a_bundle_that_is_exchanged_before_its_trial_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = shutil.copytree(tiny_bundle, tmp_path / "bundle")
    digest = Bundle.load(bundle).digest
    (bundle / "bundle.json").write_text((bundle / "bundle.json").read_text() + " ")
    with pytest.raises(BundleError, match="it has changed meanwhile"):
        trial.try_bundle(bundle, digest)


COMMANDS = (
    "caption PHOTO --model BUNDLE",
    "overlay PHOTO -o OUT.png --model BUNDLE",
    "batch FOLDER -o OUT.jsonl --model BUNDLE",
    "gallery FOLDER -o OUT.html --model BUNDLE",
    "demo --port 0 --no-browser --model BUNDLE",
    "serve --port 0 --model BUNDLE",
    "bench --model BUNDLE",
    "mcp FOLDER --model BUNDLE",
    "model verify BUNDLE",
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_every_command_tries_a_bundle_first(
    command: str,
    tiny_bundle: Path,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    photos = tiny_bundle.parents[2] / "examples"
    for name, value in (("BUNDLE", tiny_bundle), ("PHOTO", photos / "cat.jpg"), ("OUT", tmp_path / "out")):
        command = command.replace(name, str(value))
    monkeypatch.setattr(trial, "try_bundle", refuse)
    assert main(command.replace("FOLDER", str(photos)).split()) == 2
    assert "captioner: it was tried" in capsys.readouterr().err
