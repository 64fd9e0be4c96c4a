"""`captioner mcp`: tools for assistants, over the Model Context Protocol."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.cli.arguments.caption_options import caption_options
from captioner.cli.arguments.model import LocalModel, ServedModel, add_caption_arguments, chosen_model
from captioner.cli.arguments.values import port
from captioner.errors import OptionsError, reason_of

if TYPE_CHECKING:
    from captioner.options import CaptionOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    folders: Sequence[Path]
    model: LocalModel | ServedModel
    options: CaptionOptions
    http_port: int | None
    """None for stdin and stdout."""

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        return cls(
            folders=args.folders,
            model=chosen_model(args),
            options=caption_options(args, attention=False),
            http_port=args.http_port,
        )


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "mcp",
        help="offer captions to an assistant (MCP)",
        description="Offer an assistant tools to caption photos, to search their captions and to show where "
        "the model looked, over the Model Context Protocol: on stdin and stdout, or over HTTP on this "
        "machine. It can use photos in the folders named here and below them, and no others. Needs the "
        "extra [mcp].",
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="a folder whose photos the assistant may use"
    )
    parser.add_argument(
        "--http-port",
        type=port,
        metavar="PORT",
        help="listen at http://127.0.0.1:PORT/mcp (streamable HTTP) instead of on stdin; 0 takes a free port",
    )
    add_caption_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from captioner.mcp.folders import AllowedFolders
    from captioner.mcp.library import Library
    from captioner.mcp.tools import make_server

    request = Request.read(args)
    if request.http_port is None and sys.stdin is None:
        raise OptionsError("stdin is closed, and an assistant talks there; or use --http-port", "http_port")
    folders = AllowedFolders(request.folders)
    with request.model.open() as captioner:
        server = make_server(Library(folders, captioner, request.options))
        if request.http_port is None:
            server.run("stdio")
        else:
            _serve(server.streamable_http_app(), request.http_port)
    return 0


def _serve(app: Any, port: int) -> None:
    """Serve on loopback; the application rejects names of other machines and pages of other sites."""
    import uvicorn

    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise OptionsError(f"cannot listen on 127.0.0.1:{port}: {reason_of(error)}", "http_port") from error
    with listening:
        place = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        print(f"{place} (Ctrl-C ends)", file=sys.stderr, flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])
