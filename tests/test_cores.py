"""Cores and memory: those of the machine, or what a container or a service may use of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from captioner import control_groups, cores
from captioner.memory import available_memory

Group = Callable[..., None]


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    """Writes files of control groups, as on a machine with eight cores; `own` names those of the process."""
    (tmp_path / "own").write_text("0::/\n")
    monkeypatch.setattr(control_groups, "ROOT", tmp_path / "groups")
    monkeypatch.setattr(control_groups, "OWN", tmp_path / "own")
    monkeypatch.setattr(cores, "machine_cores", lambda: 8)

    def write(files: dict[str, str], own: str = "0::/") -> None:
        (tmp_path / "own").write_text(f"{own}\n")
        for name, text in files.items():
            path = tmp_path / "groups" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")

    return write


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000", None),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("20000 100000", 1),
        ("1600000 100000", None),
    ],
)
def test_the_limit_of_a_container_counts(group: Group, limit: str, expected: int | None) -> None:
    group({"cpu.max": limit})
    assert cores.core_limit() == expected
    assert cores.available_cores() == (expected or 8)


@pytest.mark.parametrize(("quota", "expected"), [("-1", None), ("300000", 3)])
def test_the_older_files_of_linux_are_read_too(group: Group, quota: str, expected: int | None) -> None:
    group({"cpu/cpu.cfs_quota_us": quota, "cpu/cpu.cfs_period_us": "100000"})
    assert cores.core_limit() == expected


@pytest.mark.parametrize(
    ("own", "files"),
    [
        ("0::/system.slice/captioner.service", {"system.slice/captioner.service/cpu.max": "300000 100000"}),
        ("0::/jobs/7/step", {"jobs/7/cpu.max": "300000 100000", "jobs/7/step/cpu.max": "max 100000"}),
        ("0::/jobs/7", {"jobs/cpu.max": "500000 100000", "jobs/7/cpu.max": "300000 100000"}),
        ("0::/a", {"unified/a/cpu.max": "300000 100000"}),
        (
            "5:memory:/other\n4:cpu,cpuacct:/a:b",
            {"cpu/a:b/cpu.cfs_quota_us": "300000", "cpu/a:b/cpu.cfs_period_us": "100000"},
        ),
        ("0::/docker/of-the-host", {"cpu.max": "300000 100000"}),
        ("0::/../outside", {"cpu.max": "300000 100000"}),
    ],
)
def test_the_limits_of_its_own_group_and_of_those_around_it_count(
    group: Group, own: str, files: dict[str, str]
) -> None:
    group(files, own)
    assert cores.core_limit() == 3


def test_without_such_files_there_is_no_limit(group: Group) -> None:
    assert cores.core_limit() is None
    assert cores.available_cores() == 8


def test_memory_is_that_of_the_lowest_limit(group: Group) -> None:
    whole = available_memory()
    assert whole is not None and whole > 2**30
    group({"a.service/memory.max": "max", "memory.max": str(2**29)}, "0::/a.service")
    assert available_memory() == 2**29
    group({"a.service/memory.high": str(2**28)}, "0::/a.service")
    assert available_memory() == 2**28
    group({"memory/b/memory.limit_in_bytes": str(2**27)}, "3:memory:/b")
    assert available_memory() == 2**27


def test_a_limited_model_computes_with_as_many_threads(group: Group, tiny_bundle: Path) -> None:
    pytest.importorskip("onnxruntime")
    from captioner.model.bundle import Bundle
    from captioner.model.runtime import Runtime

    group({"cpu.max": "200000 100000"})
    bundle = Bundle.load(tiny_bundle)
    assert Runtime(bundle, "cpu")._session_options().intra_op_num_threads == 2
    assert Runtime(bundle, "cpu", lanes=None).lanes == 2
    assert Runtime(bundle, "cpu", threads=3)._session_options().intra_op_num_threads == 3
