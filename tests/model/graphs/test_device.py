"""Options of CUDA, and where its libraries are looked for: ONNX Runtime looks beside its own package only."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from captioner.model.graphs.device import cuda_options, preload_cuda


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders on Python's path, of which the second has NVIDIA's wheels."""
    site, machine = tmp_path / "site", tmp_path / "machine"
    for folder in (site, machine / "nvidia" / "cu13" / "lib", machine / "nvidia" / "cudnn" / "lib"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(site), str(machine), *sys.path])
    return site, machine


def asked(place: Path) -> list[str | None]:
    """What an ONNX Runtime in this folder is asked to load."""
    calls: list[str | None] = []
    fake = SimpleNamespace(
        __file__=str(place / "onnxruntime" / "__init__.py"),
        preload_dlls=lambda directory=None: calls.append(directory),
    )
    preload_cuda(fake)
    return calls


def test_wheels_beside_are_left_to_onnx_runtime(places: tuple[Path, Path]) -> None:
    assert asked(places[1]) == [None]


def test_wheels_elsewhere_on_the_path_are_loaded_first(places: tuple[Path, Path]) -> None:
    site, machine = places
    found = asked(site)
    assert found == [str(machine / "nvidia" / name / "lib") for name in ("cu13", "cudnn")] + [None]


def test_cuda_computes_in_float32() -> None:
    assert cuda_options(0)["use_tf32"] == cuda_options(3)["use_tf32"] == "0"


def test_the_first_gpu_is_not_named() -> None:
    """ONNX Runtime 1.26 and later print a warning for each session that names its GPU."""
    assert "device_id" not in cuda_options(0)
    assert cuda_options(3)["device_id"] == "3"
