"""Batches over a local Ray write the same records as those in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.clusters import rows_of, start_captioner
from support.patience import PATIENCE_S
from support.processes import child_environment
from support.serving import make_image
from support.stores import gs_server, s3_server

from captioner.cli.main import main
from captioner.folder.cluster.locks import hold
from captioner.folder.cluster.parts import PartFolder
from captioner.folder.cluster.shards import Shard
from captioner.folder.items import ListedImage
from captioner.folder.stores import open_filesystem
from captioner.options import CaptionOptions

parquet = pytest.importorskip("pyarrow.parquet")

WITHOUT_A_MODEL = """
import sys
from captioner.folder.cluster.actor import Job
from captioner.folder.cluster.run import RayRun
from captioner.options import CaptionOptions
uri, out = sys.argv[1:]
job = Job(uri=uri, out=out, bundle="/gone", options=CaptionOptions(attention=False))
with RayRun(job, model="a@b") as run:
    list(run)
"""


def test_an_actor_with_a_model_that_letterboxes(tmp_path: Path, letterboxed_bundle: Path) -> None:
    """Its maps differ in size from photo to photo."""
    from captioner.folder.cluster.actor import Job, ShardCaptioner

    for name, size in (("tall.png", (20, 60)), ("wide.png", (60, 20))):
        Image.new("RGB", size, "teal").save(tmp_path / name)
    options, out = CaptionOptions(attention=True), tmp_path / "out"
    job = Job(uri=str(tmp_path), out=str(out), bundle=str(letterboxed_bundle), options=options)
    PartFolder(str(out)).create()
    found = (ListedImage("tall.png", b"tall.png", "1-1"), ListedImage("wide.png", b"wide.png", "1-1"))
    [done] = ShardCaptioner(job)({"shard": np.array([Shard("part.parquet", found).to_json()])})["problem"]
    assert json.loads(done) == ""
    rows = parquet.read_table(out / "part.parquet").to_pylist()
    assert rows[0]["rows"] > rows[0]["columns"] and rows[1]["rows"] < rows[1]["columns"]


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
def ray_here(monkeypatch) -> None:
    """Actors work in this process, one shard after the other; all that Ray does otherwise is left out."""
    from captioner.folder.cluster import run as ray_run

    class Rows:
        def __init__(self, rows: list[dict], **_: object) -> None:
            self._rows = rows

        def map_batches(self, actor: type, *, fn_constructor_args: tuple, **_: object) -> Rows:
            work = actor(*fn_constructor_args)
            done = [work({name: np.array([value]) for name, value in row.items()}) for row in self._rows]
            return Rows([{name: values[0] for name, values in batch.items()} for batch in done])

        def iter_rows(self) -> Iterator[dict]:
            return iter(self._rows)

    context = SimpleNamespace(get_current=SimpleNamespace)
    ray = SimpleNamespace(
        is_initialized=lambda: True,
        cluster_resources=lambda: {"CPU": 1.0},
        exceptions=SimpleNamespace(RayError=ConnectionError),
        data=SimpleNamespace(from_items=Rows, ActorPoolStrategy=SimpleNamespace, DataContext=context),
    )
    monkeypatch.setattr(ray_run, "_import_ray", lambda: ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_captions_below_the_minimum_are_left_out(photos, tmp_path, calibrated, ray_here, capsys) -> None:
    """As they are without Ray."""
    flags = ["batch", str(photos / "day0"), "--model", str(calibrated), "--min-confidence", "0.999", "-o"]
    local, out = tmp_path / "local.parquet", str(tmp_path / "out")
    assert main([*flags, str(local), "--device", "cpu"]) == 0
    over_ray = [*flags, out, "--engine", "ray"]
    capsys.readouterr()
    assert main(over_ray) == 0
    said = capsys.readouterr().err
    assert "is below 0.999" not in said and "3 images in all, 0 of them failed" in said
    expected = {row["image"]: row["error_code"] for row in parquet.read_table(local).to_pylist()}
    assert {name: row["error_code"] for name, row in rows_of(out).items()} == expected
    times = _times(Path(out))
    for again in ([], ["--retry-failed"]):  # which would change nothing
        assert main([*over_ray, *again]) == 0
        said = capsys.readouterr().err
        assert "3 of 3 images are done already" in said and "3 images in all, 0 of them failed" in said
    assert _times(Path(out)) == times


def test_a_quiet_run_prints_failures_only(photos, tmp_path, calibrated, ray_here, capsys) -> None:
    flags = ["-o", str(tmp_path / "out"), "--engine", "ray", "--model", str(calibrated), "--quiet"]
    assert main(["batch", str(photos), *flags]) == 1
    printed, said = capsys.readouterr()
    assert printed == "" and said.startswith("captioner: broken.png: not an image") and said.count("\n") == 1
    assert main(["batch", str(photos / "day0"), *flags, "--min-confidence", "0.999"]) == 0
    assert capsys.readouterr().err == ""


@pytest.fixture
def ray_batch(tiny_bundle: Path) -> Callable[..., tuple[int, str]]:
    """Runs the command; returns its exit status and what it says. In a process of its own: Ray ends a driver
    whose cluster goes away."""
    pytest.importorskip("ray")
    flags = ["--engine", "ray", "--model", str(tiny_bundle)]

    def run(*arguments: object) -> tuple[int, str]:
        driver = start_captioner(["batch", *map(str, arguments), *flags])
        _, errors = driver.communicate(timeout=600)
        assert "Traceback" not in errors
        return driver.returncode, "".join(
            line for line in errors.splitlines(True) if " core_worker.cc" not in line
        )

    return run


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
    assert _plain(rows_of(out)) == _plain(expected)
    times = _times(out)
    assert len(times) > 1

    # What is done stays; what is damaged is made again, what somebody else wrote is left alone.
    damaged = min(times)
    (out / damaged).write_bytes((out / damaged).read_bytes()[:-20])
    (out / "part-00000-of-somebody-else.parquet").write_bytes(b"theirs")
    (out / f".captioner-{'0' * 16}.partial").write_bytes(b"")
    status, said = ray_batch(photos, "-o", out, "--shard-size", "2")
    assert status == 1 and f"{damaged} is damaged, and is made again" in said
    changed = {name for name, time in _times(out).items() if times.get(name) != time}
    assert changed == {damaged} and _plain(rows_of(out)) == _plain(expected)
    assert (out / "part-00000-of-somebody-else.parquet").read_bytes() == b"theirs"
    assert not list(out.glob("*.partial"))

    # All again, and once only.
    assert ray_batch(photos, "-o", out, "--shard-size", "2", "--overwrite")[0] == 1
    again = _times(out)
    assert not again.keys() & times.keys() and _plain(rows_of(out)) == _plain(expected)
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
    assert {name: row["error_message"] for name, row in rows_of(tmp_path / "out").items()} == {
        "day1/2.png": None,
        "gone.png": "No such file or directory",
        "day0/0.png": None,
    }


def test_ray_starts_here_reports_no_usage_and_its_messages_go_to_stderr(
    photos, tmp_path, tiny_bundle, monkeypatch, capsys
) -> None:
    from captioner.folder.cluster import run as ray_run

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

    monkeypatch.setattr(ray_run, "_import_ray", Ray)
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
    from captioner.folder.cluster import capacity
    from captioner.folder.cluster.options import RayOptions

    cluster, said, asked = {"CPU": 4.0, "GPU": 2.0}, [], threading.Event()

    class Ray:
        def cluster_resources(self) -> dict[str, float]:
            asked.set()
            return cluster

    def wait() -> None:
        for _ in range(2):  # what has been asked for is also dealt with
            asked.clear()
            assert asked.wait(PATIENCE_S)

    monkeypatch.setattr(capacity, "_WATCH_S", 0.01)
    settings = RayOptions(cpus_per_actor=2, gpus_per_actor=0.5)
    with capacity.watching(Ray(), 2, settings, said.append):
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
                assert _plain(rows_of(out)) == _plain(expected)
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
        (("--tls",), "--tls needs --server"),
        (("--device", "cuda"), "--device is not for --engine ray: --gpus-per-actor says"),
        (("--format", "csv"), "--engine ray writes parquet, not csv"),
        (("-o", "captions.jsonl"), "--engine ray writes parquet, not jsonl"),
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
