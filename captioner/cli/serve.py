"""`captioner serve`: answer caption requests over gRPC."""

from __future__ import annotations

import argparse
import dataclasses
import os
import typing
from pathlib import Path
from typing import Any

from captioner_server.options import ServerOptions


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="answer caption requests over gRPC",
        description="Serve a model over gRPC until SIGTERM or Ctrl-C; what is in flight is then finished.",
        epilog="Exit status: 0 stopped with everything answered; 1 the grace period was too short; 2 the "
        "server could not start; 70 the model failed and did not recover. A second signal ends it at once.",
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model", type=Path, metavar="BUNDLE", help="model bundle (default: the embedded one)"
    )
    model.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="auto takes CUDA where it works; cuda refuses to start where it does not (default: auto)",
    )
    model.add_argument(
        "--threads", type=int, metavar="N", help="CPU threads of the model (default: one a core)"
    )
    server = parser.add_argument_group("server")
    kinds = typing.get_type_hints(ServerOptions)
    for field in dataclasses.fields(ServerOptions):
        server.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=_kind(kinds[field.name]),
            default=field.default,
            metavar=field.name.rpartition("_")[2].upper(),
            help=field.metadata["help"] + ("" if field.default is None else " (default: %(default)s)"),
        )
    logs = parser.add_argument_group("logs, on stderr")
    logs.add_argument("--log-format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it writes to stderr itself, and waits for who reads it
    from captioner.captioner import Captioner
    from captioner_server import logs
    from captioner_server.main import run as serve

    options = ServerOptions(**{f.name: getattr(args, f.name) for f in dataclasses.fields(ServerOptions)})
    writer = logs.set_up(args.log_format)

    def load() -> Captioner:
        return Captioner.load(
            args.model, device=args.device, threads=args.threads, limits=options.image_limits
        )

    return serve(load, options, writer)


def _kind(hint: Any) -> Any:
    """What turns a flag's text into a value of an option's type, X or X | None."""
    return next((kind for kind in typing.get_args(hint) if kind is not type(None)), hint)
