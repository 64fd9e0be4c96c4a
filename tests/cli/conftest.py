"""A small model, and the command that captions with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.captioner import Captioner
from captioner.cli.main import main


@pytest.fixture(scope="module")
def captioner(tiny_bundle: Path) -> Captioner:
    return Captioner.load(tiny_bundle, device="cpu")


@pytest.fixture
def caption(tiny_bundle: Path) -> object:
    """Runs the command in this process; returns its exit status."""
    return lambda *arguments: main(["caption", "--model", str(tiny_bundle), "--device", "cpu", *arguments])
