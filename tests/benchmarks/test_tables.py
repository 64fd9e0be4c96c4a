"""The commands whose tables stand in the docs run from end to end; what they measure is not looked at."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import child_environment
from support.serving import make_image

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "sizing": ("serving/sizing.py", "--minutes", "0", "--cores", "1"),
    "tracing": ("serving/tracing.py", "--rounds", "1", "--seconds", "1", "--clients", "2"),
    "cost": ("batch_cost.py", "PHOTOS", "--device", "cpu", "--seconds", "0.1"),
}
ROWS = {"sizing": 1, "tracing": 2, "cost": 9}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_writes_its_table_between_the_markers_of_a_document(name, tiny_bundle, tmp_path) -> None:
    if name == "tracing":
        pytest.importorskip("opentelemetry.sdk")
    photos, document = tmp_path / "photos", tmp_path / "document.md"
    photos.mkdir()
    (photos / "photo.png").write_bytes(make_image(1))
    document.write_text(f"before\n<!-- {name} -->\nlast time\n<!-- /{name} -->\nafter\n")
    script, *flags = (str(photos) if word == "PHOTOS" else word for word in COMMANDS[name])
    command = [sys.executable, ROOT / "benchmarks" / script, *flags]
    command += ["--model", tiny_bundle, "--markdown", document]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=child_environment())
    expected = {0, 1} if name == "tracing" else {0}  # 1: beside a model as small as this, traces cost much
    assert done.returncode in expected, done.stderr
    text = document.read_text()
    assert re.match(rf"before\n<!-- {name} -->\n\nMeasured on .+\n\n\|", text)
    assert text.count("\n|") == 2 + ROWS[name]
    assert "last time" not in text and text.endswith(f"<!-- /{name} -->\nafter\n")


@pytest.mark.parametrize(
    ("name", "path"), [("sizing", "operations.md"), ("tracing", "operations.md"), ("cost", "cluster.md")]
)
def test_the_docs_have_a_place_for_it_and_name_the_command(name: str, path: str) -> None:
    text = (ROOT / "docs" / path).read_text()
    assert 0 < text.find(f"<!-- {name} -->") < text.find(f"<!-- /{name} -->")
    assert re.search(
        rf"^    python benchmarks/{COMMANDS[name][0]} .*--markdown docs/{path}", text, re.MULTILINE
    )
