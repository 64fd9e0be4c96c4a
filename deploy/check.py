"""Do what the Dockerfile does, without a container engine: every RUN, the health check, the entry point.

    python deploy/check.py [--target cpu|gpu] [--keep FOLDER]

The files that .dockerignore lets through are copied to a folder, the commands of the target's stages run
there in a virtual environment of their own, and the server is started, probed and stopped.
Exits with 0 if all of it worked. The gpu target downloads gigabytes, and needs a GPU to start.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
START_S = 120


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work in this folder and leave it there")
    args = parser.parse_args()
    stages = parse(DOCKERFILE.read_text())
    with tempfile.TemporaryDirectory() as temporary:
        work = args.keep or Path(temporary)
        check(stages, args.target, work.resolve())
    print(f"{args.target}: every command of the Dockerfile works")
    return 0


def parse(text: str) -> dict[str, list[tuple[str, str]]]:
    """Each stage with its instructions, those of the stages it builds on first."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    stages: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            parent, _, name = rest.partition(" AS ")
            current = stages[name] = list(stages.get(parent, []))
        elif word and word != "ARG":
            current.append((word, rest.strip()))
    return stages


def check(stages: dict[str, list[tuple[str, str]]], target: str, work: Path) -> None:
    source, venv = work / "src", work / "venv"
    copy_context(source)
    environment = {**os.environ, "VENV": str(venv)}
    for word, rest in stages[f"build-{target}"]:
        if word == "RUN":
            print(f"RUN {rest}", flush=True)
            subprocess.run(rest, shell=True, check=True, cwd=source, env=environment)
    environment["PATH"] = f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
    python = str(venv / "bin" / "python3")
    torch = subprocess.run([python, "-c", "import torch"], capture_output=True, cwd=work)
    assert torch.returncode != 0, "the image is to be without PyTorch"
    final = dict(stages[target])
    # --insecure, as the composition passes it: the image by itself does not serve plaintext to everybody.
    command = [*json.loads(final["ENTRYPOINT"]), *json.loads(final["CMD"]), "--insecure"]
    health = json.loads(final["HEALTHCHECK"].partition("CMD ")[2])
    assert final["STOPSIGNAL"] == "SIGTERM"
    print(f"ENTRYPOINT {shlex.join(command)}", flush=True)
    server = subprocess.Popen(command, cwd=work, env=environment)
    try:
        wait_until_healthy(server, health, work, environment)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, "SIGTERM is to end the server with status 0"
    finally:
        server.kill()
        server.wait()


def wait_until_healthy(
    server: subprocess.Popen[bytes], health: list[str], work: Path, environment: dict[str, str]
) -> None:
    print(f"HEALTHCHECK {shlex.join(health)}", flush=True)
    limit = time.monotonic() + START_S
    while subprocess.run(health, cwd=work, env=environment, stderr=subprocess.DEVNULL).returncode:
        assert server.poll() is None, f"the server ended with status {server.returncode}"
        assert time.monotonic() < limit, "the server does not get healthy"
        time.sleep(0.5)


def copy_context(destination: Path) -> None:
    """What COPY . . brings: the names that the ignore file lets through."""
    destination.mkdir(parents=True)
    ignore = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()
    for path in (ROOT / line[1:] for line in ignore if line.startswith("!")):
        if path.exists():
            subprocess.run(["cp", "-r", str(path), str(destination)], check=True)


if __name__ == "__main__":
    sys.exit(main())
