"""What `captioner caption photo.jpg` does without, so that it starts quickly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PHOTO = ROOT / "examples" / "coffee.jpg"
CODE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from captioner.cli.main import main

def refuse(*args, **named):
    raise AssertionError("a thread for one photo")

ThreadPoolExecutor.submit = refuse
status = main(sys.argv[1:])
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(status)
"""
NOT_NEEDED = {
    "asyncio",
    "captioner.folder",
    "captioner.images.fetch",
    "captioner.images.workers",
    "captioner.keyword_options",
    "captioner.overlay.scene",
    "captioner.protobuf",
    "email.parser",
    "google.protobuf",
    "grpc",
    "http.client",
    "numpy.ma",
    "numpy.random",
    "PIL.ImageCms",
    "rich",
    "sqlite3",
    "ssl",
    "torch",
    "unittest",
    "urllib.request",
}


def test_one_photo_takes_no_threads_and_few_modules(tiny_bundle: Path) -> None:
    command = [sys.executable, "-c", CODE, "caption", str(PHOTO), "--model", str(tiny_bundle)]
    done = subprocess.run([*command, "--device", "cpu"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.count("\n") == 1, done.stderr
    assert NOT_NEEDED.isdisjoint(done.stderr.split())


@pytest.mark.skipif(os.name != "posix", reason="a shell")
def test_without_stderr_errors_are_not_among_the_captions(tiny_bundle: Path) -> None:
    command = [sys.executable, "-m", "captioner", "caption", "missing.jpg", str(PHOTO)]
    command += ["--model", str(tiny_bundle), "--device", "cpu"]
    done = subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *command], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stdout.startswith(f"{PHOTO}\t") and done.stdout.count("\n") == 1


def test_help_of_a_command_loads_no_model(tiny_bundle: Path) -> None:
    for command in ("caption", "batch", "overlay"):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "captioner", command, "--help"],
            capture_output=True,
            text=True,
            timeout=300,
        )
        loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert not {"numpy", "PIL", "onnxruntime", "http.client", "grpc"} & loaded
