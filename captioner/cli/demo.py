"""`captioner demo`: caption photos and camera pictures in the browser."""

from __future__ import annotations

import argparse
import logging
import threading
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from captioner.cli.arguments.model import add_device_argument, add_model_argument


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="caption photos in the browser",
        description="Open a page in the browser that captions photos and camera pictures. Only this machine "
        "can reach it. Ctrl-C ends it.",
    )
    add_model_argument(parser)
    add_device_argument(parser)
    parser.add_argument(
        "--port", type=int, default=8080, help="port of the page; 0 takes a free one (default: 8080)"
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address only")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    bundle: Path | None
    device: str
    port: int
    opens_browser: bool

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        return cls(
            bundle=args.model,
            device=args.device or "auto",
            port=args.port,
            opens_browser=not args.no_browser,
        )


def run(args: argparse.Namespace) -> int:
    return demonstrate(Request.read(args))


def demonstrate(request: Request) -> int:
    """Serve the page until Ctrl-C; the exit status."""
    from captioner_server.environment import settle_environment

    settle_environment()
    from captioner.captioner import Captioner
    from captioner_server.captioning.model_source import ModelSource
    from captioner_server.errors import ServerStartError
    from captioner_server.main import run as serve
    from captioner_server.observation import logs
    from captioner_server.options import ServerOptions

    # The photos are this machine's own: HEIC of phones is accepted too, which servers leave out by default.
    options = ServerOptions(
        host="127.0.0.1",
        port=0,
        http_port=request.port,
        http_hosts="localhost",
        lame_duck_s=0.0,
        formats="all",
    )
    writer = logs.set_up("text", logging.WARNING)

    def load() -> Captioner:
        return Captioner.load(request.bundle, device=request.device, limits=options.image_limits)

    def ready(url: str) -> None:
        print(f"{url}/ (Ctrl-C ends)", flush=True)
        if request.opens_browser:
            # A text browser runs in the foreground, and would keep the server from answering it.
            threading.Thread(target=webbrowser.open, args=(f"{url}/",), daemon=True).start()

    try:
        return serve([ModelSource("default", load, request.bundle)], options, writer, ready)
    except ServerStartError as error:
        raise ServerStartError(f"{error}; --port 0 takes a free port") from error
