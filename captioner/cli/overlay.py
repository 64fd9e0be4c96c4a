"""`captioner overlay`: a caption over its photo, as a picture, an animation or a page."""

from __future__ import annotations

import argparse
import dataclasses
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.cli.common import add_caption_arguments, caption_options, image_limits, open_captioner
from captioner.cli.output import printable, report_failure
from captioner.errors import CaptionerError, ImageError, OptionsError
from captioner.options import MAX_WORDS

if TYPE_CHECKING:
    from captioner.images.opening import ImageInput
    from captioner.options import CaptionOptions
    from captioner.results import Caption

SUFFIXES = (".png", ".gif", ".webp", ".html")
PAGE_ALTERNATIVES = 2
"""Further captions shown on a page when nobody asked for a number."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "overlay",
        help="draw where the model looked for each word",
        description="Caption a photo and draw where the model looked for each word. The suffix of OUT says "
        "what is made: .png a figure, .gif or .webp an animation, .html an interactive page.",
        epilog="Exit status: 0 done; 1 the photo could not be captioned; 2 wrong usage.",
    )
    parser.add_argument("image", metavar="IMAGE", help="image file; - reads one from stdin")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        required=True,
        type=Path,
        help="a file ending in " + ", ".join(SUFFIXES),
    )
    parser.add_argument(
        "--style",
        default="panels",
        help="panels (default), heatmap, contour, spotlight, or matrix (words by cells, .png only); "
        "a page opens with panels or spotlight",
    )
    parser.add_argument(
        "--words", metavar="LIST", type=parse_words, help="only these words, counted from 1: 3,5 or 2-4"
    )
    parser.add_argument("--colormap", default="inferno", help="inferno (default), magma, viridis or cividis")
    parser.add_argument("--alpha", type=float, default=0.8, help="opacity at the peak, 0 to 1 (default 0.8)")
    parser.add_argument("--width", type=int, metavar="PIXELS", help="width of the picture, 200 to 4000")
    add_caption_arguments(parser)


def parse_words(text: str) -> tuple[int, ...]:
    """Positions counted from 0 of a list such as "3,5-7", which counts from 1."""
    positions: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            start, end = int(first), int(last if dash else first)
        except ValueError:
            start, end = 0, 0
        if not 1 <= start <= end <= MAX_WORDS:
            raise argparse.ArgumentTypeError(f"{text!r} does not name words by number, as 3,5 or 2-4 do")
        positions.extend(range(start - 1, end))
    return tuple(positions)


def run(args: argparse.Namespace) -> int:
    suffix = args.output.suffix.lower()
    _check(args, suffix)
    options = dataclasses.replace(caption_options(args), attention=True)
    if suffix == ".html":
        options = with_alternatives(options)
    limits = image_limits(args)
    image = sys.stdin.buffer.read(limits.max_bytes + 1) if args.image == "-" else args.image
    with open_captioner(args, draws=True) as captioner:
        [caption] = captioner.caption([image], options, return_errors=True)
    if isinstance(caption, CaptionerError):
        report_failure(args.image, caption)
        return 1
    try:
        picture = _render(args, image, caption, suffix)
    except ImageError as error:
        report_failure(args.image, error)
        return 1
    _write(args.output, picture)
    print(f"{printable(args.image)}\t{caption.text}")
    return 0


def _check(args: argparse.Namespace, suffix: str) -> None:
    # Before the model is loaded: what is wrong with the options should not take time to be said.
    from captioner.overlay.animation import ANIMATION_STYLES
    from captioner.overlay.page import PAGE_STYLES
    from captioner.overlay.scene import OverlayOptions, check_style
    from captioner.overlay.styles import STYLES

    if suffix not in SUFFIXES:
        raise OptionsError(f"OUT must end in {', '.join(SUFFIXES)}, got {args.output.name!r}", "output")
    if not args.output.parent.is_dir():
        raise OptionsError(f"there is no folder {args.output.parent}", "output")
    OverlayOptions(words=args.words, colormap=args.colormap, alpha=args.alpha, width=args.width)
    styles = {".png": STYLES, ".html": PAGE_STYLES}.get(suffix, ANIMATION_STYLES)
    check_style(args.style, styles)


def with_alternatives(options: CaptionOptions) -> CaptionOptions:
    """The options, with some alternatives for a page to show."""
    return dataclasses.replace(options, alternatives=options.alternatives or PAGE_ALTERNATIVES)


def _render(args: argparse.Namespace, image: ImageInput, caption: Caption, suffix: str) -> bytes:
    from captioner.overlay.animation import render_animation
    from captioner.overlay.page import render_html
    from captioner.overlay.render import render_overlay

    how = {"words": args.words, "colormap": args.colormap, "alpha": args.alpha, "width": args.width}
    how["limits"] = image_limits(args)
    if suffix == ".html":
        return render_html(image, caption, args.style, **how).encode()
    if suffix == ".png":
        target = io.BytesIO()
        render_overlay(image, caption, args.style, **how).save(target, "PNG", optimize=True)
        return target.getvalue()
    return render_animation(image, caption, args.style, format="GIF" if suffix == ".gif" else "WEBP", **how)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OptionsError(f"cannot write {path}: {error.strerror or error}", "output") from error
