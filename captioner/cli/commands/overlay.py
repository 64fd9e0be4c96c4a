"""`captioner overlay`: a caption over its photo, as a picture, an animation or a page."""

from __future__ import annotations

import argparse
import errno
import io
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from captioner.cli.arguments.caption_options import caption_options, with_alternatives
from captioner.cli.arguments.inputs import Inputs, add_input_arguments
from captioner.cli.arguments.model import LocalModel, ServedModel, add_caption_arguments, chosen_model
from captioner.cli.output import report_failure
from captioner.errors import CaptionerError, ImageError, OptionsError, OutputError
from captioner.files.destination import writing
from captioner.images.urls import is_url
from captioner.options import MAX_WORDS
from captioner.printable import printable

if TYPE_CHECKING:
    from captioner.images.sources import ImageInput
    from captioner.options import CaptionOptions
    from captioner.overlay.scene import OverlayOptions
    from captioner.protocol import Outcome
    from captioner.results import Caption

MEDIA = {".png": "picture", ".gif": "animation", ".webp": "animation", ".html": "page"}
"""What an overlay is, by the suffix of its file."""
STEM = "{stem}"
_OF_ITS_NAME = {errno.ENAMETOOLONG, errno.EISDIR}
"""What keeps one overlay from being written, and no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    inputs: Inputs
    model: LocalModel | ServedModel
    options: CaptionOptions
    output: Path
    """With `STEM` in it, a file for each photo."""
    style: str
    drawing: OverlayOptions

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        """Raises `OptionsError` before a model is loaded."""
        from captioner.overlay.scene import OverlayOptions
        from captioner.overlay.styles import check_style

        inputs, suffix = Inputs.read(args), args.output.suffix.lower()
        _check_output(args.output, inputs)
        if args.style == "alt":
            raise OptionsError(
                "--style of overlay is how it is drawn; captioner caption --style alt prints alt text",
                "style",
            )
        check_style(args.style, MEDIA[suffix])
        options = caption_options(args, attention=True)
        return cls(
            inputs=inputs,
            model=chosen_model(args, draws=True),
            options=with_alternatives(options) if suffix == ".html" else options,
            output=args.output,
            style=args.style,
            drawing=OverlayOptions(
                words=args.words, colormap=args.colormap, alpha=args.alpha, width=args.width
            ),
        )


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from captioner.maps.colors import COLORMAPS, DEFAULT_ALPHA, DEFAULT_COLORMAP
    from captioner.overlay.styles import DEFAULT_STYLE

    parser = subparsers.add_parser(
        "overlay",
        help="draw where the model looked for each word",
        description="Caption photos and draw where the model looked for each word. The suffix of OUT "
        "says what is made: .png a figure, .webp or .gif an animation (WebP is sharper and smaller), .html "
        "an interactive page.",
    )
    add_input_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        required=True,
        type=Path,
        help=f"a file ending in {', '.join(MEDIA)}; for several photos, OUT must contain {STEM}, which "
        f"stands for the name of the photo, as in overlays/{STEM}.png; a folder that is missing is made then",
    )
    parser.add_argument("--style", default=DEFAULT_STYLE, help=f"{_describe_styles()} (default: %(default)s)")
    parser.add_argument(
        "--words", metavar="LIST", type=parse_words, help="only these words, counted from 1: 3,5 or 2-4"
    )
    parser.add_argument(
        "--colormap", default=DEFAULT_COLORMAP, help=f"one of {', '.join(COLORMAPS)} (default: %(default)s)"
    )
    parser.add_argument(
        "--alpha",
        type=float,
        default=DEFAULT_ALPHA,
        help="opacity at the peak, 0 to 1 (default: %(default)s)",
    )
    parser.add_argument("--width", type=int, metavar="PIXELS", help="width of the picture, 200 to 4000")
    add_caption_arguments(parser)


def _describe_styles() -> str:
    """Each style, what it shows, and the suffixes of OUT that it is for where it is not for all."""
    from captioner.overlay.styles import STYLES

    lines = []
    for name, style in STYLES.items():
        suffixes = [suffix for suffix, medium in MEDIA.items() if medium in style.media]
        only = "" if len(suffixes) == len(MEDIA) else f" ({', '.join(suffixes)})"
        lines.append(f"{name}: {style.help}{only}".replace("%", "%%"))
    return "; ".join(lines)


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
    return draw(Request.read(args))


def draw(request: Request) -> int:
    """Caption the photos and write their overlays; the exit status."""
    failed, written = False, set[Path]()
    with request.model.open() as captioner:
        for name, image, outcome in request.inputs.caption(captioner, request.options):
            try:
                target, caption = _write_one(request, name, image, outcome, written)
            except (ImageError, OutputError, OptionsError) as error:
                if isinstance(error, OptionsError) and not (
                    error.field == "words" and request.inputs.are_several
                ):
                    raise
                failed = True
                report_failure(name, error)
                continue
            written.add(target)
            print(f"{printable(name)}\t{printable(caption.text)}", flush=True)
    return int(failed)


def _write_one(
    request: Request, name: str, image: ImageInput | ImageError, outcome: Outcome, written: Collection[Path]
) -> tuple[Path, Caption]:
    """Write the overlay of one photo; its path and caption. Raises the reason why there is none."""
    from captioner.folder.outputs.place import check_no_input

    if isinstance(outcome, CaptionerError):
        raise outcome
    assert not isinstance(image, ImageError)
    target = _target(request.output, name)
    if target in written:
        raise OutputError(f"{target} is the overlay of an earlier photo of the same name")
    check_no_input(target, (name, *request.inputs.names))
    if STEM in str(request.output):
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
    _write(target, _render(request, image, outcome), is_one=not request.inputs.are_several)
    return target, outcome


def _target(output: Path, name: str) -> Path:
    """The path of the overlay of the image `name`."""
    path = urlsplit(name).path if is_url(name) else name
    stem = "stdin" if name == "-" else PurePath(path).stem
    # Dots alone would be another folder.
    return Path(str(output).replace(STEM, stem if stem.strip(".") else "photo"))


def _check_output(output: Path, inputs: Inputs) -> None:
    suffix = output.suffix.lower()
    to_make = output.name if output.parent.is_dir() else str(output)  # a folder may be called {any}
    for field in re.findall(r"\{[^{}]*\}", to_make):
        if field != STEM:
            raise OptionsError(f"OUT may have {STEM} in its name, not {field}", "output")
    if STEM not in str(output) and inputs.are_several:
        raise OptionsError(
            f"several photos need a file each: put {STEM} into the name, as in "
            f"overlays/{STEM}{suffix or '.png'}",
            "output",
        )
    if suffix not in MEDIA:
        raise OptionsError(f"OUT must end in {', '.join(MEDIA)}, got {output.name!r}", "output")
    if STEM not in str(output) and not output.parent.is_dir():
        raise OptionsError(f"there is no folder {output.parent}", "output")


def _render(request: Request, image: ImageInput, caption: Caption) -> bytes:
    from captioner.overlay.animation import render_animation
    from captioner.overlay.page import render_html
    from captioner.overlay.render import render_overlay

    suffix, limits = request.output.suffix.lower(), request.inputs.limits
    drawing = (image, caption, request.style, request.drawing)
    if suffix == ".html":
        return render_html(*drawing, limits=limits).encode()
    if suffix == ".png":
        target = io.BytesIO()
        render_overlay(*drawing, limits=limits).save(target, "PNG", optimize=True)
        return target.getvalue()
    return render_animation(*drawing, format="GIF" if suffix == ".gif" else "WEBP", limits=limits)


def _write(path: Path, data: bytes, *, is_one: bool) -> None:
    """Raises `OptionsError` for what is wrong with all overlays; that is all where there `is_one`."""
    from captioner.files.destination import replacing

    try:
        with replacing(path) as file:  # a full disk leaves no half of a picture
            file.write(data)
    except OutputError as error:
        if not is_one and getattr(error.__cause__, "errno", None) in _OF_ITS_NAME:
            raise
        raise OptionsError(str(error), "output") from error
