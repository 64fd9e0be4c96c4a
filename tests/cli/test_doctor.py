"""`captioner doctor`: a report of what is there, whatever of it is broken."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from captioner.cli.commands.doctor.cuda import libraries, needed
from captioner.cli.commands.doctor.section import attempt
from captioner.cli.main import main
from captioner.model.bundle import Bundle

LIGHT = """
import sys
from captioner.cli.main import main
status = main(["doctor", "--json", *sys.argv[1:]])
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(status)
"""
NOT_NEEDED = {"captioner_server", "captioner.training", "grpc", "torch", "ray", "rich", "starlette"}


def _report(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    status = main(["doctor", "--json", *flags])
    return status, json.loads(capsys.readouterr().out)


def _record(place: Path, name: str, version: str, *needs: str) -> None:
    """The record of an installed package."""
    record = place / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
    record.parent.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    record.write_text("\n".join([*lines, *(f"Requires-Dist: {need}" for need in needs), ""]))


def test_what_is_used_and_why(tiny_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--model", str(tiny_bundle), "--device", "cpu", "--precision", "float32")
    status, report = _report(capsys, *flags)
    assert status == 0 and report["problems"] == []
    assert report["model"]["model"] == Bundle.load(tiny_bundle).identity
    assert report["model"]["chosen by"] == "--model"
    assert report["runtime"]["device"].startswith("cpu (CPUExecutionProvider): it was asked for")
    assert report["runtime"]["precision"] == "float32: it was asked for"
    assert report["packages"]["numpy"] == importlib.metadata.version("numpy")
    assert report["extras"]["cpu"].startswith("complete")


def test_the_text_says_the_same(tiny_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--model", str(tiny_bundle))
    report = _report(capsys, *flags)[1]
    assert main(["doctor", *flags]) == 0
    text = capsys.readouterr().out
    for section in ("system", "photos", "model", "runtime", "cuda"):
        assert f"{section}:\n" in text
        assert all(fact in text for fact in report[section].values())


def test_an_extra_says_what_it_would_add(
    tiny_bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wants = ["numpy>=1", "numpy>=999; extra == 'new'", "there-is-no-such-package>=1; extra == 'new'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: wants)
    extras = _report(capsys, "--model", str(tiny_bundle))[1]["extras"]
    assert set(extras) == {"new"}
    assert "numpy>=999 (there is " in extras["new"] and "there-is-no-such-package" in extras["new"]


def test_nothing_heavy_is_imported(tiny_bundle: Path) -> None:
    command = [sys.executable, "-c", LIGHT, "--model", str(tiny_bundle)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert NOT_NEEDED.isdisjoint(done.stderr.split())


def test_a_damaged_model(tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bundle.json").write_text("{")
    status, report = _report(capsys, "--model", str(tmp_path))
    assert status == 1 and all("is not valid JSON" in problem for problem in report["problems"])
    assert report["packages"] and "driver" in report["cuda"]


def test_cuda_that_cannot_be_used(tiny_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = _report(capsys, "--model", str(tiny_bundle), "--device", "cuda:99")
    assert status == 1 and "CUDA:99 cannot be used" in report["problems"][0]


def test_one_fault_is_one_problem(capsys: pytest.CaptureFixture[str]) -> None:
    [problem] = _report(capsys, "--model", "nope")[1]["problems"]
    assert problem.startswith("there is no model nope")


@pytest.mark.parametrize(
    "damage", ["raise ValueError('half\\nof it')", "import there_is_no_such_module", "1/0"]
)
def test_a_runtime_that_cannot_be_imported(damage: str, tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text(damage)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{LIGHT}"]
    done = subprocess.run(
        [*command, "--model", str(tiny_bundle)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert len(json.loads(done.stdout)["problems"]) == 1


@pytest.mark.parametrize("package", ["numpy", "PIL"])
def test_a_damaged_package(package: str, tmp_path: Path) -> None:
    (tmp_path / f"{package}.py").write_text("1/0")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{LIGHT}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "ZeroDivisionError: division by zero" in json.loads(done.stdout)["problems"]


@pytest.mark.parametrize("together", [True, False])
def test_two_runtimes_in_one_folder_are_a_problem(
    together: bool, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name in ("onnxruntime", "onnxruntime-gpu"):
        place = tmp_path if together else tmp_path / name
        _record(place, name, "1.32.0")
        monkeypatch.syspath_prepend(str(place))
    status, report = _report(capsys, "--model", str(tiny_bundle))
    assert status == together and ("uninstall both" in "".join(report["problems"])) is together


@pytest.mark.parametrize(("version", "fits"), [("1.84.0", False), ("1.85.1", True)])
def test_packages_that_do_not_fit_each_other_are_a_problem(
    version: str, fits: bool, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    _record(tmp_path, "grpcio", version)
    needs = ("grpcio>=1.85.1", "grpcio<1; python_version<'3'", "grpcio<1; extra=='old'", "not a requirement")
    _record(tmp_path, "grpcio-health-checking", "1.85.1", *needs)
    _record(tmp_path, "grpcio-reflection", "1.80.0", "grpcio>=1.80.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    status, report = _report(capsys, "--model", str(tiny_bundle))
    expected = (
        "grpcio-health-checking 1.85.1 requires grpcio>=1.85.1, but 1.84.0 is there: pip install"
        " 'grpcio>=1.85.1', or a version of grpcio-health-checking that accepts grpcio 1.84.0"
    )
    assert (status, report["problems"]) == ((0, []) if fits else (1, [expected]))


def test_the_home_folder_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    section = attempt("model", lambda: {"folder": str(tmp_path / "models")})
    assert section.facts["folder"] == str(Path("~") / "models")


@pytest.mark.skipif(sys.platform != "linux", reason="where a process lists its libraries")
def test_libraries_say_where_they_come_from() -> None:
    found = libraries(["libc.so.6", "libcudnn.so.0"])
    path, _, owner = found["libc.so.6"].partition(" (")
    assert Path(path).exists() and owner == "the system)"
    assert found["libcudnn.so.0"].startswith("MISSING")
    assert {"libcudart.so.13", "libcufft.so.12"} < set(needed(13))
    assert {"libcudart.so.12", "libcufft.so.11"} < set(needed(12))
