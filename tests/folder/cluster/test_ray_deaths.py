"""Nothing is lost when an actor, the driver or a node of a Ray cluster dies."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.clusters import answers, find_child, kill, node, rows_of, start_captioner, wait_long
from support.patience import free_port, wait_until
from support.serving import make_image

from captioner.cli.main import main

parquet = pytest.importorskip("pyarrow.parquet")

PATIENT_RAY = {
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "of-this-test",
}


@pytest.mark.timeout(1500)
def test_an_actor_and_the_driver_may_die(tmp_path: Path, tiny_bundle: Path) -> None:
    pytest.importorskip("ray")
    root, out, local = tmp_path / "photos", tmp_path / "out", tmp_path / "local.jsonl"
    root.mkdir()
    for number in range(24):
        (root / f"{number}.png").write_bytes(make_image(number))
    (root / "broken.png").write_bytes(b"no image")
    model = ["--model", str(tiny_bundle)]
    ray = ["batch", str(root), "-o", str(out), "--engine", "ray", "--shard-size", "4", *model]
    driver = start_captioner(ray)
    wait_until(lambda: out.is_dir() and any(out.glob("part-*")))
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    kept = set(out.glob("part-*"))
    for path in kept:
        parquet.read_table(path)  # whole
    again = start_captioner(ray)
    actor = wait_until(lambda: find_child(again.pid, "ShardCaptioner"))
    os.kill(actor, signal.SIGKILL)
    _, errors = again.communicate(timeout=600)
    assert again.returncode == 1, errors
    assert "Traceback" not in errors
    assert kept <= set(out.glob("part-*"))
    rows = [row for path in out.glob("part-*") for row in parquet.read_table(path).to_pylist()]
    main(["batch", str(root), "-o", str(local), "--device", "cpu", *model])
    expected = {r["image"]: r.get("caption") for r in map(json.loads, local.read_text().splitlines())}
    assert len(rows) == 25 and {row["image"]: row["caption"] for row in rows} == expected


@pytest.mark.timeout(1500)
def test_one_of_two_nodes_may_die(tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes started as on a real cluster; all processes of the second are killed while it captions."""
    pytest.importorskip("ray")
    for name, value in PATIENT_RAY.items():
        monkeypatch.setenv(name, value)
    root, out = tmp_path / "photos", tmp_path / "out"
    root.mkdir()
    for number in range(96):
        (root / f"{number}.png").write_bytes(make_image(number))
    port = free_port()
    with ExitStack() as stack:
        head = ["--head", "--port", str(port), "--num-cpus", "2", "--include-dashboard", "0"]
        stack.enter_context(node(*head))
        wait_long(lambda: answers(port), "the head listens")
        second = stack.enter_context(node("--address", f"127.0.0.1:{port}", "--num-cpus", "1"))
        wait_long(lambda: find_child(second, "raylet/raylet"), "the second node runs")
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        flags = ["--engine", "ray", "--shard-size", "2", "--model", str(tiny_bundle)]
        driver = start_captioner(["batch", str(root), "-o", str(out), *flags])
        stack.callback(driver.kill)
        wait_long(lambda: out.is_dir() and any(out.glob("part-*")), "the first part")
        wait_long(lambda: find_child(second, "ShardCaptioner"), "the second node has an actor")
        kill(second)
        done = len(list(out.glob("part-*")))
        _, said = driver.communicate(timeout=900)
    assert driver.returncode == 0, said
    assert done < len(list(out.glob("part-*"))), "it was killed too late"
    assert sorted(rows_of(out)) == sorted(path.name for path in root.iterdir())
    assert all(row["caption"] for row in rows_of(out).values())
