"""`captioner demo`: caption photos and camera pictures in the browser."""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import threading
import webbrowser
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from captioner.cli.arguments.caption_options import with_alternatives
from captioner.cli.arguments.corrections import DEFAULT, corrections_of
from captioner.cli.arguments.inputs import add_root_argument
from captioner.cli.arguments.model import LocalModel, add_device_argument, add_model_argument
from captioner.cli.arguments.values import port
from captioner.cli.gallery_page import PageRequest, find_source, write_page
from captioner.cli.output import say
from captioner.errors import OptionsError, OutputError
from captioner.model.installed import used_model

if TYPE_CHECKING:
    from captioner.images.limits import ImageLimits
    from captioner_server.http.pages.gallery import Gallery


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="caption photos in the browser",
        description="Open a page in the browser that captions photos and camera pictures, or a gallery of a "
        "folder to review and correct its captions in. Only this machine can reach it. Ctrl-C ends it.",
    )
    parser.add_argument(
        "source",
        metavar="FOLDER|CAPTIONS.jsonl",
        type=Path,
        nargs="?",
        help="photos to review, or the output of captioner batch --attention (default: none)",
    )
    add_root_argument(parser)
    parser.add_argument(
        "--corrections",
        metavar="FILE",
        type=Path,
        help=f"where decisions are kept (default: {DEFAULT})",
    )
    add_model_argument(parser)
    add_device_argument(parser)
    parser.add_argument(
        "--port", type=port, default=8080, help="port of the page; 0 takes a free one (default: 8080)"
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address only")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    source: Path | None
    """Photos or captions to review; None for the page without any."""
    images: Path | None
    corrections: Path | None
    bundle: Path | None
    device: str
    port: int
    opens_browser: bool

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        if args.source is None and (args.images or args.corrections):
            raise OptionsError("--images and --corrections need a FOLDER or CAPTIONS.jsonl", "source")
        return cls(
            source=args.source,
            images=args.images,
            corrections=args.corrections,
            bundle=used_model(args.model),
            device=args.device or "auto",
            port=args.port,
            opens_browser=not args.no_browser,
        )


def run(args: argparse.Namespace) -> int:
    return demonstrate(Request.read(args))


def demonstrate(request: Request) -> int:
    """Serve the page until Ctrl-C; the exit status."""
    from captioner_server.process.environment import settle_environment

    settle_environment()
    from captioner.captioner import Captioner
    from captioner.trial import load_bundle
    from captioner_server.captioning.model_source import ModelSource
    from captioner_server.errors import ServerStartError
    from captioner_server.http.pages.gallery import GALLERY_PATH
    from captioner_server.main import SIGNALS
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
        return Captioner.load(load_bundle(request.bundle), device=request.device, limits=options.image_limits)

    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # by nohup, after its terminal is closed
    with TemporaryDirectory(prefix="captioner-gallery-") as folder:
        gallery = open_review(request, Path(folder), options.image_limits) if request.source else None

        def ready(url: str) -> None:
            address = url + (GALLERY_PATH if gallery else "/")
            print(f"{address} (Ctrl-C ends)", flush=True)
            if request.opens_browser:
                # A text browser runs in the foreground, and would keep the server from answering it.
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        try:
            return serve(
                [ModelSource("default", load, request.bundle)],
                options,
                writer,
                ready,
                gallery,
                signals=SIGNALS if is_kept else (*SIGNALS, signal.SIGHUP),
                at_end=partial(shutil.rmtree, folder, ignore_errors=True),
            )
        except ServerStartError as error:
            raise ServerStartError(f"{error}; --port 0 takes a free port") from error


def open_review(request: Request, folder: Path, limits: ImageLimits) -> Gallery:
    """Write the gallery of the photos into a folder, and open the file of decisions."""
    from captioner.folder.corrections import CorrectionsFile
    from captioner.options import CaptionOptions
    from captioner.overlay.gallery import GalleryOptions
    from captioner_server.http.pages.gallery import DECISIONS, Gallery

    assert request.source
    from_folder, root = find_source(request.source, request.images)
    try:
        decisions = CorrectionsFile(request.corrections or corrections_of(request.source))
    except OutputError as error:
        raise OutputError(f"{error}; --corrections FILE keeps decisions elsewhere") from error
    model = LocalModel(bundle=request.bundle, device=request.device, limits=limits)
    asked = PageRequest(
        source=request.source,
        from_folder=from_folder,
        root=root,
        model=model,
        options=with_alternatives(CaptionOptions(attention=True)),
        output=folder / "gallery.html",
        gallery=GalleryOptions(limits=limits, saves_to=DECISIONS),
        quiet=False,
        corrections=None,  # the page reads them from the server
    )
    summary = write_page(asked)
    say(f"decisions are kept in {decisions.path}")
    return Gallery(summary.page, decisions)
