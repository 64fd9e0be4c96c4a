"""Batches over a local Ray: the same records, and nothing lost when an actor or the driver dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processes import child_environment
from support.serving import make_image

from captioner.cli.main import main
from captioner.errors import DataError
from captioner.folder.items import Found
from captioner.folder.shards import Shard, UriSource, cut

parquet = pytest.importorskip("pyarrow.parquet")


def test_shards_hold_each_image_once_and_change_little() -> None:
    found = [Found(f"{number}.jpg", b"", f"{number}-1") for number in range(1000)]
    shards = cut(found, "model", 100)
    assert sorted(one.name for shard in shards for one in shard.found) == sorted(one.name for one in found)
    assert len(shards) == 16 and max(len(shard.found) for shard in shards) < 120
    files = {shard.file for shard in shards}
    assert {shard.file for shard in cut(found[::-1], "model", 100)} == files
    more = {shard.file for shard in cut([*found, Found("new.jpg", b"", "1-1")], "model", 100)}
    assert len(files - more) == 1
    assert not files & {shard.file for shard in cut(found, "other model", 100)}
    assert Shard.from_json(shards[0].to_json()).found[0].name == shards[0].found[0].name


def test_places_that_are_not_there(tmp_path: Path) -> None:
    for place in (str(tmp_path / "missing"), "nosuchscheme://bucket/x"):
        with pytest.raises(DataError):
            list(UriSource(place).find())


@pytest.mark.timeout(600)
def test_an_actor_and_the_driver_may_die(tmp_path: Path, tiny_bundle: Path) -> None:
    pytest.importorskip("ray")
    root, out, local = tmp_path / "photos", tmp_path / "out", tmp_path / "local.jsonl"
    root.mkdir()
    for number in range(24):
        (root / f"{number}.png").write_bytes(make_image(number))
    (root / "broken.png").write_bytes(b"no image")
    model = ["--model", str(tiny_bundle)]
    ray = ["batch", str(root), "-o", str(out), "--engine", "ray", "--shard-size", "4", *model]
    driver = _start(ray)
    _wait(lambda: out.is_dir() and any(out.glob("part-*")))
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    kept = set(out.glob("part-*"))
    for path in kept:
        parquet.read_table(path)  # whole
    again = _start(ray)
    actor = _wait(lambda: _find_child(again.pid, "ShardCaptioner"))
    os.kill(actor, signal.SIGKILL)
    _, errors = again.communicate(timeout=400)
    assert again.returncode == 1, errors
    assert "Traceback" not in errors
    assert kept <= set(out.glob("part-*"))
    rows = [row for path in out.glob("part-*") for row in parquet.read_table(path).to_pylist()]
    main(["batch", str(root), "-o", str(local), "--device", "cpu", *model])
    expected = {r["image"]: r.get("caption") for r in map(json.loads, local.read_text().splitlines())}
    assert len(rows) == 25 and {row["image"]: row["caption"] for row in rows} == expected


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    environment = {**child_environment(), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "captioner", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def _wait(condition, timeout_s: float = 240):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def _find_child(driver: int, word: str) -> int | None:
    """A process that descends from `driver`, with `word` in its command line."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            names[int(folder.name)] = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
    for pid, name in names.items():
        above = parents.get(pid)
        while above and above != driver:
            above = parents.get(above)
        if above == driver and word in name:
            return pid
    return None
