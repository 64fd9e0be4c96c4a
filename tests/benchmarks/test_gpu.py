"""The command for a GPU runs from end to end on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="an epoch is trained with PyTorch")
GPU = Path(__file__).parents[2] / "benchmarks" / "gpu" / "measure.py"
CHECKS = ["providers", "parity", "broken", "protocols"]
SPEED = ["throughput", "encoder", "parts", "lanes", "binding", "service", "rate"]
SECTIONS = [*CHECKS, *SPEED, "pytorch", "training"]


@pytest.mark.timeout(900)  # it starts many processes
def test_every_check_holds_on_a_cpu(tiny_bundle: Path, tmp_path: Path) -> None:
    results = tmp_path / "gpu.json"
    flags = ["--device", "cpu", "--model", tiny_bundle, "--json", results]
    done = subprocess.run([sys.executable, GPU, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(results.read_text())
    assert list(found["sections"]) == SECTIONS and found["holds"] and all(found["holds"].values())
    assert "### Checks" in done.stdout and "| sessions run on CPUExecutionProvider | yes |" in done.stdout


@pytest.mark.timeout(600)
def test_a_section_that_fails_fails_the_command_and_the_others_are_measured(tiny_bundle: Path) -> None:
    flags = ["--device", "cuda:77", "--quick", "--model", tiny_bundle, "--only", "providers", "broken"]
    done = subprocess.run([sys.executable, GPU, *flags], capture_output=True, text=True)
    assert done.returncode == 1 and "providers: DeviceError" in done.stdout
    assert "### CUDA that cannot be used" in done.stdout


@pytest.mark.timeout(600)
def test_of_a_traceback_of_the_server_only_the_last_line_is_kept(tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "grpc_reflection" / "v1alpha").mkdir(parents=True)  # grpc itself imports the outer one
    (tmp_path / "grpc_reflection" / "v1alpha" / "__init__.py").write_text("1/0")
    (tmp_path / "grpc_reflection" / "__init__.py").touch()
    flags = ["--device", "cpu", "--model", tiny_bundle, "--only", "protocols"]
    done = subprocess.run(
        [sys.executable, GPU, *flags],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    said = "the server did not come to serving: ZeroDivisionError: division by zero"
    assert done.returncode == 1 and f"| protocols: SystemExit: {said} | **no** |" in done.stdout
    assert "Traceback" not in done.stdout


def test_results_of_several_commands_are_written_together(tiny_bundle: Path, tmp_path: Path) -> None:
    flags = ["--device", "cpu", "--model", tiny_bundle, "--only"]
    files = []
    for section in ("providers", "encoder"):
        files.append(tmp_path / f"{section}.json")
        command = [sys.executable, GPU, *flags, section, "--json", files[-1]]
        subprocess.run(command, check=True, capture_output=True)
    document = tmp_path / "performance.md"
    document.write_text("before\n<!-- gpu -->\nyesterday\n<!-- /gpu -->\nafter\n")
    command = [sys.executable, GPU, "--results", *files, "--write", document]
    subprocess.run(command, check=True, capture_output=True)
    text = document.read_text()
    assert text.startswith("before") and text.endswith("after\n") and "yesterday" not in text
    assert "### Where the sessions run" in text and "### Beside the encoder alone" in text
