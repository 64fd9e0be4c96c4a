"""The command line around its commands."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import run_python

import captioner
from captioner.cli import main as command_line
from captioner.cli import parser
from captioner.cli.main import main
from captioner.cli.parser import COMMANDS
from captioner.cli.version_conflicts import conflict

PHOTO = str(Path(__file__).parents[2] / "examples" / "cat.jpg")
HEAVY = ("numpy", "PIL", "onnxruntime", "torch", "grpc", "rich")


@pytest.mark.parametrize("module", ["captioner", "captioner_client"])
def test_importing_is_light(module: str) -> None:
    done = run_python(f"import sys, {module}; print(*sys.modules)")
    assert not {"torch", "onnxruntime", "numpy", "PIL", "grpc"} & set(done.stdout.split())


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["caption", "--help"], ["model", "--help"]])
def test_help_needs_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
from captioner.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as stopped:
    loaded = [name for name in {HEAVY} if name in sys.modules]
    sys.exit(f"loaded {{loaded}}" if loaded else stopped.code)
"""
    done = run_python(code, *arguments)
    assert done.returncode == 0 and done.stdout and not done.stderr


def test_version_is_that_of_the_package(capsys) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--version"])
    assert raised.value.code == 0 and capsys.readouterr().out == f"captioner {captioner.__version__}\n"


def test_every_public_name_is_there() -> None:
    for name in captioner.__all__:
        assert getattr(captioner, name) is not None
    assert set(captioner.__all__) <= set(dir(captioner))
    with pytest.raises(AttributeError, match="has no attribute 'Missing'"):
        captioner.Missing  # noqa: B018


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys) -> None:
    with pytest.raises(SystemExit) as raised:
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert raised.value.code == 0 and f"usage: captioner {command}" in shown
    assert "['" not in shown, "a list of Python is no list for people"
    statuses = " ".join(shown.rpartition("\n\n")[2].split())
    assert re.fullmatch(r"Exit status: 0 [^;]+(; 1 [^;]+)?; 2 [^;]+(; \d+ [^;]+)+", statuses)


def test_the_usage_has_only_what_is_needed(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["batch", "--help"])
    assert capsys.readouterr().out.startswith("usage: captioner batch [-h] -o OUT [FOLDER ...]\n\n")


def test_actions_of_a_command_have_its_exit_statuses(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["model", "verify", "--help"])
    assert "Exit status: 0 all done; 2 wrong usage" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["paint"], ["--paint"]])
def test_unknown_commands(arguments: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2 and "usage: captioner" in capsys.readouterr().err


@pytest.mark.parametrize(("module", "install"), [("torch.nn", "'.[train]'"), ("grpc", ".")])
def test_a_missing_package_names_what_brings_it(module: str, install: str, monkeypatch, capsys) -> None:
    def run(arguments: list[str]) -> int:
        raise ModuleNotFoundError(f"No module named '{module}'", name=module)

    monkeypatch.setattr(parser, "load_command", lambda name: type("M", (), {"add_parser": run, "run": run}))
    assert main(["train"]) == 2
    assert (
        capsys.readouterr().err == f"captioner: train needs the package {module.partition('.')[0]}: "
        f"pip install {install} in a clone of the project\n"
    )


@pytest.mark.parametrize(
    ("runtime", "extra"),
    [(None, "'.[cpu]' in a clone of the project, or '.[gpu]' for CUDA"), ("", "'.[serve]'")],
)
def test_a_missing_server_is_installed_with_what_it_captions_with(
    runtime: str | None, extra: str, monkeypatch, capsys
) -> None:
    def run(arguments: list[str]) -> int:
        raise ModuleNotFoundError("No module named 'starlette'", name="starlette")

    monkeypatch.setattr(parser, "load_command", lambda name: type("M", (), {"add_parser": run, "run": run}))
    if runtime is None:
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    else:
        pytest.importorskip("onnxruntime")
    assert main(["serve"]) == 2
    assert f"serve needs the package starlette: pip install {extra}" in capsys.readouterr().err


def test_completion_without_its_package_names_the_extra(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["--print-completion", "bash"]) == 2
    assert "captioner: this needs the package shtab: pip install '.[completion]'" in capsys.readouterr().err


def test_packages_that_do_not_fit_each_other_are_one_error(tiny_bundle: Path) -> None:
    """The code that gRPC generated for health checks is newer than gRPC."""
    pytest.importorskip("grpc_health")
    code = """
import sys
import grpc
from captioner.cli.main import main
grpc.__version__ = "1.76.0"
sys.exit(main(sys.argv[1:]))
"""
    done = run_python(code, "serve", "--model", str(tiny_bundle), "--device", "cpu", "--port", "0")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "grpcio-health-checking conflicts with grpcio 1.76.0: pip install 'grpcio>=" in done.stderr


def test_code_that_is_newer_than_protobuf_names_its_package() -> None:
    pytest.importorskip("grpc_health")
    version = pytest.importorskip("google.protobuf.runtime_version")
    with pytest.raises(version.VersionError) as raised:
        version.ValidateProtobufRuntimeVersion(
            version.DOMAIN, 99, 1, 0, version.SUFFIX, "grpc_health/v1/health.proto"
        )
    said = conflict(raised.value)
    assert said and said.startswith(
        f"grpcio-health-checking conflicts with protobuf {importlib.metadata.version('protobuf')}: pip"
    )
    assert "'protobuf>=99.1.0'" in said and conflict(RuntimeError("another")) is None


def test_a_base_install_says_what_to_install(tiny_bundle: Path) -> None:
    """Without ONNX Runtime: the import is blocked, as if it were not there."""
    code = """
import sys
sys.modules["onnxruntime"] = None
from captioner.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    done = run_python(code, "caption", "--model", str(tiny_bundle), PHOTO)
    assert done.returncode == 2
    assert "pip install '.[cpu]'" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "there is not enough memory"),
        (RuntimeError("CUDA out of memory.\nTried to allocate 2 GiB"), "memory: CUDA out of memory."),
        (RuntimeError("can't start new thread"), "no further thread can be started"),
    ],
)
def test_what_the_system_has_too_little_of_is_one_line(error, said, monkeypatch, capsys) -> None:
    def run(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(command_line, "_run", run)
    assert main(["caption", PHOTO]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line


def test_with_too_little_memory_to_import_more_it_is_one_line(monkeypatch, capsys) -> None:
    def run(arguments: list[str]) -> int:
        raise MemoryError

    monkeypatch.setattr(command_line, "_run", run)
    monkeypatch.setitem(sys.modules, "captioner.pipeline", None)
    assert main(["caption", PHOTO]) == 2
    assert "there is not enough memory" in capsys.readouterr().err


def test_an_interrupt_is_130(monkeypatch, tiny_bundle: Path) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("captioner.captioner.Captioner.caption", interrupt)
    assert main(["caption", "--model", str(tiny_bundle), PHOTO]) == 130


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break differently there")
def test_a_reader_that_leaves_early_is_no_error(tiny_bundle: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "captioner", "caption", "--model", tiny_bundle, "--device", "cpu", PHOTO],
            stdout=write_end,
            stderr=subprocess.PIPE,
            timeout=300,
        )
    finally:
        os.close(write_end)
    assert done.returncode == 141 and done.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "usage", "message"),
    [
        (["captoin", "x.jpg"], "captioner [-h]", "there is no command 'captoin'; did you mean caption?"),
        (
            ["caption", "x.jpg", "--bem", "3"],
            "captioner caption",
            "unknown argument --bem; did you mean --beam?",
        ),
        (["help"], "captioner [-h]", "there is no command 'help'; captioner --help lists them"),
        (["batch", "x", "-o", "y", "--zzz=1"], "captioner batch", "unknown argument --zzz=1\n"),
        (["demo", "x", "--server", "y"], "captioner demo", "unknown argument --server\n"),
        (["demo", "x", "--precision", "int8"], "captioner demo", "unknown argument --precision\n"),
        (["gallery", "x", "-o", "y", "--style", "alt"], "captioner gallery", "unknown argument --style\n"),
        (["caption", "x", "--beam-size=3"], "captioner caption", "did you mean --beam?\n"),
        (["batch", "x", "-o", "y", "--heirarchy"], "captioner batch", "did you mean --hierarchy?\n"),
        (["batch", "x", "-o", "y", "--ouput", "z"], "captioner batch", "did you mean --output?\n"),
        (
            ["batch", "x", "-o", "y", "--recursive"],
            "captioner batch",
            "unknown argument --recursive; folders are always searched with their subfolders\n",
        ),
        (
            ["caption", "x", "--keywords"],
            "captioner caption",
            "unknown argument --keywords; captioner batch --keywords writes keywords\n",
        ),
        (["caption", "--files-from", "-"], "captioner caption", "captioner batch --files-from LIST"),
        (["batch", ".", "-o", "a.jsonl", "--json"], "captioner batch", "-o OUT.jsonl writes JSON"),
        (["caption", "x", "--timeout-s", "1m"], "captioner caption", "expected a number, got '1m'"),
        (["overlay", "x", "--width", "20px"], "captioner overlay", "expected a whole number, got '20px'"),
        (["bench", "--batch-sizes", "1", "x.jpg"], "captioner bench", "expected a whole number, got 'x.jpg'"),
        (["serve", "--max-wait-s", "1m"], "captioner serve", "expected a number, got '1m'"),
        (["mcp", ".", "--http-port", "-1"], "captioner mcp", "expected a port, 0 to 65535, got '-1'"),
        (["demo", "--port", "99999"], "captioner demo", "expected a port, 0 to 65535, got '99999'"),
        ([], "captioner [-h]", "no command given"),
        ([""], "captioner [-h]", "there is no command ''; captioner --help lists them"),
        (["--bem", "3", "caption", "x.jpg"], "captioner caption", "did you mean --beam?\n"),
        (["--print-completion", "nu", "x"], "captioner [-h]", "invalid choice: 'nu'"),
        (["search", ".", "cat", "-dog"], "captioner search", "behind --, such as search . -- cat -dog\n"),
        (["search", ".", "cat", "-=x"], "captioner search", "unknown argument -=x; words that must not"),
    ],
)
def test_what_is_wrong_is_said_with_the_usage_of_the_command(arguments, usage, message, capsys) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    errors = capsys.readouterr().err
    assert raised.value.code == 2 and errors.startswith(f"usage: {usage}") and message in errors
    assert len(errors.splitlines()) == 2, "the usage without options that are not needed"


def test_warnings_of_the_client_are_said_like_everything_else() -> None:
    script = (
        "import logging, sys; from captioner.cli.main import main; main(['model', 'show', '/nowhere'])\n"
        "logging.getLogger('captioner_client').warning('no server answers: \x1b[31mred\u202e')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and all(line.startswith("captioner: ") for line in lines)
    assert lines[1] == r"captioner: no server answers: \x1b[31mred\u202e"


def test_a_file_that_looks_like_an_argument(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-beach.jpg").touch()
    for others in (["cat.jpg"], []):
        with pytest.raises(SystemExit):
            main(["caption", *others, "-beach.jpg"])
        assert "unknown argument -beach.jpg; the file of this name is ./-beach.jpg" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "export", "teach", "train", "average"])
def test_what_is_not_printed_makes_no_file_named_like_stdout(command, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main([command, "x", "y", "-o", "-"])
    assert caught.value.code == 2 and "- is not a file name" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["batch", "", "-o", "out.jsonl"],
        ["batch", "photos", "--output=", "--format", "xmp", "--embed"],
        ["convert", "captions.jsonl", "-o", "", "--format", "txt"],
        ["convert", "captions.jsonl", "-o", "out/", "--images", ""],
        ["gallery", "", "-o", "page.html"],
        ["mcp", "photos", ""],
        ["search", "", "cat"],
    ],
)
def test_an_empty_name_is_not_the_current_folder(arguments, tmp_path, monkeypatch, capsys) -> None:
    """As of a variable that is not set: photos there would be changed, or shown to an assistant."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2 and "an empty name" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_a_tilde_that_the_shell_has_left_is_the_home_folder(
    tiny_bundle: Path, tmp_path, monkeypatch, capsys
) -> None:
    """Shells expand none behind a =."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(tiny_bundle)
    (tmp_path / "list").write_text(PHOTO)
    chosen = ["--model=~/model", "--device", "cpu", "--quiet"]
    assert main(["caption", PHOTO, *chosen, "--output=~/lines.jsonl"]) == 0
    assert main(["batch", *chosen, "--files-from=~/list", "--output=~/batch.jsonl"]) == 0
    assert main(["evaluate", "~/lines.jsonl", "--images=~/none", *chosen]) == 2
    assert f"{tmp_path / 'none'}" in capsys.readouterr().err
    assert main(["model", "verify", "~/model"]) == 0
    assert (tmp_path / "batch.jsonl").is_file() and not (tmp_path / "~").exists()


def test_photos_stand_before_between_and_behind_options(tiny_bundle: Path, tmp_path, capsys) -> None:
    other = str(shutil.copy(PHOTO, tmp_path / "other.jpg"))
    model = ["--model", str(tiny_bundle), "--device", "cpu"]
    for arguments in ([PHOTO, *model, other], [*model, PHOTO, other], [*model, "--", PHOTO, other]):
        assert main(["caption", *arguments]) == 0
        names = [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]
        assert names == [PHOTO, other]


def test_the_version_is_told_whatever_follows(capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version", "caption"])
    assert capsys.readouterr().out.startswith("captioner ")


@pytest.mark.parametrize("begin", [["--max-words", "2"], ["--max-words", "2", "caption"]])
def test_options_stand_before_the_command(begin: list[str], tiny_bundle: Path, capsys) -> None:
    assert main([*begin, PHOTO, "--model", str(tiny_bundle)]) == 0
    assert capsys.readouterr().out.startswith(f"{PHOTO}\t")


def test_a_photo_alone_is_captioned(tmp_path, capsys) -> None:
    assert main([PHOTO]) == 0
    assert capsys.readouterr().out.startswith(f"{PHOTO}\t")
    assert main([str(tmp_path / "gone.jpg")]) == 1
    assert "gone.jpg: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_of_other_shells(shell: str, capsys) -> None:
    pytest.importorskip("shtab")
    assert main(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    assert "gallery" in script and "min-confidence" in script


def test_completion_knows_commands_and_options(capsys) -> None:
    pytest.importorskip("shtab")
    assert main(["--print-completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert "gallery" in script and "--min-confidence" in script and "--beam" in script
    assert "_shtab_captioner_caption_pos_0_COMPGEN=_shtab_compgen_files" in script  # names of photos too
