"""`captioner overlay`: a caption over its photo, as a picture, an animation or a page."""

from __future__ import annotations

import argparse
import dataclasses
import io
import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from captioner.cli.common import add_caption_arguments, caption_options, image_limits, open_captioner
from captioner.cli.inputs import add_input_arguments, caption_inputs
from captioner.cli.output import printable, report_failure
from captioner.errors import CaptionerError, ImageError, OptionsError, OutputError
from captioner.images.urls import is_url
from captioner.options import MAX_WORDS

if TYPE_CHECKING:
    from captioner.images.opening import ImageInput
    from captioner.options import CaptionOptions
    from captioner.results import Caption

SUFFIXES = (".png", ".gif", ".webp", ".html")
STEM = "{stem}"
PAGE_ALTERNATIVES = 2
"""Alternatives shown on a page unless --alternatives is given."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "overlay",
        help="draw where the model looked for each word",
        description="Caption photos and draw where the model looked for each word. The suffix of OUT "
        "says what is made: .png a figure, .webp or .gif an animation (WebP is sharper and smaller), .html "
        "an interactive page.",
        epilog="Exit status: 0 done; 1 some photos could not be captioned; 2 wrong usage.",
    )
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image file; - reads one from stdin")
    add_input_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        required=True,
        type=Path,
        help=f"a file ending in {', '.join(SUFFIXES)}; for several photos, OUT must contain {STEM}, which "
        f"stands for the name of the photo, as in overlays/{STEM}.png",
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
        if not 1 <= start <= end:
            raise argparse.ArgumentTypeError(f"{text!r} does not name words by number, as 3,5 or 2-4 do")
        # No caption has more than MAX_WORDS words, so that one of those left is missing too.
        positions.extend(range(start - 1, min(end, start + MAX_WORDS)))
    return tuple(positions)


def run(args: argparse.Namespace) -> int:
    from captioner.folder.outputs.files import check_no_input

    suffix = args.output.suffix.lower()
    _check(args, suffix)
    options = dataclasses.replace(caption_options(args), attention=True)
    if suffix == ".html":
        options = with_alternatives(options)
    failed, written = False, set()
    with open_captioner(args, draws=True) as captioner:
        for name, image, caption in caption_inputs(captioner, args, args.images, options):
            try:
                if isinstance(caption, CaptionerError):
                    raise caption
                target = _target(args.output, name)
                if target in written:
                    raise OutputError(f"{target} is the overlay of an earlier photo of the same name")
                check_no_input(target, (name, *args.images))
                _write(target, _render(args, image, caption, suffix))
            except (ImageError, OutputError, OptionsError) as error:
                if isinstance(error, OptionsError) and (error.field != "words" or not _several(args)):
                    raise
                failed = True
                report_failure(name, error)
                continue
            written.add(target)
            print(f"{printable(name)}\t{printable(caption.text)}", flush=True)
    return int(failed)


def _target(output: Path, name: str) -> Path:
    """The path of the overlay of the image `name`."""
    path = urlsplit(name).path if is_url(name) else name
    stem = "stdin" if name == "-" else PurePath(path).stem
    return output.with_name(output.name.replace(STEM, stem or "photo"))


def _several(args: argparse.Namespace) -> bool:
    """Whether there may be several photos."""
    return len(args.images) > 1 or args.recursive


def _check(args: argparse.Namespace, suffix: str) -> None:
    # Before the model is loaded: what is wrong with the options should not take time to be said.
    from captioner.overlay.animation import ANIMATION_STYLES
    from captioner.overlay.page import PAGE_STYLES
    from captioner.overlay.scene import OverlayOptions, check_style
    from captioner.overlay.styles import STYLES

    for field in re.findall(r"\{[^{}]*\}", args.output.name):
        if field != STEM:
            raise OptionsError(f"OUT may have {STEM} in its name, not {field}", "output")
    if STEM not in args.output.name and _several(args):
        raise OptionsError(
            f"several photos need a file each: put {STEM} into the name, as in overlays/{STEM}{suffix}",
            "output",
        )
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
    from captioner.files import replacing

    try:
        with replacing(path) as file:  # a full disk leaves no half of a picture
            file.write(data)
    except OutputError as error:  # it would fail for every photo
        raise OptionsError(str(error), "output") from error
