"""The flags that choose who captions: a model in this process, or a server."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.cli.arguments.caption_options import add_search_arguments
from captioner.cli.arguments.values import device, given_flags, positive
from captioner.cli.output import say
from captioner.errors import OptionsError, reason_of
from captioner.files.rights import is_open_to_all
from captioner.model.graphs.device import DEVICE_HELP, DEVICES
from captioner.model.installed import has_parts, used_model

if TYPE_CHECKING:
    from captioner.captioner import Captioner
    from captioner.images.limits import ImageLimits
    from captioner_client import CaptionClient, ClientOptions

_LOCAL_OPTIONS = (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A model to load into this process."""

    bundle: Path | None
    """Folder of the bundle; None for the embedded one."""
    device: str
    threads: int | None = None
    lanes: int | None = 1
    precision: str = "auto"
    limits: ImageLimits
    announced: bool = False
    """Whether to say on stderr which device was chosen, where there is a choice."""

    def load(self) -> Captioner:
        """Raises a `CaptionerError` if it cannot be loaded."""
        from captioner.captioner import Captioner
        from captioner.trial import load_bundle

        captioner = Captioner.load(
            load_bundle(self.bundle),
            device=self.device,
            threads=self.threads,
            lanes=self.lanes,
            precision=self.precision,
            limits=self.limits,
        )
        if self.announced and self.device == "auto" and (captioner.device != "cpu" or _has_gpu()):
            say(f"running on {captioner.device} ({captioner.provider}, {captioner.precision})")
        return captioner

    @contextmanager
    def open(self) -> Iterator[Captioner]:
        """As `load`."""
        yield self.load()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model on a server, or on several."""

    addresses: str
    """HOST:PORT, several separated by commas."""
    options: ClientOptions

    @contextmanager
    def open(self) -> Iterator[CaptionClient]:
        # gRPC writes to stderr itself, about what becomes an error here.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from captioner_client import CaptionClient

        with CaptionClient(self.addresses, self.options) as client:
            yield client


def add_caption_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `caption_options`, `chosen_model` and `image_limits` read."""
    parser.add_argument("-q", "--quiet", action="store_true", help="print only failures on stderr")
    add_search_arguments(parser)
    add_local_arguments(parser)
    server = parser.add_argument_group("server")
    server.add_argument(
        "--server",
        metavar="HOST:PORT",
        help="caption on this server, or on several (addresses separated by commas); --model then names one"
        " of its models",
    )
    server.add_argument(
        "--timeout-s", type=float, metavar="S", help="maximum wait for an answer, in seconds (default: 60)"
    )
    server.add_argument(
        "--tls", action="store_true", default=None, help="use TLS, and verify the server's certificate"
    )
    server.add_argument("--root-certificates", type=Path, metavar="PEM", help="trusted authorities for --tls")
    server.add_argument("--token-file", type=Path, metavar="FILE", help="file with one bearer token")


def add_local_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a model in this process, and the limits of images."""
    local = parser.add_argument_group("model")
    add_model_argument(local)
    add_device_argument(local)
    add_threads_argument(local)
    add_precision_argument(local)
    local.add_argument("--max-pixels", type=positive, metavar="N", help="reject images with more pixels")
    local.add_argument("--max-bytes", type=positive, metavar="N", help="reject larger image files")


def add_model_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--model`; None if it is not given."""
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help="name of an installed model, or folder of a bundle (default: the one chosen with captioner model"
        " use, or else the embedded model)",
    )


def add_device_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--device`; None if it is not given."""
    parser.add_argument("--device", type=device, metavar=DEVICES, help=f"{DEVICE_HELP} (default: auto)")


def add_precision_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--precision`; None if it is not given."""
    parser.add_argument(
        "--precision",
        choices=("auto", "float32", "int8"),
        help="auto (default) computes in INT8 where the model has it and the CPU gains from it",
    )


def add_threads_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--threads`; None if it is not given."""
    parser.add_argument("--threads", type=positive, metavar="N", help="CPU threads (default: one per core)")


def chosen_model(args: argparse.Namespace, *, draws: bool = False) -> LocalModel | ServedModel:
    """The model that the flags choose. A command that `draws` also decodes photos itself, so that
    `--max-pixels` applies even with a server. Raises `OptionsError`."""
    if args.server is None:
        return local_model(args)
    for name, flag in given_flags(args, _LOCAL_OPTIONS):
        if not (draws and name == "max_pixels"):
            raise OptionsError(f"{flag} cannot be used with --server", name)
    if args.model is not None and has_parts(args.model):
        raise OptionsError(f"--model: {args.model} is a path; a server is asked for a model by name", "model")
    return ServedModel(addresses=args.server, options=_client_options(args))


def local_model(args: argparse.Namespace) -> LocalModel:
    """The model in this process that the flags choose. Raises `OptionsError` for flags of a server."""
    check_no_server_flags(args)
    return LocalModel(
        bundle=used_model(args.model),
        device=args.device or "auto",
        threads=args.threads,
        lanes=getattr(args, "lanes", 1),
        precision=args.precision or "auto",
        limits=image_limits(args),
        announced=not args.quiet,
    )


def check_no_server_flags(args: argparse.Namespace) -> None:
    """Raise `OptionsError` for a flag of the connection to a server."""
    for name, flag in given_flags(args, _SERVER_OPTIONS):
        raise OptionsError(f"{flag} needs --server", name)


def image_limits(args: argparse.Namespace) -> ImageLimits:
    """The image limits that the flags specify."""
    from captioner.images.limits import DEFAULT_LIMITS

    given = {name: getattr(args, name) for name in ("max_pixels", "max_bytes") if getattr(args, name)}
    return dataclasses.replace(DEFAULT_LIMITS, **given)


def _has_gpu() -> bool:
    """Whether running on the CPU is worth a message: there is a GPU, or a runtime built for one."""
    import onnxruntime

    made_for_gpu = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    return made_for_gpu or Path("/proc/driver/nvidia/version").exists()


def _client_options(args: argparse.Namespace) -> ClientOptions:
    """The client options that the flags specify. Raises `OptionsError`."""
    from captioner_client import ClientOptions

    given: dict[str, Any] = {
        "model": args.model or "",
        "tls": bool(args.tls),
        "root_certificates": args.root_certificates,
    }
    if args.timeout_s is not None:
        given["timeout_s"] = args.timeout_s
    if args.max_bytes is not None:
        given["max_image_bytes"] = args.max_bytes
    if args.token_file is not None:
        given["token"] = _read_token(args.token_file)
    try:
        options = ClientOptions(**given)
    except OptionsError as error:
        if error.field != "token":
            raise
        what = "a client's token file holds a single token, of visible ASCII characters without spaces"
        raise OptionsError(f"--token-file: {args.token_file}: {what}", "token_file") from None
    if (path := args.token_file) is not None and is_open_to_all(path):
        say(f"--token-file: everybody may read {path}: chmod o-r {shlex.quote(str(path))}")
    return options


def _read_token(path: Path) -> str:
    """The text of a token file. Raises `OptionsError` for an empty one."""
    try:
        token = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error, "not a text file")
        raise OptionsError(f"--token-file: {path}: {reason}", "token_file") from error
    if not token:
        raise OptionsError(f"--token-file: {path}: the file is empty", "token_file")
    return token
