"""`captioner gallery`: a page for a folder of photos, captioned now or earlier by `captioner batch`."""

from __future__ import annotations

import argparse
from pathlib import Path

from captioner.cli.arguments.caption_options import caption_options, with_alternatives
from captioner.cli.arguments.corrections import DEFAULT, found_corrections
from captioner.cli.arguments.inputs import add_root_argument
from captioner.cli.arguments.model import add_caption_arguments, chosen_model, image_limits
from captioner.cli.gallery_page import PageRequest, find_source, write_page
from captioner.cli.output import say
from captioner.printable import printable


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "gallery",
        help="make a page of a folder's photos and captions",
        description="Make a page for searching and sorting the captions of a folder of photos, which also "
        "shows where the model looked. It consists of OUT.html and the folder OUT.files; move both together.",
    )
    parser.add_argument(
        "source",
        metavar="FOLDER|CAPTIONS.jsonl",
        type=Path,
        help="photos to caption, or the output of captioner batch --attention",
    )
    parser.add_argument("-o", "--output", metavar="OUT.html", required=True, type=Path)
    add_root_argument(parser)
    parser.add_argument(
        "--overwrite", action="store_true", help="replace OUT.html, also if it is no page of a gallery"
    )
    parser.add_argument(
        "--corrections",
        metavar="FILE",
        type=Path,
        help=f"show captions as corrected, without rejected ones (default: {DEFAULT}, if it is there)",
    )
    parser.add_argument("--title", help="of the page (default: the folder's name)")
    parser.add_argument(
        "--link-photos",
        action="store_true",
        help="show the original files where a browser can, instead of copies of at most 1280 pixels",
    )
    add_caption_arguments(parser)


def read_request(args: argparse.Namespace) -> PageRequest:
    """What a command line asks for."""
    from captioner.overlay.gallery import GalleryOptions

    from_folder, root = find_source(args.source, args.images)
    return PageRequest(
        source=args.source,
        from_folder=from_folder,
        root=root,
        model=chosen_model(args, draws=True),
        options=with_alternatives(caption_options(args, attention=True)),
        output=args.output,
        gallery=GalleryOptions(
            title=args.title,
            link_photos=args.link_photos,
            limits=image_limits(args),
            overwrite=args.overwrite,
        ),
        quiet=args.quiet,
        corrections=args.corrections or found_corrections(args.source),
    )


def run(args: argparse.Namespace) -> int:
    return make_gallery(read_request(args))


def make_gallery(request: PageRequest) -> int:
    """Write the page; the exit status."""
    summary = write_page(request)
    print(printable(str(summary.page)))
    if summary.failed:
        say(f"{summary.failed} of {summary.photos} photos failed")
    return 1 if summary.failed else 0
