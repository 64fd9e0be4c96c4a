"""Batches over a local Ray: the same records, and nothing lost when an actor or the driver dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.patience import PATIENCE_S, free_port, wait_until
from support.processes import child_environment
from support.serving import make_image
from support.stores import gs_server, s3_server

from captioner.cli.main import main
from captioner.folder.items import Found
from captioner.folder.locks import hold
from captioner.folder.outputs.options import unchanged
from captioner.folder.shards import Shard, cut
from captioner.folder.stores import PartFolder, open_filesystem, open_place
from captioner.images.sources import DEFAULT_LIMITS
from captioner.options import CaptionOptions

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
    odd = Shard("part", (Found("latin-\udcfc.jpg", b"latin-\xfc.jpg", "1-1", "not a regular file"),))
    assert Shard.from_json(odd.to_json()) == odd


def test_copies_with_their_times_and_new_permissions_are_no_changes(tmp_path: Path) -> None:
    """A shard captions all its images again, without looking whether their content is new."""
    root, copy = tmp_path / "photos", tmp_path / "copy"
    root.mkdir()
    for number in range(3):
        (root / f"{number}.png").write_bytes(make_image(number))

    def files(place: Path) -> set[str]:
        listed = [one.name for one in place.iterdir()]
        found = list(open_place(str(place)).find())
        assert found == sorted(open_place(str(place), names=listed).find(), key=found.index)
        return {shard.file for shard in cut(found, "model", 100)}

    before = files(root)
    shutil.copytree(root, copy)  # keeps the times of modification, as cp -a and rsync -a do
    assert files(copy) == before
    (root / "0.png").chmod(0o600)
    assert files(root) == before
    os.utime(copy / "0.png")
    assert files(copy) != before


def test_an_actor_with_a_model_that_letterboxes(tmp_path: Path, letterboxed_bundle: Path) -> None:
    """Its maps differ in size from photo to photo."""
    from captioner.folder.ray_engine import Job, RayOptions, ShardCaptioner

    for name, size in (("tall.png", (20, 60)), ("wide.png", (60, 20))):
        Image.new("RGB", size, "teal").save(tmp_path / name)
    options, out = CaptionOptions(attention=True), tmp_path / "out"
    job = Job(
        str(tmp_path), str(out), str(letterboxed_bundle), options, DEFAULT_LIMITS, RayOptions(), unchanged
    )
    PartFolder(str(out)).create()
    found = (Found("tall.png", b"tall.png", "1-1"), Found("wide.png", b"wide.png", "1-1"))
    [done] = ShardCaptioner(job)({"shard": np.array([Shard("part.parquet", found).to_json()])})["problem"]
    assert json.loads(done) == ""
    rows = parquet.read_table(out / "part.parquet").to_pylist()
    assert rows[0]["rows"] > rows[0]["columns"] and rows[1]["rows"] < rows[1]["columns"]


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
    driver = _start(ray)
    wait_until(lambda: out.is_dir() and any(out.glob("part-*")))
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    kept = set(out.glob("part-*"))
    for path in kept:
        parquet.read_table(path)  # whole
    again = _start(ray)
    actor = wait_until(lambda: _find_child(again.pid, "ShardCaptioner"))
    os.kill(actor, signal.SIGKILL)
    _, errors = again.communicate(timeout=600)
    assert again.returncode == 1, errors
    assert "Traceback" not in errors
    assert kept <= set(out.glob("part-*"))
    rows = [row for path in out.glob("part-*") for row in parquet.read_table(path).to_pylist()]
    main(["batch", str(root), "-o", str(local), "--device", "cpu", *model])
    expected = {r["image"]: r.get("caption") for r in map(json.loads, local.read_text().splitlines())}
    assert len(rows) == 25 and {row["image"]: row["caption"] for row in rows} == expected


PATIENT_RAY = {
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "of-this-test",
}
"""Settings of Ray on a busy machine, where its processes start slowly; and the token that docs/cluster.md
asks for: without one, the two nodes may disagree on whether tokens are checked."""


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
        stack.enter_context(_node(*head))
        _wait_long(lambda: _answers(port), "the head listens")
        second = stack.enter_context(_node("--address", f"127.0.0.1:{port}", "--num-cpus", "1"))
        _wait_long(lambda: _find_child(second, "raylet/raylet"), "the second node runs")
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        flags = ["--engine", "ray", "--shard-size", "2", "--model", str(tiny_bundle)]
        driver = _start(["batch", str(root), "-o", str(out), *flags])
        stack.callback(driver.kill)
        _wait_long(lambda: out.is_dir() and any(out.glob("part-*")), "the first part")
        _wait_long(lambda: _find_child(second, "ShardCaptioner"), "the second node has an actor")
        _kill(second)
        done = len(list(out.glob("part-*")))
        _, said = driver.communicate(timeout=900)
    assert driver.returncode == 0, said
    assert done < len(list(out.glob("part-*"))), "it was killed too late"
    assert sorted(_rows(out)) == sorted(path.name for path in root.iterdir())
    assert all(row["caption"] for row in _rows(out).values())


def _wait_long(true: Callable[[], object], what: str) -> None:
    """As long as Ray may take to start on a busy machine."""
    wait_until(true, what, 4 * PATIENCE_S)


@contextmanager
def _node(*flags: str) -> Iterator[int]:
    """A node as `ray start` starts it, small; yields the id of a process that all of its own descend from."""
    small = ["--object-store-memory", "100000000", "--disable-usage-stats", "--block"]
    ports = [f"--{name}-port=0" for name in ("min-worker", "max-worker", "dashboard-agent-listen")]
    command = [Path(sys.executable).with_name("ray"), "start", *small, *ports, *flags]
    node = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=child_environment()
    )
    try:
        yield node.pid
    finally:
        _kill(node.pid)
        node.wait()


def _kill(pid: int) -> None:
    """Kill a process and all that descend from it."""
    for one in [pid, *_family(pid)]:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S):
        return True
    return False


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    for number in range(6):
        path = root / f"day{number % 2}" / f"{number // 2}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_image(number))
    (root / "broken.png").write_bytes(b"no image")
    (root / "out.png").symlink_to("/etc/hostname")
    (root / "loop").symlink_to(root)
    return root


@pytest.fixture
def ray_batch(tiny_bundle: Path) -> Callable[..., tuple[int, str]]:
    """Runs the command; returns its exit status and what it says. In a process of its own: Ray ends a driver
    whose cluster goes away."""
    pytest.importorskip("ray")
    flags = ["--engine", "ray", "--model", str(tiny_bundle)]

    def run(*arguments: object) -> tuple[int, str]:
        driver = _start(["batch", *map(str, arguments), *flags])
        _, errors = driver.communicate(timeout=600)
        assert "Traceback" not in errors
        return driver.returncode, "".join(
            line for line in errors.splitlines(True) if " core_worker.cc" not in line
        )

    return run


def _rows(out: str | Path) -> dict[str, dict]:
    filesystem, root = open_filesystem(str(out))
    parts = PartFolder(str(out)).names()
    rows = [
        r for part in parts for r in parquet.read_table(f"{root}/{part}", filesystem=filesystem).to_pylist()
    ]
    assert len(rows) == len({row["image"] for row in rows})
    return {row["image"]: row for row in rows}


@pytest.mark.timeout(1500)
def test_the_command_over_ray(photos, tmp_path, ray_batch, batch) -> None:
    out, local = tmp_path / "out", tmp_path / "local.parquet"
    assert batch(photos, "-o", local) == 1
    expected = {row["image"]: row for row in parquet.read_table(local).to_pylist()}
    assert len(expected) == 7
    status, said = ray_batch(
        photos, "-o", out, "--shard-size", "2", "--actors", "8"
    )  # more than there is room for
    assert status == 1, said
    assert "broken.png: not an image" in said and "7 images in all, 1 of them failed" in said
    assert _plain(_rows(out)) == _plain(expected)
    times = _times(out)
    assert len(times) > 1

    # What is done stays; what is damaged is made again, what somebody else wrote is left alone.
    damaged = min(times)
    (out / damaged).write_bytes((out / damaged).read_bytes()[:-20])
    (out / "part-00000-of-somebody-else.parquet").write_bytes(b"theirs")
    (out / ".part-left-over.partial").write_bytes(b"")
    status, said = ray_batch(photos, "-o", out, "--shard-size", "2")
    assert status == 1 and f"{damaged} is damaged, and is made again" in said
    changed = {name for name, time in _times(out).items() if times.get(name) != time}
    assert changed == {damaged} and _plain(_rows(out)) == _plain(expected)
    assert (out / "part-00000-of-somebody-else.parquet").read_bytes() == b"theirs"
    assert not list(out.glob(".part-*"))

    # All again, and once only.
    assert ray_batch(photos, "-o", out, "--shard-size", "2", "--overwrite")[0] == 1
    again = _times(out)
    assert not again.keys() & times.keys() and _plain(_rows(out)) == _plain(expected)
    assert ray_batch(photos, "-o", out, "--shard-size", "2")[0] == 1
    assert _times(out) == again

    with hold(PartFolder(str(out)), print):
        status, said = ray_batch(photos, "-o", out)
    assert status == 2 and "another run is writing this output" in said


@pytest.mark.timeout(1500)
def test_a_list_over_a_cluster_of_two_nodes(photos, tmp_path, ray_batch, monkeypatch) -> None:
    utils = pytest.importorskip("ray.cluster_utils")
    monkeypatch.setenv("PYTHONPATH", child_environment()["PYTHONPATH"])  # of the nodes
    listed = tmp_path / "list.txt"
    listed.write_text("day1/2.png\ngone.png\nday0/0.png\n")
    cluster = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        status, said = ray_batch(photos, "--files-from", listed, "-o", tmp_path / "out", "--shard-size", "1")
    finally:
        cluster.shutdown()
    assert status == 1, said
    assert {name: row["error_message"] for name, row in _rows(tmp_path / "out").items()} == {
        "day1/2.png": None,
        "gone.png": "No such file or directory",
        "day0/0.png": None,
    }


def test_ray_starts_here_reports_no_usage_and_its_messages_go_to_stderr(
    photos, tmp_path, tiny_bundle, monkeypatch, capsys
) -> None:
    from captioner.folder import ray_engine

    environment: dict[str, str] = {}

    class Ray:
        class exceptions:
            RayError = ConnectionError

        def is_initialized(self) -> bool:
            return False

        def init(self, address: str = "auto", **_: object) -> None:
            environment.update(os.environ, address=address)
            print("(raylet) a node has died")
            raise ConnectionError("no cluster")

    monkeypatch.setattr(ray_engine, "_import_ray", Ray)
    for name in ("RAY_ADDRESS", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "")  # so that it is as before at the end
        monkeypatch.delenv(name)
    places = [str(photos), "-o", str(tmp_path / "out"), "--model", str(tiny_bundle)]
    assert main(["batch", *places, "--engine", "ray"]) == 2
    printed, said = capsys.readouterr()
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"
    assert environment["address"] == "local"  # not a cluster that once ran on this machine
    assert printed == "" and "a node has died" in said


def test_a_run_says_when_nodes_have_gone(monkeypatch) -> None:
    from captioner.folder import ray_engine

    cluster, said, asked = {"CPU": 4.0, "GPU": 2.0}, [], threading.Event()

    class Ray:
        def cluster_resources(self) -> dict[str, float]:
            asked.set()
            return cluster

    def wait() -> None:
        for _ in range(2):  # what has been asked for is also dealt with
            asked.clear()
            assert asked.wait(PATIENCE_S)

    monkeypatch.setattr(ray_engine, "_WATCH_S", 0.01)
    settings = ray_engine.RayOptions(cpus_per_actor=2, gpus_per_actor=0.5)
    with ray_engine.watching(Ray(), 2, settings, said.append):
        for cpus in (4, 64, 3, 3, 4, 0):
            cluster["CPU"] = cpus
            wait()
        cluster.clear()
        wait()
    assert [line.partition(";")[0] for line in said] == [
        "the cluster has room for 1 of 2 actors",
        "the cluster has room for 0 of 2 actors",
    ]


@pytest.mark.timeout(1500)
def test_object_stores_over_ray(photos, tmp_path, ray_batch, batch) -> None:
    pytest.importorskip("moto")
    pytest.importorskip("gcp_storage_emulator")
    local = tmp_path / "local.parquet"
    assert batch(photos, "-o", local) == 1
    expected = {row["image"]: row for row in parquet.read_table(local).to_pylist()}
    with s3_server() as s3, gs_server() as gs:
        for place in (f"{s3}/{{}}", gs):
            filesystem, root = open_filesystem(place.format("photos"))
            for path in (path for path in photos.rglob("*.png") if not path.is_symlink()):
                with filesystem.open_output_stream(f"{root}/{path.relative_to(photos)}") as stream:
                    stream.write(path.read_bytes())
            source, out = place.format("photos"), place.format("captions")
            for done in (0, 7):
                status, said = ray_batch(source, "-o", out, "--shard-size", "4")
                assert status == 1 and f"{done} of 7 images are done already" in said
                assert _plain(_rows(out)) == _plain(expected)
            assert PartFolder(out).names(".captioner-run-") == set()
            status, line = ray_batch(place.format("nothing"), "-o", out)
            assert status == 2 and line.startswith("captioner: ") and "anonymous" not in line
            assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--server", "localhost:1"),
            "--server is not for --engine ray: its actors hold",
        ),
        (("--device", "cuda"), "--device is not for --engine ray: --gpus-per-actor says"),
        (("--format", "csv"), "--engine ray writes parquet, not csv"),
        (("--cpus-per-actor", "0"), "--cpus-per-actor must be above 0"),
        (("--gpus-per-actor", "1.5"), "--gpus-per-actor must be 0 to 1 or a whole number"),
        (("--files-from", "nothing.txt"), "--files-from: nothing.txt: No such file"),
    ],
)
def test_wrong_usage(photos, tmp_path, tiny_bundle, capsys, arguments, message) -> None:
    pytest.importorskip("ray")
    flags = ("-o", str(tmp_path / "out"), "--engine", "ray", "--model", str(tiny_bundle))
    assert main(["batch", str(photos), *flags, *arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line and line.startswith("captioner: ")


WITHOUT_A_MODEL = """
import sys
from captioner.folder.ray_engine import RayRun
from captioner.options import CaptionOptions
with RayRun(*sys.argv[1:], bundle="/gone", model="a@b", options=CaptionOptions(attention=False)) as run:
    list(run)
"""


def test_what_ends_a_run_is_one_line(photos, tmp_path, ray_batch, monkeypatch) -> None:
    out = tmp_path / "out"
    status, said = ray_batch(photos, "-o", out, "--cpus-per-actor", "4000")
    assert status == 2 and "too few for --cpus-per-actor 4000" in said.splitlines()[-1]
    command = [sys.executable, "-c", WITHOUT_A_MODEL, photos, out]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=child_environment())
    assert done.stderr.splitlines()[-1] == (
        "captioner.errors.OutputError: an actor gave up: /gone is not a model bundle: it does not exist; "
        "the same command resumes"
    )
    assert done.stderr.count("Traceback") == 1  # of this program
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    status, said = ray_batch(photos, "-o", out)
    assert status == 2
    assert said.splitlines()[-1] == (
        "captioner: no Ray answers at 127.0.0.1:1 (RAY_ADDRESS): Connection refused"
    )


def _plain(rows: dict[str, dict]) -> dict[str, dict]:
    """Without the last digits, which depend on the batch."""
    rounded = {
        name: {**row, "log_prob": row["log_prob"] and round(row["log_prob"], 4)} for name, row in rows.items()
    }
    return dict(sorted(rounded.items()))


def _times(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.glob("part-*-of-*-????????????????.parquet")}


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    environment = {**child_environment(), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "captioner", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def _find_child(process: int, word: str) -> int | None:
    """A process that descends from `process`, with `word` in its command line."""
    return next((pid for pid, command in _family(process).items() if word in command), None)


def _family(process: int) -> dict[int, str]:
    """The processes that descend from `process`, with their command lines."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(folder.name)] = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
    family: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in {process, *family}} - family:
        family |= more
    return {pid: commands[pid] for pid in family if pid in commands}
