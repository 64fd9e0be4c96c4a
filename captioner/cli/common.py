"""What the commands that caption share: their options, and a captioner, local or on a server."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, overload

from captioner.errors import OptionsError
from captioner.options import OPTION_SPECS, CaptionOptions, OptionSpec

if TYPE_CHECKING:
    from captioner.errors import CaptionerError
    from captioner.images.opening import ImageInput, ImageLimits
    from captioner.results import Caption
    from captioner_client import CaptionClient, ClientOptions


_LOCAL_FLAGS = {
    "model": "--model",
    "device": "--device",
    "threads": "--threads",
    "max_pixels": "--max-pixels",
}
"""What only a local captioner can be told; a server has been told when it was started."""


class CaptionSource(Protocol):
    """What captions images for a command: a `Captioner`, or a server that looks like one.

    The caption of each image in order; with `return_errors` an error in the place of one that failed.
    """

    @overload
    def caption(
        self, images: Sequence[ImageInput], options: CaptionOptions | None = ...
    ) -> Sequence[Caption]: ...

    @overload
    def caption(
        self, images: Sequence[ImageInput], options: CaptionOptions | None = ..., *, return_errors: bool
    ) -> Sequence[Caption | CaptionerError]: ...


def add_search_arguments(parser: argparse.ArgumentParser, defaults: str = "those of the model") -> None:
    """Add the flags that `caption_options` reads."""
    search = parser.add_argument_group(f"search (defaults: {defaults})")
    for name, spec in OPTION_SPECS.items():
        if spec.flag:
            search.add_argument(
                spec.flag,
                dest=name,
                action="extend" if spec.kind is str else "store",
                type=_parser(spec),
                metavar=spec.metavar,
                help=spec.help,
            )


def add_caption_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `caption_options` and `open_captioner` read."""
    add_search_arguments(parser)
    local = parser.add_argument_group("model")
    local.add_argument(
        "--model", metavar="BUNDLE", type=Path, help="model bundle (default: the embedded model)"
    )
    local.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        help="auto (default) takes CUDA where it works, and says what it took",
    )
    local.add_argument("--threads", type=_positive, metavar="N", help="CPU threads (default: one a core)")
    local.add_argument("--max-pixels", type=_positive, metavar="N", help="refuse images of more pixels")
    local.add_argument("--max-bytes", type=_positive, metavar="N", help="refuse larger image files")
    server = parser.add_argument_group("server")
    server.add_argument(
        "--server",
        metavar="HOST:PORT",
        help="let a server caption; several addresses, separated by commas, take turns",
    )
    server.add_argument("--timeout-s", type=float, metavar="S", help="longest wait for an answer, in seconds")
    server.add_argument("--tls", action="store_true", help="encrypt, and check the server's certificate")
    server.add_argument(
        "--root-certificates", type=Path, metavar="PEM", help="authorities to trust with --tls"
    )
    server.add_argument("--token-file", type=Path, metavar="FILE", help="file with the server's bearer token")


def caption_options(args: argparse.Namespace) -> CaptionOptions:
    """The search that the flags ask for. Raises `OptionsError` that names the flag."""
    names = [name for name, spec in OPTION_SPECS.items() if spec.flag]
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    try:
        return CaptionOptions(**given)
    except OptionsError as error:
        raise OptionsError(f"{OPTION_SPECS[error.field].flag}: {error}", error.field) from error


def _parser(spec: OptionSpec) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return spec.parse(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected {_EXPECTED[spec.kind]}, got {text!r}") from None

    return parse


_EXPECTED = {int: "a whole number", float: "a number", tuple: "ROWSxCOLUMNS, such as 14x14"}


def image_limits(args: argparse.Namespace) -> ImageLimits:
    """The limits that the flags ask for."""
    from captioner.images.opening import DEFAULT_LIMITS

    given = {name: getattr(args, name) for name in ("max_pixels", "max_bytes") if getattr(args, name)}
    return dataclasses.replace(DEFAULT_LIMITS, **given)


@contextmanager
def open_captioner(args: argparse.Namespace, *, draws: bool = False) -> Iterator[CaptionSource]:
    """What captions, as the flags ask for: the model here, or a server. A command that `draws` decodes photos
    itself, so that their pixels can be limited here even then.

    Raises a `CaptionerError` when it cannot be had.
    """
    if args.server is None:
        yield _open_local(args)
        return
    for name, flag in _LOCAL_FLAGS.items():
        if getattr(args, name) is not None and not (draws and name == "max_pixels"):
            raise OptionsError(f"{flag} is for captioning here, not with --server", name)
    from captioner_client import CaptionClient

    with CaptionClient(args.server, client_options(args)) as client:
        yield _Remote(client)


def _open_local(args: argparse.Namespace) -> CaptionSource:
    from captioner.captioner import Captioner

    captioner = Captioner.load(
        args.model, device=args.device or "auto", threads=args.threads, limits=image_limits(args)
    )
    if args.device in (None, "auto") and (captioner.device != "cpu" or _has_gpu()):
        print(f"captioner: running on {captioner.device} ({captioner.provider})", file=sys.stderr)
    return captioner


def _has_gpu() -> bool:
    """Whether running on the CPU is news: there is a GPU, or a runtime that is made for one."""
    import onnxruntime

    made_for_gpu = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    return made_for_gpu or Path("/proc/driver/nvidia/version").exists()


class _Remote:
    def __init__(self, client: CaptionClient) -> None:
        self._client = client

    def caption(
        self,
        images: Sequence[ImageInput],
        options: CaptionOptions | None = None,
        *,
        return_errors: bool = False,
    ) -> Sequence[Any]:
        return self._client.caption_many(images, options, return_errors=return_errors)


def client_options(args: argparse.Namespace) -> ClientOptions:
    """What the flags say of how to talk to servers."""
    from captioner_client import ClientOptions

    given: dict[str, Any] = {"tls": args.tls, "root_certificates": args.root_certificates}
    if args.timeout_s is not None:
        given["timeout_s"] = args.timeout_s
    if args.max_bytes is not None:
        given["max_image_bytes"] = args.max_bytes
    if args.token_file is not None:
        try:
            given["token"] = args.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text file"
            raise OptionsError(f"--token-file: {args.token_file}: {reason}", "token_file") from error
    return ClientOptions(**given)


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return number
