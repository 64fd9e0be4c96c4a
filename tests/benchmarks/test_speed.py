"""The benchmark of speed runs from end to end; what it would measure is not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEED = ROOT / "benchmarks" / "speed.py"
ROWS = ("folder", "photo", "large", "callers", "start", "servers")
SECTIONS = ("encoder", "pipeline", "lanes", "profile", "serving", "cost")
MAYBE = ("eager", "pytorch", "peers")
"""Left out where they are not installed, or the model has no weights for them."""
YARDSTICK = 'print("batch 32: 2.00 s for 1,000 images")\nprint("batch 1: 4.00 s for 1,000 images")\n'


def speed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SPEED, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def results(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speed")
    yardstick = folder / "yardstick.py"
    yardstick.write_text(YARDSTICK)
    flags = ["--quick", "--model", tiny_bundle, "--yardstick", yardstick]
    named = ["--only", *ROWS, *SECTIONS, *MAYBE]
    speed(*flags, *named, "--json", folder / "results.json", "--plot", folder / "plot.png")
    return folder / "results.json"


@pytest.mark.timeout(900)  # it starts many processes
def test_everything_is_measured_or_named_as_left_out(results: Path) -> None:
    found = json.loads(results.read_text())
    left_out = {line.partition(":")[0] for line in found["skipped"]}
    assert left_out.isdisjoint((*ROWS, *SECTIONS))
    for name in (*SECTIONS, *MAYBE[1:]):
        tables = found["sections"][name]
        assert name in left_out or (tables and all(table["title"] and table["rows"] for table in tables))
    [rows] = found["sections"]["rows"]
    beside = {row["what"]: row["compared with"] for row in rows["rows"]}
    assert beside["8 photos of 224 x 224 by `captioner batch`, float32, lanes: 1"] == "0.016 s"
    assert beside["one photo, greedy, float32"] == "4 ms"
    [encoder] = found["sections"]["encoder"]
    assert encoder["rows"][0] == {
        "graph": "yardstick, float32",
        "batch 1": 4.0,
        "batch 32": 2.0,
        "ratio, batch 1": 1.0,
        "ratio, batch 32": 1.0,
    }
    [_, latency] = found["sections"]["serving"]
    assert latency["rows"][0]["server"] == "captioner serve" and not latency["rows"][0]["failed"]


@pytest.mark.timeout(900)
def test_results_are_written_between_the_markers_of_a_document(results: Path, tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text("before\n<!-- speed -->\nlast time\n<!-- /speed -->\nafter\n")
    shown = speed("--results", results, "--write", document, "--markdown").stdout
    text = document.read_text()
    assert text == f"before\n<!-- speed -->\n\n{shown}\n<!-- /speed -->\nafter\n"
    assert "python benchmarks/speed.py --yardstick yardstick.py" in text
    assert "### Encoder alone, ms an image" in text and "last time" not in text


def test_sections_that_are_not_there_are_refused() -> None:
    done = subprocess.run([sys.executable, SPEED, "--only", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2 and "encoder" in done.stderr
