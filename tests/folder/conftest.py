"""Folders of small photos, and the command run on them with the tiny model."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import child_environment
from support.serving import make_image

from captioner.cli.main import main

COUNT = 90
"""Three batches, the last of them not full."""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos in folders, two of which hold files of the same name, and a broken one."""
    root = tmp_path / "photos"
    for number in range(COUNT - 1):
        path = root / f"day{number % 3}" / f"{number // 3:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_image(number))
    (root / "broken.jpg").write_bytes(b"\xff\xd8\xff but no more")
    return root


@pytest.fixture
def few(tmp_path: Path) -> Path:
    root = tmp_path / "few"
    for name in ("a.jpg", "b/c.jpg"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_image(len(name), format="JPEG"))
    return root


@pytest.fixture
def calibrated(copy: Path) -> Path:
    """The tiny bundle with a calibration."""
    from captioner.model.bundle import change_manifest

    change_manifest(copy, {"confidence": {"slope": 50, "intercept": 5, "event": "a good one"}})
    return copy


@pytest.fixture
def batch(tiny_bundle: Path) -> Callable[..., int]:
    """Runs the command in this process; returns its exit status."""
    model = ["--model", str(tiny_bundle), "--device", "cpu", "--threads", "1"]
    return lambda *arguments: main(["batch", *map(str, arguments), *model])


@pytest.fixture
def start_batch(tiny_bundle: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts the command as a process of its own."""
    model = ["--model", str(tiny_bundle), "--device", "cpu", "--threads", "1"]

    def start(*arguments: object, as_anybody: bool = False, before: str = "") -> subprocess.Popen[str]:
        """With `as_anybody` permissions hold for it even if the tests are run by root. `before` is a program
        in Python that it runs first."""
        program = f"{before}\nimport sys\nfrom captioner.cli.main import main\nsys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", program, "batch", *map(str, arguments), *model]
        if as_anybody and os.geteuid() == 0:
            if shutil.which("setpriv") is None:
                pytest.skip("root may do everything, and there is no setpriv to take that away")
            command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--", *command]
        environment = {**child_environment(), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)

    return start
