"""The file of decisions that a review leaves beside captions or photos."""

from __future__ import annotations

import shlex
from pathlib import Path

from captioner.cli.output import say

_NAME = "corrections.jsonl"
DEFAULT = f"{_NAME} in FOLDER, or beside the captions"


def corrections_of(source: Path) -> Path:
    """Where the decisions about a folder of photos, or a file of captions, are."""
    return (source if source.is_dir() else source.parent) / _NAME


def found_corrections(source: Path) -> Path | None:
    """Those that are there."""
    place = corrections_of(source)
    return place if place.is_file() else None


def say_unused(*sources: Path) -> None:
    """Print to stderr that there are decisions which a command does not use by itself."""
    if found := next(filter(None, map(found_corrections, sources)), None):
        flag = shlex.join(["--corrections", str(found)])
        say(f"{found} is there, with decisions; {flag} uses it")
