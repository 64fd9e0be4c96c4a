"""Signals that end a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import run_python


def run_caption(code: str) -> subprocess.CompletedProcess[str]:
    """Run `captioner caption` with the `run` that `code` defines; signals are not ignored."""
    begin = """if 1:
        import sys, tempfile, time, weakref
        from signal import *
        from captioner.cli.commands import caption
        from captioner.cli.main import main
        from captioner.errors import OutputError

        signal(SIGINT, default_int_handler)  # where the tests run, both may be ignored
        signal(SIGHUP, SIG_DFL)
    """
    end = """
        caption.run = run
        sys.exit(main(["caption", "x.jpg"]))"""
    return run_python(begin + code + end)


@pytest.mark.skipif(sys.platform == "win32", reason="has other signals")
@pytest.mark.parametrize(
    ("signals", "status"), [("SIGTERM, SIGHUP", 143), ("SIGHUP, SIGTERM", 129), ("SIGINT, SIGINT", 130)]
)
def test_a_signal_leaves_no_temporary_folder(tmp_path: Path, signals: str, status: int) -> None:
    done = run_caption(f"""
        class Folder(tempfile.TemporaryDirectory):
            def cleanup(self):
                raise_signal(second)
                super().cleanup()

        def run(args):
            with Folder(dir={str(tmp_path)!r}):
                raise_signal(first)

        first, second = {signals}
    """)
    assert done.returncode == status
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="has other signals")
@pytest.mark.parametrize(("number", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
@pytest.mark.parametrize("seconds", [0, 60])
def test_a_signal_in_the_callback_of_a_weak_reference_ends_the_command(
    number: str, status: int, seconds: int
) -> None:
    done = run_caption(f"""
        class Thing:
            pass

        def run(args):
            thing = Thing()
            reference = weakref.ref(thing, lambda _: raise_signal({number}))
            del thing
            for _ in range({seconds} * 100):
                time.sleep(0.01)
            return 0
    """)
    assert done.returncode == status and not done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="has other signals")
@pytest.mark.parametrize(("number", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_of_which_an_import_makes_an_error_of_its_own_ends_the_command(
    number: str, status: int
) -> None:
    done = run_caption(f"""
        def run(args):
            try:
                raise_signal({number})
            except BaseException:  # as PyCapsule_Import does, with which NumPy is imported
                raise ImportError("PyCapsule_Import could not import module")
    """)
    assert done.returncode == status and not done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="has other signals")
def test_a_command_that_could_not_end_orderly_says_why() -> None:
    done = run_caption("""
        def run(args):
            try:
                raise_signal(SIGTERM)
            finally:
                raise OutputError("cannot write the last batch")
    """)
    assert (done.returncode, done.stderr) == (2, "captioner: cannot write the last batch\n")


@pytest.mark.skipif(sys.platform == "win32", reason="has other signals")
def test_an_ignored_signal_stays_ignored() -> None:
    code = """if 1:
        import sys
        from signal import *
        from captioner.cli.commands import caption
        from captioner.cli.main import main
        signal(SIGHUP, SIG_IGN)
        caption.run = lambda args: raise_signal(SIGHUP) or 0
        sys.exit(main(["caption", "x.jpg"]))"""
    assert run_python(code).returncode == 0


def test_a_server_that_is_just_started_takes_no_harm_from_hangups() -> None:
    code = """
import os, signal, sys
from captioner.cli import main
def parse(*_):
    os.kill(os.getpid(), signal.SIGHUP)
    sys.exit(7)
main.parse = parse
main.main(["serve"])
"""
    assert run_python(code).returncode == 7


@pytest.mark.skipif(sys.platform == "win32", reason="has other signals")
def test_ctrl_c_while_the_command_is_being_imported_ends_it() -> None:
    done = run_python("""if 1:
        import runpy, signal, sys

        class Interrupting:
            def find_spec(self, name, *_):
                if name == "captioner.cli.main":
                    signal.raise_signal(signal.SIGINT)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.meta_path.insert(0, Interrupting())
        runpy.run_module("captioner", run_name="__main__")
    """)
    assert (done.returncode, done.stderr) == (-2, "")
