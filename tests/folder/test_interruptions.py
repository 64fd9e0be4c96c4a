"""Whatever ends a run, the same command completes it, and the output is that of an uninterrupted run."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.patience import PATIENCE_S, wait_until
from support.serving import make_image

from captioner.captioner import Captioner
from captioner.cli.commands.batch import here


@pytest.mark.parametrize("flags", [(), ("--attention", "--alternatives", "1", "--prefix", "x ")])
def test_kills_leave_no_trace(photos: Path, tmp_path: Path, batch, start_batch, flags) -> None:
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    assert batch(photos, "-o", whole, *flags) == 1
    waits = random.Random(0)
    for _ in range(3):
        process = start_batch(photos, "-o", killed, *flags)
        _wait_for_state(killed)
        time.sleep(waits.uniform(0, 0.3))
        process.kill()
        process.communicate()
        if killed.exists():
            lines = killed.read_bytes().splitlines(keepends=True)
            assert b"".join(line for line in lines if line.endswith(b"\n")) in whole.read_bytes()
    assert batch(photos, "-o", killed, *flags) == 1
    assert killed.read_bytes() == whole.read_bytes()


def test_every_point_between_keeping_and_publishing(photos: Path, tmp_path: Path, batch, monkeypatch) -> None:
    from captioner.folder.outputs.jsonl import JsonlOutput
    from captioner.folder.state import State

    class Killed(BaseException):
        pass

    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    batch(photos, "-o", whole)
    for owner, method in ((State, "save"), (JsonlOutput, "advance"), (JsonlOutput, "finish")):
        for after in (False, True):
            original = getattr(owner, method)

            def dying(*arguments, original=original, after=after, **keywords):
                if after:
                    original(*arguments, **keywords)
                raise Killed

            with monkeypatch.context() as patch, pytest.raises(Killed):
                patch.setattr(owner, method, dying)
                batch(photos, "-o", killed)
    assert batch(photos, "-o", killed) == 1
    assert killed.read_bytes() == whole.read_bytes()


def test_a_torn_line_is_taken_off(photos: Path, tmp_path: Path, batch) -> None:
    out = tmp_path / "out.jsonl"
    batch(photos, "-o", out)
    whole = out.read_bytes()
    out.write_bytes(whole[:-30])
    batch(photos, "-o", out)
    assert out.read_bytes() == whole
    out.unlink()
    batch(photos, "-o", out)
    assert out.read_bytes() == whole


INTERRUPTED = """
import os, signal
from captioner.folder.outputs.jsonl import JsonlOutput

advance = JsonlOutput.advance

def advance_once(*arguments):
    advance(*arguments)
    JsonlOutput.advance = advance
    os.kill(os.getpid(), signal.SIGINT)

JsonlOutput.advance = advance_once
"""


def test_interrupting_finishes_what_is_in_flight(photos: Path, tmp_path: Path, batch, start_batch) -> None:
    out = tmp_path / "out.jsonl"
    for number in range(400):
        (photos / f"more{number}.png").write_bytes(make_image(number))
    process = start_batch(photos, "-o", out, before=INTERRUPTED)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "the same command resumes" in errors and "Traceback" not in errors
    done = len(out.read_text().splitlines())
    assert f"{done} images are done and kept, {490 - done} are left" in errors
    assert batch(photos, "-o", out) == 1
    assert len(out.read_text().splitlines()) == 490


@pytest.mark.parametrize("format", ["csv", "jsonl", "txt"])
def test_interrupting_in_the_last_moment_leaves_a_whole_output(
    photos, tmp_path, tiny_captioner, format
) -> None:
    from captioner.folder.engine import LocalEngine
    from captioner.folder.outputs import OutputOptions, make_output
    from captioner.folder.run import FolderRun
    from captioner.folder.sources.files import FolderSource

    out = tmp_path / f"out.{format}"
    engine = LocalEngine(tiny_captioner)
    with FolderRun([FolderSource(photos)], engine, make_output(out, OutputOptions(), format)) as run:
        for done, _ in enumerate(run, 1):
            if done == run.left:
                run.stop.set()
    assert (
        len(list(out.rglob("*.txt")) or out.read_text().splitlines())
        == {"csv": 91, "jsonl": 90, "txt": 89}[format]
    )


def test_so_many_processes_would_stall_the_machine(photos, tmp_path, batch, capsys) -> None:
    assert batch(photos, "-o", tmp_path / "out.csv", "--workers", "100000") == 2
    assert "workers must be from 1 to" in capsys.readouterr().err
    assert not list(tmp_path.glob("out.csv*"))


def test_the_second_run_at_once_refuses(photos: Path, tmp_path: Path, batch, capsys) -> None:
    from captioner.folder.state import State

    with State(tmp_path / "out.jsonl.state", ""):
        assert batch(photos, "-o", tmp_path / "out.jsonl") == 2
    assert "another run is writing this output" in capsys.readouterr().err
    assert batch(photos, "-o", tmp_path / "out.jsonl") == 1


def test_a_full_disk_loses_nothing(photos: Path, tmp_path: Path, batch, monkeypatch, capsys) -> None:
    from captioner.folder.outputs import jsonl

    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    batch(photos, "-o", whole)
    original = jsonl.JsonlOutput._line
    lines = iter(range(40))

    def line(self, entry):
        if next(lines, None) is None:
            raise OSError(28, "No space left on device")
        return original(self, entry)

    with monkeypatch.context() as patch:
        patch.setattr(jsonl.JsonlOutput, "_line", line)
        capsys.readouterr()
        assert batch(photos, "-o", out) == 2
        assert f"cannot write {out}: No space left on device" in capsys.readouterr().err
    assert batch(photos, "-o", out) == 1
    assert out.read_bytes() == whole.read_bytes()


def test_changes_are_captioned_again_and_nothing_else(
    photos, tmp_path, batch, monkeypatch, tiny_bundle
) -> None:
    out = tmp_path / "out.jsonl"
    batch(photos, "-o", out)
    captioned = _count_captioned(monkeypatch)
    before = out.read_bytes()
    assert batch(photos, "-o", out) == 1
    assert captioned == [] and out.read_bytes() == before

    changed, touched, gone = (photos / "day0" / f"{number:03}.png" for number in range(3))
    changed.write_bytes(make_image(1000))
    touched.touch()
    gone.unlink()
    (photos / "aaa.png").write_bytes(make_image(1001))
    assert batch(photos, "-o", out) == 1
    assert sum(captioned) == 2
    fresh = tmp_path / "fresh.jsonl"
    batch(photos, "-o", fresh)
    assert _records(out) == _records(fresh)

    captioned.clear()
    assert batch(photos, "-o", out, "--overwrite") == 1
    assert sum(captioned) == len(_records(out)) - 1
    captioned.clear()
    assert batch(photos, "-o", out, "--beam", "1") == 1
    assert sum(captioned) == len(_records(out)) - 1


def test_another_precision_captions_again(photos: Path, tmp_path: Path, batch, monkeypatch) -> None:
    out = tmp_path / "out.jsonl"
    batch(photos, "-o", out)
    captioned = _count_captioned(monkeypatch)
    monkeypatch.setattr(Captioner, "precision", "int8")
    for expected in (len(_records(out)) - 1, 0):
        captioned.clear()
        assert batch(photos, "-o", out) == 1
        assert sum(captioned) == expected


@pytest.mark.parametrize("place", ["photos", "photos.tar", "photos.zip"])
def test_a_photo_replaced_by_one_of_the_same_size_and_time_is_captioned_again(
    tmp_path, batch, monkeypatch, place
) -> None:
    """As `cp --preserve` does, and packing into archives of reproducible times."""
    folder, out = tmp_path / "photos", tmp_path / "out.jsonl"
    folder.mkdir()
    captioned = _count_captioned(monkeypatch)
    for replaced in (0, 9):
        for number in (replaced, 1, 2):
            photo = folder / f"{number % 9}.png"
            photo.write_bytes(make_image(number).ljust(10_000, b"\0"))
            os.utime(photo, (1e9, 1e9))
        if place != "photos":
            shutil.make_archive(str(folder), place.removeprefix("photos."), folder)
            os.utime(tmp_path / place, (1e9, 1e9))
        assert batch(tmp_path / place, "-o", out) == 0
    assert sum(captioned) == 3 + 1


def test_failures_are_retried_when_asked(photos: Path, tmp_path: Path, batch, capsys) -> None:
    out = tmp_path / "out.jsonl"
    batch(photos, "-o", out)
    [failed] = [record for record in _records(out) if "error" in record]
    assert failed["image"] == "broken.jpg" and failed["error"]["code"] == "not_an_image"
    capsys.readouterr()
    assert batch(photos, "-o", out) == 1
    assert "(from an earlier run)" in capsys.readouterr().err
    assert batch(photos, "-o", out, "--retry-failed") == 1
    assert "broken.jpg: the JPEG data are damaged" in capsys.readouterr().err
    (photos / "broken.jpg").write_bytes(make_image(5))
    assert batch(photos, "-o", out) == 0
    assert not any("error" in record for record in _records(out))


def test_an_unfinished_overwrite_goes_on(photos: Path, tmp_path: Path, batch, monkeypatch) -> None:
    from captioner.folder.outputs.jsonl import JsonlOutput

    out = tmp_path / "out.jsonl"
    batch(photos, "-o", out)
    before = out.read_bytes()

    def dying(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(JsonlOutput, "finish", dying)
        assert batch(photos, "-o", out, "--overwrite") == 130
    assert out.read_bytes() == before
    captioned = _count_captioned(monkeypatch)
    assert batch(photos, "-o", out, "--overwrite") == 1
    assert captioned == [] and out.read_bytes() == before


def test_watching_keeps_the_output_when_all_photos_are_gone(
    few, tmp_path, batch, monkeypatch, capsys
) -> None:
    """As when a drive is unmounted."""
    away, out, seen = tmp_path / "away", tmp_path / "out.jsonl", []

    def unmount() -> None:
        few.rename(away)
        few.mkdir()

    def mount() -> None:
        few.rmdir()
        away.rename(few)

    steps = [unmount, list, mount, (few / "a.jpg").unlink, unmount]
    _between_runs(monkeypatch, steps, lambda: seen.append([record["image"] for record in _records(out)]))
    assert batch(few, "-o", out, "--watch", "--overwrite") == 0
    both, one = ["a.jpg", "b/c.jpg"], ["b/c.jpg"]
    assert seen == [both, both, both, both, one, one]
    assert capsys.readouterr().err.count("all images are gone; the output stays as it is") == 2
    monkeypatch.undo()
    assert batch(few, "-o", out) == 2 and _records(out)[0]["image"] == "b/c.jpg"


def test_watching_keeps_the_captions_of_a_folder_whose_photos_are_gone(
    few, tmp_path, batch, monkeypatch, capsys
) -> None:
    """As when one of several drives is unmounted."""
    away, other, out, seen = tmp_path / "away", tmp_path / "other", tmp_path / "out.jsonl", []
    other.mkdir()

    def unmount() -> None:
        few.rename(away)
        few.mkdir()

    def arrive(name: str = "new.jpg") -> None:
        (other / name).write_bytes(make_image(len(name), format="JPEG"))

    def mount() -> None:
        few.rmdir()
        away.rename(few)

    arrive("old.jpg")
    steps = [unmount, arrive, mount, list]
    _between_runs(monkeypatch, steps, lambda: seen.append({record["image"] for record in _records(out)}))
    assert batch(few, other, "-o", out, "--watch") == 0
    old = {f"{few}/a.jpg", f"{few}/b/c.jpg", f"{other}/old.jpg"}
    assert seen == [old, old, old, old | {f"{other}/new.jpg"}, old | {f"{other}/new.jpg"}]
    said = f"captioner: all images of {few} are gone; the output stays as it is"
    assert capsys.readouterr().err.count(said) == 1


def test_a_file_of_somebody_else_is_not_replaced(photos: Path, tmp_path: Path, batch, capsys) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("my notes")
    assert batch(photos, "-o", out) == 2
    assert "--overwrite replaces it" in capsys.readouterr().err
    assert out.read_text() == "my notes"
    assert batch(photos, "-o", out, "--overwrite") == 1
    assert len(_records(out)) == 90


def _between_runs(monkeypatch, steps: list[Callable[[], object]], look: Callable[[], object]) -> None:
    """After each run of a batch that watches, look at what it left and take one of the steps; then end it."""
    run_once = here.Batch.run_once

    def run_and_go_on(batch: here.Batch, **named: bool) -> int:
        try:
            return run_once(batch, **named)
        finally:
            look()
            steps.pop(0)() if steps else batch.stop.set()

    monkeypatch.setattr(here.Batch, "run_once", run_and_go_on)
    monkeypatch.setattr(here, "WATCH_EVERY_S", 0.0)


def _wait_for_state(out: Path) -> None:
    wait_until(lambda: out.with_name(f"{out.name}.state").exists())


def _records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _count_captioned(monkeypatch) -> list[int]:
    """Batch sizes that the model is given from here on."""
    sizes: list[int] = []
    original = Captioner.caption_pixels

    def counting(self, pixels, options=None):
        sizes.append(len(pixels))
        return original(self, pixels, options)

    monkeypatch.setattr(Captioner, "caption_pixels", counting)
    return sizes
