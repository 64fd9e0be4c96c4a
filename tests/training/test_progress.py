"""What a run says where no terminal shows bars."""

from __future__ import annotations

import sys

import pytest
from rich.console import Console

from captioner.training.loop.report import in_words
from captioner.training.progress import Progress, duration


def test_lines_say_how_far_the_work_is(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(every_s=0).task("words 2 of 40", 20, 5) as tell:
        for done in (5, 10, 20):
            tell(done, "loss 1.234")
    [line] = capsys.readouterr().err.splitlines()  # none at the beginning and the end
    assert line.startswith("words 2 of 40: 10 of 20, loss 1.234, about ") and line.endswith(" s left")


@pytest.mark.parametrize("text", ["[[data]] and [/b] of my [red]run[/red]", "a :cat: at 10:30", "x" * 300])
def test_notes_are_printed_as_they_are(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Progress().note(text)
    assert capsys.readouterr().err == f"{text}\n"


def test_names_of_stages_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.console = Console(file=sys.stderr, force_terminal=True, width=120)
    with progress.task("stage [/b] 1", 2, 0) as tell:
        tell(1, "[/i]")
    assert "stage [/b] 1" in capsys.readouterr().err


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress().task("features", 4, 0) as tell:
        for done in range(5):
            tell(done, "")
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (80, "80 s"), (100, "2 min"), (3600, "1 h 0 min"), (7810, "2 h 10 min")],
)
def test_times_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_an_epoch_says_of_how_many() -> None:
    record = {"stage": "words", "epoch": 3, "epochs": 40, "loss": 2.0, "seconds": 7.2}
    assert in_words(record) == "words 3 of 40: loss 2.000, 7 s"
