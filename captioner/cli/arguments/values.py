"""Kinds of values that flags take, for `type=` of argparse, and flags that were given."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from captioner.errors import OptionsError
from captioner.model.graphs.device import check_device


def device(text: str) -> str:
    """auto, cpu, cuda or cuda:N."""
    try:
        return check_device(text)
    except OptionsError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def named(text: str) -> str:
    """The name of a file or folder, which is not empty: `Path("")` is the current folder. A ~ is the home
    folder, also where a shell leaves it: --output=~/out.jsonl."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name (a variable that is not set?)")
    return os.path.expanduser(text)  # noqa: PTH111 (what names no user stays as it is)


def new_path(text: str) -> Path:
    """Where to write. Commands that write to stdout have their own argument."""
    if text == "-":
        raise argparse.ArgumentTypeError("- is not a file name (./- is one)")
    return Path(named(text))


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def number(text: str) -> float:
    """A number, whole or not."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


def port(text: str) -> int:
    """The number of a port; 0 takes a free one."""
    if not text.isdecimal() or not text.isascii() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port, 0 to 65535, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or not text.isascii() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def given_flags(args: argparse.Namespace, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Those of the options `names` that the user has set, each with its flag: ("max_pixels", "--max-pixels").
    Their defaults must be None or False."""
    for name in names:
        value = getattr(args, name, None)
        if value is not None and value is not False:
            yield name, "--" + name.replace("_", "-")
