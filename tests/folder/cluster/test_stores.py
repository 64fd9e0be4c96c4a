"""Folders in object stores, on real servers of their protocols, and one run at a time on each."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stores import gs_server, s3_server

from captioner.errors import DataError, ImageTooLargeError, ImageUnreadableError, OptionsError, OutputError
from captioner.folder.cluster import locks
from captioner.folder.cluster.locks import hold
from captioner.folder.cluster.parts import PartFolder
from captioner.folder.outputs.options import OutputOptions
from captioner.folder.outputs.parquet import write_parquet
from captioner.folder.sources.selection import Selection
from captioner.folder.sources.uris import UriSource, open_place
from captioner.folder.stores import open_filesystem, shown

pytest.importorskip("pyarrow.parquet")
pytest.importorskip("moto")
pytest.importorskip("gcp_storage_emulator")


@pytest.fixture(scope="module")
def stores() -> Iterator[dict[str, str]]:
    with s3_server() as s3, gs_server() as gs:
        yield {"s3": f"{s3}/{{}}", "gs": gs, "memory": "memory://{}"}


@pytest.fixture(params=["s3", "gs", "memory", "file", "path"])
def place(request, tmp_path: Path, stores) -> str:
    """An empty folder, as a path or a URI."""
    if request.param in ("file", "path"):
        return f"file://{tmp_path}/place" if request.param == "file" else str(tmp_path / "place")
    return stores[request.param].format(f"test-{uuid.uuid4().hex}")


def upload(place: str, files: dict[str, bytes]) -> None:
    filesystem, root = open_filesystem(place)
    for name, content in files.items():
        filesystem.create_dir(os.path.dirname(f"{root}/{name}"), recursive=True)  # noqa: PTH120
        with filesystem.open_output_stream(f"{root}/{name}") as stream:
            stream.write(content)


def test_images_are_found_and_read(place: str) -> None:
    upload(place, {"a.jpg": b"one", "b c/d é.PNG": b"two", ".hidden.jpg": b"no", "notes.txt": b"no"})
    source = open_place(place)
    found = {one.name: one for one in source.find()}
    assert set(found) == {"a.jpg", "b c/d é.PNG"}
    assert found["a.jpg"].stamp.startswith("3-")
    assert source.read(found["b c/d é.PNG"].locator, 10)[0] == b"two"
    with pytest.raises(ImageTooLargeError):
        source.read(found["a.jpg"].locator, 2)
    with pytest.raises(ImageUnreadableError, match=r"^No such file or directory$"):
        source.read(b"gone.jpg", 10)
    assert [one.name for one in open_place(place, Selection(patterns=["*.png"])).find()] == ["b c/d é.PNG"]


def test_a_list_of_images(place: str) -> None:
    upload(place, {"a.jpg": b"one", "b/c.jpg": b"two"})
    listed = list(open_place(place, names=["b/c.jpg", "gone.jpg", "b"]).find())
    assert [one.name for one in listed] == ["b/c.jpg", "gone.jpg", "b"]
    assert [one.problem for one in listed] == ["", "No such file or directory", "not a regular file"]
    assert {one.stamp for one in listed if not one.problem} <= {one.stamp for one in open_place(place).find()}


def test_places_that_are_not_there(place: str, tmp_path: Path) -> None:
    for missing in (place, "nosuchscheme://bucket/x"):
        with pytest.raises(DataError) as caught:
            list(open_place(missing).find())
        assert "\n" not in str(caught.value) and "secret" not in str(caught.value)
    with pytest.raises(OptionsError, match="not archives"):
        open_place(f"{shown(place)}.zip")


def test_secrets_are_not_printed() -> None:
    assert shown("s3://me:secret@bucket/x?region=us-east-1") == "s3://bucket/x"
    assert shown("/a/b?c@d") == "/a/b?c@d"


def test_parts_are_there_whole_and_counted(place: str) -> None:
    parts = PartFolder(place)
    assert parts.names() == set()
    parts.create()
    good, bad = (f"part-0000{n}-of-00002-{'0' * 16}.parquet" for n in range(2))
    content = io.BytesIO()
    failed = [{"image": "a", "error": {"code": code, "message": "m"}} for code in ("x", "low_confidence")]
    write_parquet(content, iter([*failed, {"image": "c", "caption": "d"}]), OutputOptions())
    parts.put(good, content.getvalue())
    parts.put(bad, content.getvalue()[:-9])
    parts.put("part-of-somebody-else.parquet", b"")
    assert parts.names() == {good, bad}
    assert parts.count_failed([good, bad]) == {good: {"x": 1, "low_confidence": 1}}
    assert parts.read(good) == content.getvalue() and parts.read("gone") is None
    parts.remove(good)
    parts.remove(good)
    assert parts.names() == {bad}


def test_one_run_at_a_time(place: str, monkeypatch) -> None:
    monkeypatch.setattr(locks, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(locks, "LEASE_S", 60.0)  # the live one is seen long before
    parts = PartFolder(place)
    parts.create()
    said: list[str] = []
    with (
        hold(parts, said.append),
        pytest.raises(OutputError, match="another run is writing this output"),
        hold(parts, said.append),
    ):
        pass
    with hold(parts, said.append):  # the first has let go
        pass
    assert len(said) == (parts.local is None)


DYING = """
import os, sys
from captioner.folder.cluster.locks import hold
from captioner.folder.cluster.parts import PartFolder
with hold(PartFolder(sys.argv[1]), print):
    os._exit(9)
"""


def test_a_dead_run_does_not_hold_an_output_for_ever(place: str, monkeypatch) -> None:
    monkeypatch.setattr(locks, "LEASE_S", 1.0)
    parts = PartFolder(place)
    parts.create()
    if parts.local is None:
        parts.put(".captioner-run-dead", b"7")
    else:
        assert subprocess.run([sys.executable, "-c", DYING, place]).returncode == 9
    with hold(parts, lambda _: None):
        pass
    assert parts.names(".captioner-run-") == set()


def test_a_store_that_does_not_answer(monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(DataError, match=r"^s3://bucket/x: "):
        list(UriSource("s3://me:secret@bucket/x?region=us-east-1").find())


def test_a_full_store_loses_nothing_of_what_is_there(tmp_path: Path, monkeypatch) -> None:
    parts = PartFolder(str(tmp_path))
    parts.put("note", b"old")
    monkeypatch.setattr("os.fsync", _no_space)
    with pytest.raises(OutputError, match="No space left on device"):
        parts.put("note", b"new")
    assert parts.read("note") == b"old" and [path.name for path in tmp_path.iterdir()] == ["note"]


def _no_space(_: int) -> None:
    raise OSError(28, "No space left on device")
