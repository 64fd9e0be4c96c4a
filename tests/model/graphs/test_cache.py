"""Optimised graphs in the user's cache: used where they can be, and done without where they cannot."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from captioner.captioner import Captioner
from captioner.model.graphs import cache
from captioner.model.graphs.cache import CHECKSUMS, GRAPH, MOST_ENTRIES, WEIGHTS, GraphCache, user_folder

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the user; returns the folder of graphs, which does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "captioner" / "graphs"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each session that is made, whether ONNX Runtime optimised its graph."""
    sessions, found = onnxruntime.InferenceSession, []

    def make(graph: Any, *rest: Any, **named: Any) -> Any:
        session = sessions(graph, *rest, **named)
        found.append(isinstance(graph, bytes))
        return session

    monkeypatch.setattr(onnxruntime, "InferenceSession", make)
    return found


def captions(bundle: Path) -> list[Any]:
    found = Captioner.load(bundle, device="cpu", threads=1).caption_pixels(PIXELS)
    return [(one.text, one.log_prob, [word.attention.tolist() for word in one.words]) for one in found]


def entries(home: Path) -> list[Path]:
    return sorted(home.iterdir())


def test_a_second_start_optimises_nothing_and_computes_the_very_same(home, tiny_bundle, built) -> None:
    first = captions(tiny_bundle)
    assert built == [True, True]
    assert captions(tiny_bundle) == first
    assert built == [True, True, False, False]
    for entry in entries(home):
        assert {file.name for file in entry.iterdir()} <= {GRAPH, WEIGHTS, CHECKSUMS}
        assert entry.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("file", [GRAPH, WEIGHTS, CHECKSUMS])
@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: data[:-9] + b"?" + data[-8:]]
)
def test_what_is_damaged_is_made_anew(
    home: Path, tiny_bundle: Path, built: list[bool], file: str, damage: Callable[[bytes], bytes]
) -> None:
    first = captions(tiny_bundle)
    for entry in entries(home):
        (entry / file).write_bytes(damage((entry / file).read_bytes()))
    assert captions(tiny_bundle) == first
    assert captions(tiny_bundle) == first
    assert built == [True, True, True, True, False, False]


def test_a_graph_that_cannot_be_loaded_is_done_without(home, tiny_bundle, built, monkeypatch) -> None:
    """Its checksum is right: it was written so."""
    first = captions(tiny_bundle)
    for entry in entries(home):
        (entry / GRAPH).write_bytes(b"no graph")
        sums = cache._checksums(entry)
        (entry / CHECKSUMS).write_text(cache.json.dumps(sums))
    assert captions(tiny_bundle) == first
    assert built == [True, True, True, True]


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, tiny_bundle, built, monkeypatch) -> None:
    (tmp_path / "captioner").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert captions(tiny_bundle) == captions(tiny_bundle)
    assert built == [True] * 4


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_cache_that_others_can_write_to_is_not_trusted(home, tiny_bundle, built) -> None:
    first = captions(tiny_bundle)
    home.chmod(0o777)
    assert captions(tiny_bundle) == first
    assert built == [True] * 4 and len(entries(home)) == 2


def test_starts_at_the_same_time_leave_one_graph_of_each(home, tiny_bundle) -> None:
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(captions, [tiny_bundle] * 4)
    assert all(other == first for other in others)
    assert len(entries(home)) == 2


def test_the_graphs_used_last_are_kept(tmp_path: Path) -> None:
    cache = GraphCache(tmp_path / "graphs")

    def build(place: Path | None) -> str:
        assert place is not None
        (place / GRAPH).write_text("graph")
        return "built"

    def session(number: int) -> str:
        return str(cache.session(str(number), build, lambda path: path.read_text()))

    for number in range(MOST_ENTRIES):
        assert session(number) == "built"
    for entry in entries(tmp_path / "graphs"):
        os.utime(entry, (1, 1))
    assert session(0) == "graph"  # has been used now
    assert session(MOST_ENTRIES) == "built"
    assert len(entries(tmp_path / "graphs")) == MOST_ENTRIES
    assert session(0) == "graph"


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="other systems have other folders")
def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_folder() == tmp_path / "captioner" / "graphs"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")  # is to be ignored, by the specification
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_folder() == tmp_path / ".cache" / "captioner" / "graphs"
