"""`.ci/twice`: a few tests that fail get a second chance, and nothing else does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TWICE = Path(__file__).parents[1] / ".ci" / "twice"
ONCE = """
from pathlib import Path
import os, pytest

def fails_once(name="ran"):
    if not Path(name).exists():
        Path(name).touch()
        raise AssertionError
"""
PASSES = "def test_passes(): pass\n"


def twice(folder: Path, tests: str) -> tuple[int, list[str]]:
    """The exit status for a file of tests, and what is named as flaky."""
    (folder / "pytest.ini").touch()
    (folder / "test_it.py").write_text(ONCE + tests)
    named = folder / "flaky"
    environment = {**os.environ, "FLAKY": str(named), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([TWICE, sys.executable, "-m", "pytest", "-q"], cwd=folder, env=environment)
    return done.returncode, named.read_text().splitlines() if named.exists() else []


def test_what_passes_the_second_time_is_named(tmp_path: Path) -> None:
    flaky = "@pytest.mark.parametrize('n', ['a b', 'c'])\ndef test_flaky(n): fails_once(n)\n"
    named = ["test_it.py::test_flaky[a b]", "test_it.py::test_flaky[c]"]
    assert twice(tmp_path, PASSES + flaky) == (0, named)


@pytest.mark.parametrize(
    "tests",
    [
        "def test_fails(): assert 0\n",
        "def test_fails(): assert 0\ndef test_flaky(): fails_once()\n",
        "@pytest.mark.parametrize('n', range(11))\ndef test_flaky(n): fails_once(str(n))\n",
        "def test_flaky(): Path('ran').exists() and pytest.skip('now'); fails_once()\n",
    ],
    ids=["fails again", "one of two fails again", "too many", "skipped"],
)
def test_what_does_not_pass_fails(tmp_path: Path, tests: str) -> None:
    assert twice(tmp_path, PASSES + tests) == (1, [])


@pytest.mark.parametrize(
    ("tests", "status"),
    [
        ("fails_once()\n", 2),
        ("def test_exit(): Path('ran').exists() or os._exit(Path('ran').touch() or 1)\n", 1),
        ("def test_killed(): Path('ran').exists() or os.kill(os.getpid(), Path('ran').touch() or 9)\n", 137),
    ],
    ids=["collection", "exit", "killed"],
)
def test_only_failed_tests_get_a_second_chance(tmp_path: Path, tests: str, status: int) -> None:
    (tmp_path / ".pytest_cache/v/cache").mkdir(parents=True)
    (tmp_path / ".pytest_cache/v/cache/lastfailed").write_text('{\n  "test_it.py::test_passes": true\n}')
    assert twice(tmp_path, PASSES + tests) == (status, [])
