"""The package of the large model, built and installed offline with a small bundle in place of its own."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from captioner.captioner import Captioner
from captioner.cli.main import main
from captioner.model.installed import installed_models

PACKAGE = Path(__file__).parents[2] / "models" / "large"


@pytest.fixture
def installed(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The site folder into which the package is installed."""
    pytest.importorskip("hatchling")
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("bundle"))
    shutil.copytree(tiny_bundle, source / "captioner_large" / "bundle")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    return site


def test_the_installed_model_captions_by_its_name(
    installed: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert installed_models()["large"] == installed / "captioner_large" / "bundle"
    photo = str(tiny_bundle.parents[2] / "examples" / "cat.jpg")
    captioner = Captioner.load("large", device="cpu")
    assert main(["caption", photo, "--model", "large", "--json"]) == 0
    assert captioner.bundle.identity in capsys.readouterr().out
    assert main(["model", "list"]) == 0
    assert "\nlarge\t" in capsys.readouterr().out
    assert main(["model", "verify", "large"]) == 0


def test_it_promises_one_model() -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"] == {"captioner.models": {"large": "captioner_large:bundle"}}
