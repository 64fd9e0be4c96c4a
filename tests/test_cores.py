"""How many cores there are: those of the machine, or what the container may use of them."""

from pathlib import Path

import pytest

from captioner import cores


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a control group on a machine with eight cores."""
    monkeypatch.setattr(cores, "_GROUP", tmp_path)
    monkeypatch.setattr(cores, "_machine_cores", lambda: 8)
    (tmp_path / "cpu").mkdir()
    return tmp_path


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
def test_the_limit_of_a_container_counts(group: Path, limit: str, expected: int | None) -> None:
    (group / "cpu.max").write_text(f"{limit}\n")
    assert cores.core_limit() == expected
    assert cores.available_cores() == (expected or 8)


@pytest.mark.parametrize(("quota", "expected"), [("-1", None), ("300000", 3)])
def test_the_older_files_of_linux_are_read_too(group: Path, quota: str, expected: int | None) -> None:
    (group / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (group / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cores.core_limit() == expected


def test_without_such_files_there_is_no_limit(group: Path) -> None:
    assert cores.core_limit() is None
    assert cores.available_cores() == 8


def test_a_limited_model_computes_with_as_many_threads(group: Path, tiny_bundle: Path) -> None:
    pytest.importorskip("onnxruntime")
    from captioner.model.bundle import Bundle
    from captioner.model.runtime import Runtime

    (group / "cpu.max").write_text("200000 100000\n")
    bundle = Bundle.load(tiny_bundle)
    assert Runtime(bundle, "cpu")._session_options().intra_op_num_threads == 2
    assert Runtime(bundle, "cpu", lanes=None).lanes == 2
    assert Runtime(bundle, "cpu", threads=3)._session_options().intra_op_num_threads == 3
