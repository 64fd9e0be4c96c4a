"""Images that are named on the command line: a file, a folder, stdin, a URL."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.cli.arguments.model import image_limits
from captioner.cli.output import say
from captioner.errors import DataError, ImageError, ImageUnreadableError, reason_of
from captioner.images.suffixes import is_archive
from captioner.images.urls import is_data_url, is_url
from captioner.options import MAX_INCLUDE

if TYPE_CHECKING:
    from captioner.images.limits import ImageLimits
    from captioner.images.sources import ImageInput
    from captioner.options import CaptionOptions
    from captioner.protocol import ImageCaptioner, Outcome

_FETCHES_AT_ONCE = 8
_KEYWORDS_SHOWN = 10
IS_ARCHIVE = "is an archive; captioner batch captions archives"


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the names of images and the flags that `Inputs.read` reads."""
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image file; - reads one from stdin")
    parser.add_argument(
        "--recursive", action="store_true", help="replace a folder by the images in it and below it"
    )
    parser.add_argument(
        "--allow-urls", action="store_true", help="fetch http and https URLs, from public addresses only"
    )
    add_keywords_argument(parser)


def add_keywords_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--include-keywords`, the photo's own words for `--include`."""
    parser.add_argument(
        "--include-keywords",
        action="store_true",
        default=None,
        help="each caption must contain the first XMP or IPTC keywords of its photo that the model knows, "
        f"at most {MAX_INCLUDE} together with --include",
    )


def report_unknown_keywords(unknown: Counter[str]) -> None:
    """Print the keywords that `KeywordOptions` skipped to stderr, the most frequent first."""
    if not unknown:
        return
    shown = [f"{word} ({count})" for word, count in unknown.most_common(_KEYWORDS_SHOWN)]
    more = f" and {len(unknown) - len(shown)} more" if len(unknown) > len(shown) else ""
    say(f"keywords that the model does not know: {', '.join(shown)}{more}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The images of a command."""

    names: tuple[str, ...]
    recursive: bool
    allows_urls: bool
    includes_keywords: bool
    limits: ImageLimits
    quiet: bool
    _stdin: list[bytes | ImageError] = field(default_factory=list, compare=False, repr=False)
    """What was read from stdin, once."""

    @classmethod
    def read(cls, args: argparse.Namespace) -> Inputs:
        return cls(
            names=tuple(args.images),
            recursive=args.recursive,
            allows_urls=args.allow_urls,
            includes_keywords=bool(args.include_keywords),
            limits=image_limits(args),
            quiet=args.quiet,
        )

    @property
    def are_several(self) -> bool:
        """Whether there may be several photos."""
        return len(self.names) > 1 or self.recursive

    def caption(
        self, captioner: ImageCaptioner, options: CaptionOptions
    ) -> Iterator[tuple[str, ImageInput | ImageError, Outcome]]:
        """Name, image and result of each image, in order. Images are read ahead."""
        taken: deque[tuple[str, ImageInput | ImageError]] = deque()

        def images() -> Iterator[ImageInput | ImageError]:
            for one in self._open_ahead():
                taken.append(one)
                yield one[1]

        if self.includes_keywords:
            outcomes = self._with_keywords(captioner, options, images())
        elif self.are_several:
            outcomes = captioner.caption_each(images(), options)
        else:  # as one call of its own
            one = captioner.caption
            outcomes = (
                image if isinstance(image, ImageError) else one(image, options, return_errors=True)
                for image in images()
            )
        for outcome in outcomes:
            name, image = taken.popleft()
            yield name.partition(",")[0] if is_data_url(name) else name, image, outcome

    def _with_keywords(
        self,
        captioner: ImageCaptioner,
        options: CaptionOptions,
        images: Iterable[ImageInput | ImageError],
    ) -> Iterator[Outcome]:
        from captioner.images.keywords import read_keywords
        from captioner.images.sources import rereadable
        from captioner.keyword_options import KeywordOptions

        keywords = KeywordOptions(captioner, options)  # type: ignore[arg-type]  # not a server
        for image in images:
            try:
                image = rereadable(image, self.limits)
                own = keywords.of(read_keywords(image, self.limits))
            except ImageError as error:
                yield error
            else:
                yield captioner.caption(image, own, return_errors=True)
        if not self.quiet:
            report_unknown_keywords(keywords.unknown)

    def _open_ahead(self) -> Iterator[tuple[str, ImageInput | ImageError]]:
        """Each image with its name; a few URLs are fetched at the same time."""
        if not any(map(is_url, self.names)):
            yield from ((name, self._open(name)) for name in self._expand())
            return
        from concurrent.futures import Future, ThreadPoolExecutor

        ahead: deque[tuple[str, Future[ImageInput | ImageError]]] = deque()
        with ThreadPoolExecutor(_FETCHES_AT_ONCE) as pool:
            try:
                for name in self._expand():
                    ahead.append((name, pool.submit(self._open, name)))
                    if len(ahead) > _FETCHES_AT_ONCE:
                        first, opened = ahead.popleft()
                        yield first, opened.result()
                for name, opened in ahead:
                    yield name, opened.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _expand(self) -> Iterator[str]:
        """The names, each folder replaced by the images in it, sorted, if `recursive`; a folder without
        images, or one that cannot be listed, stays."""
        for name in self.names:
            if self.recursive and os.path.isdir(name):  # noqa: PTH112 (names that are no paths are False)
                from captioner.folder.sources.files import find_photos

                try:
                    photos = find_photos(Path(name))
                except DataError:
                    yield name
                else:
                    yield from (str(Path(name) / photo.name) for photo in photos)
            else:
                yield name

    def _open(self, name: str) -> ImageInput | ImageError:
        if name == "-":
            if not self._stdin:
                self._stdin.append(_read_stdin(self.limits.max_bytes + 1))  # one more: rejected
            return self._stdin[0]
        if is_url(name) and not os.path.lexists(name):
            return self._fetch(name)
        if os.path.isdir(name):  # noqa: PTH112
            return self._folder_error(name)
        if is_archive(name) and os.path.isfile(name):  # noqa: PTH113
            return ImageUnreadableError(IS_ARCHIVE)
        found = self.recursive and name not in self.names  # a pipe that was named is read
        if found and os.path.exists(name) and not os.path.isfile(name):  # noqa: PTH110 PTH113
            return ImageUnreadableError("not a regular file")
        return name

    def _fetch(self, url: str) -> bytes | ImageError:
        if not url.lower().startswith(("http://", "https://")):
            return ImageUnreadableError("not an http or https URL; batch --engine ray reads object stores")
        if not self.allows_urls:
            return ImageUnreadableError("is a URL; --allow-urls fetches http and https URLs")
        from captioner.images.fetch import fetch

        try:
            return fetch(url, self.limits.max_bytes)
        except ImageError as error:
            return error

    def _folder_error(self, name: str) -> ImageError:
        if not self.recursive:
            return ImageUnreadableError(
                "is a folder; use --recursive to print its captions, or captioner batch to write them to a "
                "file"
            )
        try:
            os.scandir(name).close()
        except OSError as error:
            return ImageUnreadableError(f"this folder: {reason_of(error)}")
        return ImageUnreadableError("there are no images in this folder")


def _read_stdin(most_bytes: int) -> bytes | ImageError:
    if sys.stdin is None:  # the shell closed it: <&-
        return ImageUnreadableError("stdin is closed")
    return sys.stdin.buffer.read(most_bytes)


def add_root_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--images`, for captions of an earlier run."""
    parser.add_argument(
        "--images",
        metavar="ROOT",
        type=Path,
        help="folder that names in CAPTIONS.jsonl are relative to (default: that of the file)",
    )
