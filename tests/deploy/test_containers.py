"""The container files, as far as they can be checked without a container engine."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def compose() -> list[str]:
    """Docker Compose 2 where it is there, else docker-compose."""
    docker = shutil.which("docker")
    if docker and not subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        return [docker, "compose"]
    if not shutil.which("docker-compose"):
        pytest.skip("neither docker compose nor docker-compose is installed")
    return ["docker-compose"]


@pytest.mark.parametrize(("profile", "service"), [("", "captioner:cpu"), ("gpu", "captioner:gpu")])
def test_each_profile_is_a_valid_composition(profile: str, service: str) -> None:
    flags = ["--profile", profile] if profile else []
    command = [*compose(), *flags, "config"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert service in done.stdout
    if profile == "gpu":
        assert "driver: nvidia" in done.stdout


def test_the_dockerfile_is_lint_free() -> None:
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, "deploy/Dockerfile"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_dockerfile_serves_as_nobody_and_says_how_it_is() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    for instruction in ("USER 65532:65532", "HEALTHCHECK", "STOPSIGNAL SIGTERM"):
        assert instruction in text
    for line in text.splitlines():
        if line.startswith(("ENTRYPOINT", "CMD")):
            assert json.loads(line.partition(" ")[2])  # the form without a shell, which would swallow signals
    assert text.rstrip().rpartition("FROM ")[2].startswith("base AS cpu"), "the CPU is the default target"
