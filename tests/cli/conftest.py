"""A small model, the command that captions with it, and a run of training."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.squares_run import data, run  # noqa: F401

from captioner.captioner import Captioner
from captioner.cli.main import main


@pytest.fixture(scope="module")
def captioner(tiny_bundle: Path) -> Captioner:
    return Captioner.load(tiny_bundle, device="cpu")


@pytest.fixture
def caption(tiny_bundle: Path) -> object:
    """Runs the command in this process; returns its exit status."""
    return lambda *arguments: main(["caption", "--model", str(tiny_bundle), "--device", "cpu", *arguments])
