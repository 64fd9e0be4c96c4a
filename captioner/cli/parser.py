"""The arguments of a command line, and what is said of wrong ones.

A command is a module of `captioner.cli.commands` with `add_parser(subparsers)`, which adds its parser, and
`run(args)`, which returns the exit status. Only the module of the command asked for is imported.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import captioner
from captioner.cli.arguments.values import named, new_path, number, whole
from captioner.errors import closest
from captioner.printable import printable

COMMANDS = {
    "caption": "caption images",
    "overlay": "draw where the model looked for each word",
    "gallery": "make a page of a folder's photos and captions",
    "batch": "caption a folder of images into a file",
    "convert": "write the captions of an earlier run in other formats",
    "search": "find photos by their captions",
    "serve": "answer caption requests over gRPC and HTTP",
    "demo": "caption photos in the browser",
    "mcp": "offer captions to an assistant (MCP)",
    "train": "train a model",
    "teach": "teach a model corrected captions",
    "average": "average the weights of several runs",
    "export": "turn a checkpoint into a model bundle",
    "evaluate": "caption a data set and score the captions",
    "score": "score captions against references",
    "model": "list, choose, show, verify or remove models",
    "bench": "measure the speed of a model on this machine",
    "doctor": "print what is installed and used, for a report",
}

_STATUSES = {0: "all done", 2: "wrong usage, or what is needed is not there", 130: "interrupted"}
_SERVED = {
    0: "stopped after all calls were answered",
    1: "the grace period was too short",
    70: "the model did not recover",
    130: "",
}
_UNNAMED = {1: "some images failed, each named on stderr"}
_STATUSES_OF = {
    "caption": _UNNAMED,
    "overlay": _UNNAMED,
    "gallery": {1: "some photos failed, which the page shows too"},
    "batch": {**_UNNAMED, 130: "interrupted, work in flight is kept"},
    "convert": {1: "some images have no caption, each named on stderr"},
    "search": {0: "done, whatever was found"},
    "serve": _SERVED,
    "demo": _SERVED,
    "export": {1: "the graphs do not caption as the checkpoint does"},
    "doctor": {1: "this installation cannot caption, or its packages conflict"},
}
"""What exit statuses mean; those of single commands, where they differ."""
_RECURSIVE = "folders are always searched with their subfolders"
_KEYWORDS = "captioner batch --keywords writes keywords"
_LIST = "captioner batch --files-from LIST captions what a list names"
_ELSEWHERE = {
    ("batch", "--recursive"): _RECURSIVE,
    ("demo", "--recursive"): _RECURSIVE,
    ("gallery", "--recursive"): _RECURSIVE,
    ("caption", "--keywords"): _KEYWORDS,
    ("overlay", "--keywords"): _KEYWORDS,
    ("caption", "--files-from"): _LIST,
    ("overlay", "--files-from"): _LIST,
    ("batch", "--json"): "-o OUT.jsonl writes JSON, a line for each image",
}
"""What is said of flags that other commands have."""
_LEFT_OUT = "words that must not be there stand behind --, such as search {} -- cat -dog"
"""What is said of a word of a search that begins with a dash."""
_SIMILARITY = 0.7
"""The least that a word has in common with the one that may be meant, of 1: a typing error keeps more, and
two flags of different meaning have less ("--recursive", "--precision")."""


def parse(arguments: list[str], command: str | None) -> argparse.Namespace:
    """The arguments; what is wrong with them is said with the usage of the command that was meant."""
    parser, commands = build_parser({command} if command else ())
    if command is not None and command not in COMMANDS and "--print-completion" not in arguments:
        suggested = _suggest(command, COMMANDS) or "; captioner --help lists them"
        parser.error(f"there is no command {command!r}{suggested}")
    meant = commands.get(command or "", parser)
    if file := _file_like_option(arguments, meant):
        meant.error(printable(f"unknown argument {file}; the file of this name is ./{file}"))
    args, unknown = _parse_known(parser, meant, arguments)
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = _ELSEWHERE.get((command or "", flag))
        if command == "search" and not flag.startswith("--"):
            known = _LEFT_OUT.format(args.source)
        close = f"; {known}" if known else _suggest(flag, meant._option_string_actions)
        meant.error(printable(f"unknown argument {unknown[0]}{close}"))
    if not (args.command or args.print_completion):
        parser.error("no command given")
    return args


def _file_like_option(arguments: list[str], meant: argparse.ArgumentParser) -> str | None:
    """The first argument that is a file but looks like an option: it would be said that no file is named."""
    words = itertools.takewhile(lambda word: word != "--", arguments)
    options = (word for word in words if word.startswith("-") and word != "-")
    return next(
        (
            word
            for word in options
            if word not in meant._option_string_actions and os.path.isfile(word)  # noqa: PTH113
        ),
        None,
    )


def _parse_known(
    parser: argparse.ArgumentParser, meant: argparse.ArgumentParser, arguments: list[str]
) -> tuple[argparse.Namespace, list[str]]:
    """The arguments, and those that are unknown. Images may stand before, between and behind options."""
    if arguments and arguments[0] in COMMANDS and "--" not in arguments:
        given = argparse.Namespace(command=arguments[0], print_completion=None)
        # argparse does not mix arguments with actions of a command, such as `model show`.
        with suppress(TypeError):
            return meant.parse_known_intermixed_args(arguments[1:], given)
    return parser.parse_known_args(arguments)


def _suggest(word: str, known: Iterable[str]) -> str:
    names = {name.strip("-"): name for name in known}  # the dashes are alike in all
    said = word.strip("-")
    begun = (name for name in names if len(name) > 2 and said.startswith(f"{name}-"))  # --beam-size
    close = next(begun, None) or closest(said, names, _SIMILARITY)
    return f"; did you mean {names[close]}?" if close else ""


def load_command(command: str) -> ModuleType:
    return importlib.import_module(f"captioner.cli.commands.{command}")


def build_parser(
    whole: Collection[str],
) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser, and that of each command; only those of `whole` know their arguments."""
    parser = _Parser(
        prog="captioner",
        description="Captions images and shows where the model looked for each word.",
        epilog="captioner COMMAND --help says more about a command.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"captioner {captioner.__version__}")
    parser.add_argument(
        "--print-completion",
        choices=("bash", "zsh", "tcsh", "fish", "powershell"),
        help="print a completion script for this shell; needs the extra [completion]",
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, help in COMMANDS.items():
        if name in whole:
            load_command(name).add_parser(subparsers)
            _explain_statuses(subparsers.choices[name], _STATUSES | _STATUSES_OF.get(name, {}))
        else:
            subparsers.add_parser(name, help=help)
    return parser, subparsers.choices


def _explain_statuses(parser: argparse.ArgumentParser, statuses: Mapping[int, str]) -> None:
    """End the help of a command, and of its actions, with what exit statuses mean."""
    parser.epilog = "Exit status: " + "; ".join(
        f"{status} {meaning}" for status, meaning in sorted(statuses.items()) if meaning
    )
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                _explain_statuses(one, statuses)


class _Formatter(argparse.HelpFormatter):
    """The usage is without options that may be left out: the help lists them, and an error would be lost
    behind them."""

    def add_usage(self, usage: str | None, actions: Iterable[argparse.Action], *args: Any) -> None:
        needed = (one for one in actions if one.required or not one.option_strings or one.dest == "help")
        super().add_usage(usage, tuple(needed), (), *args[1:])


class _Parser(argparse.ArgumentParser):
    """No path is an empty name, and what is no number is said as elsewhere."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.formatter_class = _Formatter
        self.register("type", Path, lambda text: Path(named(text)))
        self.register("type", int, whole)
        self.register("type", float, number)


def print_completion(shell: str) -> int:
    import shtab

    parser, commands = build_parser(set(COMMANDS))
    for command in commands.values():
        for action in command._actions:
            if (
                action.nargs != 0
                and action.choices is None
                and action.type in (None, str, Path, named, new_path)
            ):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell))
    return 0
