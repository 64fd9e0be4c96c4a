"""Shared by the commands that caption: their options, and a captioner, local or on a server."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.cli.output import printable
from captioner.errors import OptionsError
from captioner.model.device import DEVICE_HELP, DEVICES, check_device
from captioner.options import MAX_INCLUDE, OPTION_SPECS, CaptionOptions, OptionSpec

if TYPE_CHECKING:
    from captioner.images.opening import ImageLimits
    from captioner.protocol import ImageCaptioner
    from captioner_client import ClientOptions


_LOCAL_OPTIONS = (
    "model",
    "device",
    "threads",
    "precision",
    "lanes",
    "batch_size",
    "workers",
    "max_pixels",
    "include_keywords",
)
"""Options of a local captioner; a server has its own."""
_SERVER_OPTIONS = ("timeout_s", "tls", "root_certificates", "token_file")
"""Options of the connection to a server."""
_KEYWORDS_SHOWN = 10

REFERENCES_HELP = (
    "captions that people wrote: JSON of Karpathy or COCO, Flickr8k tokens, CSV with the columns image and "
    "caption, JSON lines (corrections of a gallery, too), or a folder of photos with text files"
)


def add_search_arguments(
    parser: argparse.ArgumentParser,
    defaults: str = "those of the model",
    names: Collection[str] = tuple(OPTION_SPECS),
) -> None:
    """Add flags for the options with these names, for `caption_options` to read."""
    search = parser.add_argument_group(f"search (defaults: {defaults})")
    for name, spec in OPTION_SPECS.items():
        if spec.flag and name in names:
            search.add_argument(
                spec.flag,
                dest=name,
                action="extend" if spec.kind is str else "store",
                type=_parser(spec),
                metavar=spec.metavar,
                help=spec.help,
            )


def bundle_path(text: str) -> Path | None:
    """The folder of a bundle; None for "default", the embedded model, as in Python and for `serve`."""
    return None if text == "default" else Path(text)


def add_caption_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `caption_options` and `open_captioner` read."""
    parser.add_argument("-q", "--quiet", action="store_true", help="print only failures on stderr")
    add_search_arguments(parser)
    local = parser.add_argument_group("model")
    local.add_argument(
        "--model", metavar="BUNDLE", type=bundle_path, help="model bundle (default: the embedded model)"
    )
    add_device_argument(local)
    add_threads_argument(local)
    local.add_argument(
        "--precision",
        choices=("auto", "float32", "int8"),
        help="auto (default) computes in INT8 where the model has it and the CPU gains from it",
    )
    local.add_argument("--max-pixels", type=_positive, metavar="N", help="reject images with more pixels")
    local.add_argument("--max-bytes", type=_positive, metavar="N", help="reject larger image files")
    server = parser.add_argument_group("server")
    server.add_argument(
        "--server",
        metavar="HOST:PORT",
        help="caption on this server, or on several (addresses separated by commas)",
    )
    server.add_argument("--timeout-s", type=float, metavar="S", help="maximum wait for an answer, in seconds")
    server.add_argument(
        "--tls", action="store_true", default=None, help="use TLS, and verify the server's certificate"
    )
    server.add_argument("--root-certificates", type=Path, metavar="PEM", help="trusted authorities for --tls")
    server.add_argument("--token-file", type=Path, metavar="FILE", help="file with one bearer token")


def add_device_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--device`; None if it is not given."""
    parser.add_argument("--device", type=_device, metavar=DEVICES, help=f"{DEVICE_HELP} (default: auto)")


def add_threads_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--threads`; None if it is not given."""
    parser.add_argument("--threads", type=_positive, metavar="N", help="CPU threads (default: one per core)")


def caption_options(args: argparse.Namespace) -> CaptionOptions:
    """The caption options that the flags specify. Raises `OptionsError` that names the flag."""
    names = [name for name, spec in OPTION_SPECS.items() if spec.flag]
    given = {name: value for name in names if (value := getattr(args, name, None)) is not None}
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


_EXPECTED = {
    int: "a whole number",
    float: "a number",
    str: "one or more words",
    tuple: "ROWSxCOLUMNS, such as 14x14",
}


def image_limits(args: argparse.Namespace) -> ImageLimits:
    """The image limits that the flags specify."""
    from captioner.images.opening import DEFAULT_LIMITS

    given = {name: getattr(args, name) for name in ("max_pixels", "max_bytes") if getattr(args, name)}
    return dataclasses.replace(DEFAULT_LIMITS, **given)


@contextmanager
def open_captioner(args: argparse.Namespace, *, draws: bool = False) -> Iterator[ImageCaptioner]:
    """The captioner that the flags specify: a model in this process, or a server. A command that `draws` also
    decodes photos itself, so that `--max-pixels` applies even with a server.

    Raises a `CaptionerError` if it cannot be opened.
    """
    if args.server is None:
        check_server_flags(args)
        yield _open_local(args)
        return
    check_local_flags(args, draws=draws)
    from captioner_client import CaptionClient

    with CaptionClient(args.server, client_options(args)) as client:
        yield client


def given_flags(args: argparse.Namespace, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Those of the options `names` that the user has set, each with its flag: ("max_pixels", "--max-pixels").
    Their defaults must be None or False."""
    for name in names:
        value = getattr(args, name, None)
        if value is not None and value is not False:
            yield name, "--" + name.replace("_", "-")


def check_local_flags(args: argparse.Namespace, *, draws: bool = False) -> None:
    """Raise `OptionsError` for a flag that does not apply to a server."""
    for name, flag in given_flags(args, _LOCAL_OPTIONS):
        if not (draws and name == "max_pixels"):
            raise OptionsError(f"{flag} cannot be used with --server", name)


def check_server_flags(args: argparse.Namespace) -> None:
    """Raise `OptionsError` for a flag that does not apply to a local captioner."""
    for name, flag in given_flags(args, _SERVER_OPTIONS):
        raise OptionsError(f"{flag} needs --server", name)


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
    shown = [f"{printable(word)} ({count})" for word, count in unknown.most_common(_KEYWORDS_SHOWN)]
    more = f" and {len(unknown) - len(shown)} more" if len(unknown) > len(shown) else ""
    print(f"captioner: keywords that the model does not know: {', '.join(shown)}{more}", file=sys.stderr)


def _open_local(args: argparse.Namespace) -> ImageCaptioner:
    from captioner.captioner import Captioner

    captioner = Captioner.load(
        args.model,
        device=args.device or "auto",
        threads=args.threads,
        lanes=getattr(args, "lanes", 1),
        precision=args.precision or "auto",
        limits=image_limits(args),
    )
    if not args.quiet and args.device in (None, "auto") and (captioner.device != "cpu" or _has_gpu()):
        where = f"{captioner.device} ({captioner.provider}, {captioner.precision})"
        print(f"captioner: running on {where}", file=sys.stderr)
    return captioner


def _has_gpu() -> bool:
    """Whether running on the CPU is worth a message: there is a GPU, or a runtime built for one."""
    import onnxruntime

    made_for_gpu = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    return made_for_gpu or Path("/proc/driver/nvidia/version").exists()


def client_options(args: argparse.Namespace) -> ClientOptions:
    """The client options that the flags specify. Raises `OptionsError`."""
    from captioner_client import ClientOptions

    given: dict[str, Any] = {"tls": bool(args.tls), "root_certificates": args.root_certificates}
    if args.timeout_s is not None:
        given["timeout_s"] = args.timeout_s
    if args.max_bytes is not None:
        given["max_image_bytes"] = args.max_bytes
    if args.token_file is not None:
        given["token"] = _read_token(args.token_file)
    try:
        return ClientOptions(**given)
    except OptionsError as error:
        if error.field != "token":
            raise
        what = "a client's token file holds a single token, of visible ASCII characters without spaces"
        raise OptionsError(f"--token-file: {args.token_file}: {what}", "token_file") from None


def _read_token(path: Path) -> str:
    """The text of a token file. Raises `OptionsError` for an empty one."""
    try:
        token = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise OptionsError(f"--token-file: {path}: {reason}", "token_file") from error
    if not token:
        raise OptionsError(f"--token-file: {path}: the file is empty", "token_file")
    return token


def _device(text: str) -> str:
    try:
        return check_device(text)
    except OptionsError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return number
