"""Models by name: the embedded one, those of packages, and those that were taught."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from captioner.captioner import Captioner
from captioner.cli.main import main
from captioner.errors import BundleError
from captioner.model import installed
from captioner.model.bundle import DEFAULT, Bundle
from captioner.model.installed import (
    choose,
    chosen,
    installed_models,
    model_folder,
    provided_models,
    taught_folder,
)


@pytest.fixture
def package(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed package that offers a model "tiny", which must not be imported."""
    folder = tmp_path / "tiny_model" / "bundle"
    shutil.copytree(tiny_bundle, folder)
    (tmp_path / "tiny_model" / "__init__.py").write_text("raise RuntimeError('imported')")
    info = tmp_path / "tiny_model-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[captioner.models]\ntiny = tiny_model:bundle\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def taught(tiny_bundle: Path, user_folder: Path, name: str) -> Path:
    return Path(shutil.copytree(tiny_bundle, user_folder / "models" / name))


def test_models_of_packages_and_taught_ones_are_found(
    package: Path, tiny_bundle: Path, user_folder: Path
) -> None:
    mine = taught(tiny_bundle, user_folder, "mine")
    taught(tiny_bundle, user_folder, "tiny")  # does not hide that of the package
    (user_folder / "models" / "no model").mkdir()
    found = {name: place for name, place in installed_models().items() if name != "large"}  # of this machine
    assert found == {"default": DEFAULT, "tiny": package, "mine": mine}
    assert "tiny_model" not in sys.modules
    assert model_folder("mine") == mine and model_folder("some/path") == Path("some/path")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("tiny_model.parts:bundle", "tiny_model/parts/bundle"),
        ("tiny_model:a.b", "tiny_model/a.b"),
        ("gone:bundle", None),
        ("gone.parts:bundle", None),
        ("tiny_model", None),
        ("two words", None),
        (".tiny_model:bundle", None),
        ("sys:bundle", None),
    ],
)
def test_a_package_that_offers_a_model_wrongly_harms_no_command(
    package: Path, value: str, place: str | None
) -> None:
    above = package.parents[1]
    (above / "tiny_model-1.0.dist-info" / "entry_points.txt").write_text(
        f"[captioner.models]\nother = {value}\n"
    )
    assert installed_models().get("other") == (above / place if place else None)
    assert "tiny_model" not in sys.modules
    assert main(["model", "list"]) == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"[captioner.models]\nl\xe9on = leon:bundle\n", "not in UTF-8"), (b"[x]\nno value\n", "malformed")],
)
def test_a_package_whose_list_cannot_be_read_hides_no_other_model(
    package: Path,
    content: bytes,
    reason: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    installed._warn.cache_clear()
    for number in range(2):  # before and after the one that works
        info = package.parents[1] / f"{'az'[number]}_model-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {'az'[number]}-model\nVersion: 1.0\n")
        (info / "entry_points.txt").write_bytes(content)
    assert installed_models()["tiny"] == package
    assert main(["model", "show", "tiny"]) == 0
    capsys.readouterr()
    assert main(["model", "list"]) == 0
    out, err = capsys.readouterr()
    assert f"tiny\t{package}\n" in out
    assert not err  # the log, here pytest's
    assert sorted(caplog.messages) == [
        f"the package {letter}-model offers no models: its entry_points.txt is {reason}" for letter in "az"
    ]


def test_what_was_chosen_is_used(
    package: Path, tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chosen() is None
    assert main(["model", "use", "tiny"]) == 0
    assert "is used from now on" in capsys.readouterr().err
    assert chosen() == package
    assert Captioner.load("tiny", device="cpu").bundle.identity == Bundle.load(tiny_bundle).identity
    assert main(["model", "list"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("large\t")]
    assert lines == [f"default\t{DEFAULT}", f"tiny\t{package}\tused"]
    assert main(["model", "list", "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out) if row["name"] != "large"]
    assert rows[1:] == [{"name": "tiny", "folder": str(package), "used": True}] and not rows[0]["used"]
    assert main(["model", "show"]) == 0
    assert Bundle.load(tiny_bundle).identity in capsys.readouterr().out
    photo = str(tiny_bundle.parents[2] / "examples" / "cat.jpg")
    assert main(["caption", photo, "--json"]) == 0
    assert f'"model": "{Bundle.load(tiny_bundle).identity}"' in capsys.readouterr().out
    assert main(["model", "use", str(tiny_bundle)]) == 0
    assert chosen() == tiny_bundle
    assert main(["model", "use", "default"]) == 0
    assert chosen() is None


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names are Unicode")
def test_a_folder_may_have_any_name(tiny_bundle: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_bundle, tmp_path / os.fsdecode(b" lat\xe9 \n")))
    assert main(["model", "use", str(folder)]) == 0
    assert chosen() == folder


def test_what_is_not_there_is_refused(
    tiny_bundle: Path, user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BundleError, match="there is no model nope; installed are default"):
        choose("nope")
    taught(tiny_bundle, user_folder, "hens")
    for command in ("model use hen", "model show hen", "caption x.jpg --model hen"):
        assert main(command.split()) == 2
        [said] = capsys.readouterr().err.splitlines()
        assert said.startswith("captioner: there is no model hen; installed are default, ")
        assert said.endswith("hens (captioner model list); did you mean hens?")
    gone = taught(tiny_bundle, user_folder, "mine")
    choose("mine")
    shutil.rmtree(gone)
    with pytest.raises(BundleError, match="the model mine, chosen with captioner model use, is gone"):
        chosen()
    assert main(["model", "list"]) == 0  # the others
    listed, said = capsys.readouterr()
    assert listed.startswith("default\t") and "\tused" not in listed
    assert said.startswith("captioner: the model mine, chosen with captioner model use, is gone")


@pytest.mark.parametrize("home", [None, "/dev/null"])
def test_a_user_without_a_home_has_the_models_of_packages(
    home: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Users of containers and services."""
    for name in ("CAPTIONER_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # the system does not know the user
    if home:
        monkeypatch.setenv("HOME", home)
    assert chosen() is None
    assert installed_models() == provided_models()
    assert main(["model", "list"]) == 0
    assert "\tused" in capsys.readouterr().out
    assert main(["model", "use", "default"]) == 2
    [said] = capsys.readouterr().err.splitlines()
    assert ("cannot write" if home else "CAPTIONER_HOME") in said


@pytest.mark.skipif(sys.platform != "linux", reason="the folder of Linux")
def test_variables_name_folders_as_a_shell_and_the_specification_of_xdg_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units of systemd and files of variables hold a ~ that no shell sees."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CAPTIONER_HOME", "~/mine")
    assert taught_folder() == tmp_path / "mine" / "models"
    monkeypatch.delenv("CAPTIONER_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    assert taught_folder() == tmp_path / ".local" / "share" / "captioner" / "models"


@pytest.mark.parametrize("content", [b"", bytes(4096), None])
def test_a_choice_that_a_power_failure_has_emptied_is_said_briefly(
    content: bytes | None, user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is None:
        (user_folder / "model").mkdir()
    else:
        (user_folder / "model").write_bytes(content)
    assert main(["model", "show"]) == 2
    expected = (
        f"cannot read {user_folder / 'model'}: Is a directory" if content is None else "the model '', cho"
    )
    assert capsys.readouterr().err.startswith(f"captioner: {expected}")


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no such rights")
def test_the_home_of_another_user_has_no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sudo and containers leave it in HOME."""
    home = tmp_path / "other"
    home.mkdir(mode=0)
    monkeypatch.delenv("CAPTIONER_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    expected, user = provided_models(), os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        assert chosen() is None
        assert installed_models() == expected
    finally:
        os.seteuid(user)


def test_only_taught_models_are_removed(
    package: Path, tiny_bundle: Path, user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other = (taught(tiny_bundle, user_folder, name) for name in ("mine", "other"))
    choose("mine")
    for name, reason in (
        ("default", "the embedded model"),
        ("tiny", "pip uninstall tiny-model"),
        (str(tiny_bundle), "is a folder"),
        (str(tiny_bundle / "bundle.json"), "is a file"),
        ("..", "is a folder"),
        ("nope", "there is no model nope"),
        ("", "there is no model ''; installed are"),
    ):
        assert main(["model", "remove", name]) == 2
        assert reason in capsys.readouterr().err
    assert tiny_bundle.is_dir() and package.is_dir() and chosen() == mine
    assert main(["model", "remove", "other"]) == 0
    assert capsys.readouterr().err == "captioner: other was removed\n"
    assert chosen() == mine and not other.exists()
    assert main(["model", "remove", "mine"]) == 0
    assert capsys.readouterr().err == "captioner: mine was removed; default is used from now on\n"
    assert chosen() is None and not mine.exists()


def test_a_model_that_cannot_be_removed_stays_chosen(
    tiny_bundle: Path, user_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    mine = taught(tiny_bundle, user_folder, "mine")
    choose("mine")
    monkeypatch.setattr("captioner.model.installed.folder_aside", refuse)
    assert main(["model", "remove", "mine"]) == 2
    assert "mine: Permission denied" in capsys.readouterr().err
    assert chosen() == mine


def test_a_model_whose_removal_was_killed_is_gone_and_the_next_removal_takes_what_is_left(
    tiny_bundle: Path, user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = taught(tiny_bundle, user_folder, "mine")
    taught(tiny_bundle, user_folder, "other")
    code = """if 1:
        import os, sys
        from captioner.cli.main import main
        unlinked = []

        def kill_at_second(event, args):
            if event == "os.remove":
                unlinked.append(args)
                if len(unlinked) == 2:
                    os._exit(9)

        sys.addaudithook(kill_at_second)
        main(["model", "remove", "mine"])"""
    environment = {**os.environ, "CAPTIONER_HOME": str(user_folder)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 9
    assert "mine" not in installed_models() and not folder.exists()
    assert main(["model", "remove", "other"]) == 0
    assert not any((user_folder / "models").iterdir())
