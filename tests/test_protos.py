"""The API's definition: linted, its stubs fresh, and guarded against changes that break callers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
BUF = shutil.which("buf", path=PATH)


@pytest.mark.skipif(not list(ROOT.glob("build/grpcio-tools*")), reason="run protos/generate.py once first")
@pytest.mark.skipif(BUF is None, reason="buf is not installed")
def test_stubs_are_fresh_and_the_definition_is_lint_free() -> None:
    command = [sys.executable, "protos/generate.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(BUF is None, reason="buf is not installed")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bytes image = 1;", "bytes image = 9;"),
        ("string text = 1;", "bytes text = 1;"),
        ("rpc GetModel", "rpc Model"),
    ],
)
def test_a_breaking_change_is_found(tmp_path: Path, old: str, new: str) -> None:
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    proto = tmp_path / "protos" / "captioner" / "v1" / "captioner.proto"
    assert old in proto.read_text()
    proto.write_text(proto.read_text().replace(old, new))
    command = [str(BUF), "breaking", "protos", "--against", "protos/baseline.binpb"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 100
