"""Nothing leaves the machine: dependencies that report their use are told not to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "cat.jpg"
_VARIABLE = "ORT_DISABLE_TELEMETRY"


def run(*command: str, cache: Path) -> None:
    """Run a command as a user does who has set nothing, with a cache folder of its own."""
    environment = {name: value for name, value in os.environ.items() if name != _VARIABLE}
    result = subprocess.run(
        command, env={**environment, "XDG_CACHE_HOME": str(cache)}, capture_output=True, timeout=300
    )
    assert result.returncode == 0, result.stderr


def left_by_telemetry(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if "Microsoft" in path.parts]


def test_onnx_runtime_keeps_no_identifier_of_the_device(tiny_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    caption = ("-m", "captioner", "caption", str(EXAMPLE), "--model", str(tiny_bundle), "--device", "cpu")
    run(sys.executable, *caption, cache=tmp_path)
    assert list(tmp_path.iterdir()) and not left_by_telemetry(tmp_path)


def test_nor_do_libraries_that_import_it_and_child_processes(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    child = "subprocess.run([sys.executable, '-c', 'import onnxruntime'], check=True)"
    run(sys.executable, "-c", f"import captioner, onnxruntime, subprocess, sys; {child}", cache=tmp_path)
    assert not left_by_telemetry(tmp_path)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_no_name_is_looked_up_and_nobody_is_called(tiny_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "photos").mkdir()
    shutil.copy(EXAMPLE, tmp_path / "photos")
    batch = ("batch", str(tmp_path / "photos"), "-o", str(tmp_path / "captions.jsonl"))
    command = (sys.executable, "-m", "captioner", *batch, "--model", str(tiny_bundle), "--device", "cpu")
    trace = tmp_path / "trace"
    strace = ("strace", "-f", "-qq", "-e", "trace=socket,socketpair", "-o", str(trace))
    run(*strace, *command, cache=tmp_path / "cache")
    assert "AF_UNIX" in trace.read_text()  # the sockets of decoding processes: the trace works
    assert "AF_INET" not in trace.read_text()
