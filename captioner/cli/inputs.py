"""Images that are named on the command line: a file, a folder, stdin, a URL."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.cli.common import add_keywords_argument, image_limits, report_unknown_keywords
from captioner.errors import CaptionerError, DataError, ImageUnreadableError
from captioner.images.urls import is_url

if TYPE_CHECKING:
    from captioner.images.opening import ImageInput, ImageLimits
    from captioner.keywords import KeywordOptions
    from captioner.options import CaptionOptions
    from captioner.protocol import ImageCaptioner, Outcome

BATCH_SIZE = 16
"""Images captioned at a time: enough to keep the model busy, few enough to show progress."""
FETCHES_AT_ONCE = 8


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `caption_inputs` reads."""
    parser.add_argument(
        "--recursive", action="store_true", help="replace a folder by the images in it and below it"
    )
    parser.add_argument(
        "--allow-urls", action="store_true", help="fetch http and https URLs, from public addresses only"
    )
    add_keywords_argument(parser)


def caption_inputs(
    captioner: ImageCaptioner, args: argparse.Namespace, names: Iterable[str], options: CaptionOptions
) -> Iterator[tuple[str, ImageInput, Outcome]]:
    """Name, image and result of each image, in order; folders stand for their images with --recursive."""
    from functools import partial
    from itertools import islice

    names = expand(names, recursive=args.recursive)
    caption: Callable[[Sequence[ImageInput | CaptionerError]], Iterable[Outcome]] = partial(
        _caption, captioner, options
    )
    if args.include_keywords:
        from captioner.keywords import KeywordOptions

        keywords = KeywordOptions(captioner, options)  # type: ignore[arg-type]  # not a server
        caption = partial(_caption_with_keywords, captioner, keywords, image_limits(args))
    stdin: list[bytes | CaptionerError] = []
    while batch := list(islice(names, BATCH_SIZE)):
        if "-" in batch and not stdin:
            stdin.append(_read_stdin(image_limits(args).max_bytes + 1))  # one more: refused
        opened = _open_all(batch, args, stdin)
        yield from zip(batch, opened, caption(opened), strict=True)
    if args.include_keywords and not args.quiet:
        report_unknown_keywords(keywords.unknown)


def _read_stdin(most_bytes: int) -> bytes | CaptionerError:
    if sys.stdin is None:  # the shell closed it: <&-
        return ImageUnreadableError("stdin is closed")
    return sys.stdin.buffer.read(most_bytes)


def expand(names: Iterable[str], *, recursive: bool) -> Iterator[str]:
    """The names, with `recursive` the images in a folder in the folder's place, sorted; a folder without
    images, or one that cannot be listed, stays."""
    for name in names:
        if recursive and os.path.isdir(name):  # noqa: PTH112 (names that are no paths are False)
            from captioner.folder.sources import FolderSource

            try:
                found = sorted(one.name for one in FolderSource(Path(name)).find())
            except DataError:
                found = []
            yield from (str(Path(name) / one) for one in found)
            if not found:
                yield name
        else:
            yield name


def _open_all(
    names: Sequence[str], args: argparse.Namespace, stdin: Sequence[bytes | CaptionerError]
) -> list[ImageInput | CaptionerError]:
    if not any(map(is_url, names)):
        return [_open(name, args, stdin) for name in names]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(FETCHES_AT_ONCE) as pool:
        return list(pool.map(lambda name: _open(name, args, stdin), names))


def _open(
    name: str, args: argparse.Namespace, stdin: Sequence[bytes | CaptionerError]
) -> ImageInput | CaptionerError:
    if name == "-":
        return stdin[0]
    if args.recursive and os.path.isdir(name):  # noqa: PTH112
        try:
            os.scandir(name).close()
        except OSError as error:
            return ImageUnreadableError(f"this folder: {error.strerror}")
        return ImageUnreadableError("there are no images in this folder")
    if is_url(name) and not os.path.lexists(name):
        if not name.lower().startswith(("http://", "https://")):
            return ImageUnreadableError("not an http or https URL; batch --engine ray reads object stores")
        if not args.allow_urls:
            return ImageUnreadableError("is a URL; --allow-urls fetches http and https URLs")
        from captioner.images.fetch import fetch

        try:
            return fetch(name, image_limits(args).max_bytes)
        except CaptionerError as error:
            return error
    if os.path.isdir(name):  # noqa: PTH112
        return ImageUnreadableError(
            "is a folder; use --recursive to print its captions, or captioner batch to write them to a file"
        )
    found = args.recursive and name not in args.images  # a pipe that was named is read
    if found and os.path.exists(name) and not os.path.isfile(name):  # noqa: PTH110 PTH113
        return ImageUnreadableError("not a regular file")
    return name


def _caption(
    captioner: ImageCaptioner, options: CaptionOptions, opened: Sequence[ImageInput | CaptionerError]
) -> list[Outcome]:
    images = [image for image in opened if not isinstance(image, CaptionerError)]
    if len(images) == len(opened) == 1:  # without threads for reading ahead
        return [captioner.caption(images[0], options, return_errors=True)]
    outcomes = iter(list(captioner.caption_each(images, options)))  # to the end: a server's answer too
    return [image if isinstance(image, CaptionerError) else next(outcomes) for image in opened]


def _caption_with_keywords(
    captioner: ImageCaptioner,
    keywords: KeywordOptions,
    limits: ImageLimits,
    opened: Sequence[ImageInput | CaptionerError],
) -> Iterator[Outcome]:
    from captioner.images.keywords import read_keywords

    for image in opened:
        try:
            if isinstance(image, CaptionerError):
                raise image
            options = keywords.of(read_keywords(image, limits))
        except CaptionerError as error:
            yield error
        else:
            yield captioner.caption(image, options, return_errors=True)
