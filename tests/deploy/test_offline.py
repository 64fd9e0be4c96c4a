"""Packing captioner for machines without a network, and installing it there."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "offline"
READY = ROOT / "benchmarks" / "gpu" / "ready"


def _load(name: str):
    loader = SourceFileLoader(f"offline_{name}", str(FOLDER / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


pack = _load("pack")
normal = pack.normal


def _write_wheel(folder: Path, name: str, needs: str = "", version: str = "1.0") -> Path:
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", "there = True\n")
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def parts(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Two packages, of which the first needs what the parameter says, and a bundle in parts of 1 kB."""
    needs = getattr(request, "param", "")
    work = tmp_path / "work"
    (work / "wheels").mkdir(parents=True)
    (work / "models" / "mine").mkdir(parents=True)
    (work / "models" / "mine" / "bundle.json").write_text("{}")
    wheels = [
        _write_wheel(work / "wheels", "first_package", needs),
        _write_wheel(work / "wheels", "second_package"),
    ]
    lines = [pack.identify(wheel)[1] for wheel in wheels]
    (work / "requirements.txt").write_text("".join(f"{line}\n" for line in lines))
    written = pack.write_parts(work, tmp_path / "parts", 1024)
    assert len(written) > 2
    assert all(part.stat().st_size <= 1024 for part in written)
    return tmp_path / "parts"


def _install(parts: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, parts / "install", *arguments, parts]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def test_parts_are_installed_without_an_index(parts: Path, tmp_path: Path) -> None:
    done = _install(parts, "--target", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "site").glob("*.py")} == {
        "first_package.py",
        "second_package.py",
    }
    assert (tmp_path / "site" / "models" / "mine" / "bundle.json").exists()
    assert sorted(path.name for path in parts.iterdir() if path.is_dir()) == []


def test_packages_that_are_there_are_left_out(parts: Path, tmp_path: Path) -> None:
    done = _install(parts, "--have", "First.Package", "--target", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "site").glob("*.py")} == {"second_package.py"}


def test_a_machine_is_ready_once_all_parts_have_come(parts: Path, tmp_path: Path) -> None:
    """Whichever come first, and whatever is already there."""
    home, came = tmp_path / "home", tmp_path / "build" / "parts"
    home.mkdir()
    came.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    small = [parts / "install", parts / "SHA256SUMS"]
    first, *others = parts.glob("captioner.tar.*")
    for bring in (others, [first]):
        for part in (*small, *bring):
            shutil.copy(part, came)
        done = subprocess.run(
            ["sh", READY],
            cwd=tmp_path,
            env={**os.environ, "HOME": str(home), "PATH": path},
            capture_output=True,
            text=True,
        )
        if bring == others:
            assert done.returncode == 1 and f"{first.name} is missing" in done.stderr
            shutil.rmtree(came)  # the next command brings its own parts only
            came.mkdir()
    assert done.returncode == 0, done.stderr
    assert (home / "site" / "first_package.py").exists()


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            "Requires-Dist: pytest>=1000\n",
            "first_package 1.0 has requirement pytest>=1000, but you have pytest",
        ),
        ("Requires-Dist: second-package>=2\n", "second-package>=2, but you have second-package 1.0."),
        ("Requires-Dist: there-is-no-such-package\n", "there-is-no-such-package, which is not installed"),
    ],
    indirect=["parts"],
)
def test_what_does_not_fit_what_is_there_is_told(parts: Path, tmp_path: Path, said: str) -> None:
    done = _install(parts, "--target", tmp_path / "site")
    assert done.returncode == 1 and done.stdout.startswith("installed: ")
    problem, line = done.stderr.splitlines()
    assert "pack --have NAME==VERSION" in problem
    assert normal(said) in normal(line)


def test_a_damaged_part_is_named(parts: Path, tmp_path: Path) -> None:
    part = parts / "captioner.tar.001"
    part.write_bytes(part.read_bytes()[::-1])
    done = _install(parts, "--target", tmp_path / "site")
    assert done.returncode == 1
    assert done.stderr == f"install: the part {part} is damaged: copy it again\n"
    assert not (tmp_path / "site").exists()


def test_a_missing_part_is_named(parts: Path, tmp_path: Path) -> None:
    (parts / "captioner.tar.002").unlink()
    done = _install(parts, "--target", tmp_path / "site")
    assert done.returncode == 1
    assert "captioner.tar.002 is missing" in done.stderr


def test_a_folder_without_parts_is_refused(parts: Path, tmp_path: Path) -> None:
    (parts / "SHA256SUMS").unlink()
    done = _install(parts, "--target", tmp_path / "site")
    assert done.returncode == 1
    assert "name the folder with the parts" in done.stderr


def _write_parts(folder: Path, content: bytes) -> None:
    part = folder / "captioner.tar.000"
    part.write_bytes(content)
    sums = f"{hashlib.sha256(content).hexdigest()}  {part.name}\n"
    (folder / "SHA256SUMS").write_text(sums)


def _tar(*members: tarfile.TarInfo, mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return buffer.getvalue()


def _member(name: str, **fields: object) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(member, field, value)
    return member


@pytest.mark.parametrize(
    "content",
    [
        b"no archive",
        _tar(_member("../outside", size=1)),
        _tar(_member("/tmp/captioner-outside", size=1)),
        _tar(_member("a", type=tarfile.SYMTYPE, linkname="../../outside")),
        _tar(_member("a", type=tarfile.CHRTYPE)),
        _tar(_member("requirements.txt", size=1), mode="w:gz"),
    ],
    ids=["no archive", "above", "absolute", "link", "device", "compressed"],
)
def test_hostile_parts_are_refused_in_one_line(parts: Path, tmp_path: Path, content: bytes) -> None:
    _write_parts(parts, content)
    done = _install(parts, "--target", tmp_path / "site")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("install: ") and not (tmp_path / "outside").exists()


@pytest.mark.parametrize("sums", [b"x", b"x  \n", b"\xff  a", b"x  ../../etc/passwd"])
def test_malformed_sums_are_refused_in_one_line(parts: Path, tmp_path: Path, sums: bytes) -> None:
    (parts / "SHA256SUMS").write_bytes(sums)
    done = _install(parts, "--target", tmp_path / "site")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr


def test_what_only_present_packages_need_is_not_packed() -> None:
    def package(name: str, *needs: str) -> dict:
        return {"metadata": {"name": name, "version": "1.0", "requires_dist": list(needs)}}

    found = [
        package("captioner", "torch>=2", "numpy>=1.26", 'grpcio>=1; extra == "x"'),
        package("torch", "nvidia-cudnn", "filelock"),
        package("nvidia_cudnn"),
        package("filelock"),
        package("grpcio", "filelock"),
        package("numpy"),
    ]
    assert pack.without(found, {"torch", "numpy"}) == {"grpcio": "1.0", "filelock": "1.0"}


def test_versions_of_packages_that_are_there() -> None:
    assert pack.packages("torch == 2.11.0, Py_Arrow,grpcio==1.84.0+local,") == {
        "torch": "2.11.0",
        "py-arrow": "",
        "grpcio": "1.84.0+local",
    }
    for text in ("torch>=2", "torch==", "torch==2 numpy"):
        with pytest.raises(argparse.ArgumentTypeError, match="NAME==VERSION"):
            pack.packages(text)


def test_what_is_packed_fits_the_versions_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, work = tmp_path / "index", tmp_path / "work"
    index.mkdir()
    work.mkdir()
    (tmp_path / "project").mkdir()
    project = _write_wheel(tmp_path / "project", "captioner", "Requires-Dist: health\nRequires-Dist: rpc\n")
    for version in ("1.0", "2.0"):
        _write_wheel(index, "rpc", version=version)
        _write_wheel(index, "health", f"Requires-Dist: rpc>={version}\n", version=version)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    real = pack.pip
    monkeypatch.setattr(
        pack,
        "pip",
        lambda *arguments: (
            real(*arguments) if arguments[0] != "wheel" else shutil.copy(project, Path(work, "wheels"))
        ),
    )
    (work / "wheels").mkdir()
    assert pack.gather(work, "", None, [], {"rpc": "1.0"}) == ["captioner", "health"]
    assert "health==1.0 " in (work / "requirements.txt").read_text()
    assert sorted(path.name for path in work.iterdir()) == ["requirements.txt", "wheels"]


def test_a_platform_takes_wheels_of_older_ones() -> None:
    tags = list(pack.compatible("manylinux_2_28_x86_64"))
    assert tags[0] == "manylinux_2_28_x86_64"
    assert {"manylinux_2_17_x86_64", "manylinux2014_x86_64"} <= set(tags)
    assert "manylinux_2_34_x86_64" not in tags
    assert list(pack.compatible("win_amd64")) == ["win_amd64"]


def test_a_source_package_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "old-1.0.tar.gz"
    source.write_bytes(b"no wheel")
    with pytest.raises(pack.PackError, match="published as source only"):
        pack.identify(source)


@pytest.mark.parametrize(("text", "expected"), [("60", 60), ("2K", 2048), ("60M", 60 * 2**20)])
def test_sizes_of_parts(text: str, expected: int) -> None:
    assert pack.size(text) == expected


@pytest.mark.parametrize("text", ["", "0", "60X", "-1M"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a size"):
        pack.size(text)


def test_a_full_folder_is_not_packed_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SystemExit):
        pack.main([str(tmp_path)])
    assert "is not an empty folder" in capsys.readouterr().err


def test_several_extras_are_packed_together() -> None:
    assert pack.extras("gpu, train") == "gpu,train"
    assert pack.extras("client") == ""
    with pytest.raises(argparse.ArgumentTypeError, match="exclude each other"):
        pack.extras("cpu,gpu")
    with pytest.raises(argparse.ArgumentTypeError, match="known are"):
        pack.extras("cpu,nothing")
