"""The command for a GPU runs from end to end on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="an epoch is trained with PyTorch")
GPU = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
SECTIONS = ["providers", "parity", "broken", "throughput", "service", "training"]


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
