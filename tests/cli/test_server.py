"""Commands that caption through a server."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.serving import RunningServer

from captioner.cli.arguments.model import ServedModel, add_caption_arguments, chosen_model
from captioner.cli.main import main
from captioner.results import Caption
from captioner_server.options import ServerOptions

EXAMPLES = Path(__file__).parents[2] / "examples"
PHOTOS = [str(EXAMPLES / name) for name in ("cat.jpg", "coffee.jpg")]


@pytest.mark.skipif(os.name != "posix", reason="other permissions")
def test_a_token_that_everybody_may_read_is_said(capsys, tmp_path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    parser = argparse.ArgumentParser()
    add_caption_arguments(parser)
    for mode, said in ((0o644, 1), (0o640, 0), (0o600, 0)):
        token.chmod(mode)
        model = chosen_model(parser.parse_args(["--server", "localhost:1", "--token-file", str(token)]))
        assert isinstance(model, ServedModel) and model.options.token == "secret"
        assert capsys.readouterr().err.count(f"everybody may read {token}: chmod o-r") == said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"alice secret\n", "a client's token file holds a single token"),
        (b"alice secret\nbob other\n", "a client's token file holds a single token"),
        ("\ufeffalice é".encode(), "a client's token file holds a single token"),
        (b"\n", "the file is empty"),
        (b"\xff\xfe", "not a text file"),
    ],
)
@pytest.mark.parametrize("command", ["caption", "batch"])
def test_a_token_file_that_is_none_of_a_client(command, content, message, tmp_path, capsys) -> None:
    tokens, photos = tmp_path / "tokens", tmp_path / "photos"
    tokens.write_bytes(content)
    photos.mkdir()
    (photos / "coffee.jpg").write_bytes(Path(PHOTOS[0]).read_bytes())
    arguments = [PHOTOS[0]] if command == "caption" else [str(photos), "-o", str(tmp_path / "out.jsonl")]
    assert main([command, *arguments, "--server", "localhost:1", "--token-file", str(tokens)]) == 2
    output, errors = capsys.readouterr()
    assert output == "" and errors.startswith(f"captioner: --token-file: {tokens}: {message}")
    assert errors.count("\n") == 1 and "secret" not in errors


def test_a_token_file_may_begin_with_a_mark(captioner, tmp_path, capsys) -> None:
    (tmp_path / "tokens").write_text("secret")
    (tmp_path / "mine").write_text("\ufeffsecret\n", encoding="utf-8")
    server = RunningServer(captioner, ServerOptions(port=0, token_file=tmp_path / "tokens"))
    try:
        token = ["--token-file", str(tmp_path / "mine")]
        assert main(["caption", PHOTOS[0], "--server", server.address, *token]) == 0, capsys.readouterr()
    finally:
        server.close()


def test_a_server_gives_the_same_output(caption, captioner, capsys, tmp_path) -> None:
    names = [PHOTOS[0], str(tmp_path / "missing.jpg"), PHOTOS[1]]
    assert caption(*names) == 1
    local = capsys.readouterr()
    server = RunningServer(captioner, ServerOptions(port=0))
    try:
        assert main(["caption", "--server", server.address, *names]) == 1
        assert capsys.readouterr() == local
        assert main(["caption", "--server", server.address, "--json", PHOTOS[0]]) == 0
        record = Caption.from_dict(json.loads(capsys.readouterr().out))
    finally:
        server.close()
    [expected] = captioner.caption([PHOTOS[0]])
    assert (record.text, record.model) == (expected.text, expected.model)
    assert record.log_prob == pytest.approx(expected.log_prob, abs=1e-4)
    assert main(["caption", "--server", server.address, "--timeout-s", "0.5", PHOTOS[0]]) == 2
    assert capsys.readouterr().err.startswith("captioner: ")


@pytest.mark.parametrize("command", [["caption"], ["overlay", "-o", "out.png"], ["batch", "-o", "out.jsonl"]])
def test_a_server_that_does_not_answer_ends_every_command_alike(
    command, capsys, tmp_path, monkeypatch
) -> None:
    photo = str(Path(PHOTOS[0]).absolute())
    monkeypatch.chdir(tmp_path)
    assert main([*command, photo, "--server", "localhost:1", "--timeout-s", "0.5"]) == 2
    assert "localhost:1" in capsys.readouterr().err


def test_grpc_writes_no_lines_of_its_own(captioner) -> None:
    server = RunningServer(captioner, ServerOptions(port=0))
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    try:
        command = [sys.executable, "-m", "captioner", "caption", PHOTOS[0], "--tls", "--server"]
        done = subprocess.run(
            [*command, server.address], capture_output=True, text=True, timeout=300, env=environment
        )
    finally:
        server.close()
    [said] = done.stderr.splitlines()
    assert said.startswith("captioner: ") and said.endswith("does it use TLS?)")
