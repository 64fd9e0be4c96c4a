"""What a command line of `captioner batch` asks for."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.cli.arguments.caption_options import caption_options
from captioner.cli.arguments.model import LocalModel, ServedModel, chosen_model, image_limits
from captioner.cli.arguments.outputs import OutputRequest, output_fields
from captioner.cli.arguments.values import given_flags
from captioner.errors import OptionsError
from captioner.images.urls import is_url

if TYPE_CHECKING:
    from captioner.folder.cluster.options import RayOptions
    from captioner.folder.sources.selection import Selection
    from captioner.images.limits import ImageLimits
    from captioner.options import CaptionOptions

_RAY_OPTIONS = ("actors", "cpus_per_actor", "gpus_per_actor", "shard_size")
"""Options of `--engine ray` only; with `batch_size`, those of `RayOptions`, which has their defaults."""
_RAY_FIELDS = {"shard_size": "images_a_shard"}
"""Their names there, where they differ."""
_NOT_OF_RAY = {
    "server": "its actors hold models of their own",
    "device": "--gpus-per-actor says what an actor runs on",
    "threads": "--cpus-per-actor says how many an actor has",
    "precision": "each actor chooses the precision itself",
    "lanes": "each actor captions one batch at a time",
    "watch": "run the command again to caption new images",
    "workers": "--cpus-per-actor says how many threads an actor has",
    "gallery": "make a page with captioner gallery",
    "include_keywords": "its actors do not read keywords",
    "corrections": "it writes Parquet; correct what is made of it",
    "keywords": "it writes Parquet",
    "hierarchy": "it writes Parquet",
    "embed": "it writes Parquet",
    "replace_existing": "it writes Parquet",
    "coco_ids": "it writes Parquet",
    "excel": "it writes Parquet",
}
"""Options that do not apply to Ray, and the reason."""
_STORES = "--engine ray reads and writes object stores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(OutputRequest):
    """A whole run. Places are paths, or for a cluster URIs too."""

    sources: tuple[str, ...]
    files_from: str | None
    """The list of images, "-" for stdin."""
    null: bool
    """Whether names in the list end with null bytes."""
    selection: Selection
    model: LocalModel | ServedModel
    options: CaptionOptions
    limits: ImageLimits
    batch_size: int | None
    workers: int | None
    include_keywords: bool
    ray: RayOptions | None
    """How a cluster works; None for a run in this process."""
    gallery: Path | None
    retry_failed: bool
    watch: bool

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        """Raises `OptionsError` for flags that conflict or are out of range."""
        from captioner.folder.sources.selection import IMAGE_PATTERNS, Selection

        _check(args)
        return cls(
            sources=tuple(args.sources),
            files_from=args.files_from,
            null=args.null,
            selection=Selection(
                patterns=args.pattern or IMAGE_PATTERNS, exclude=args.exclude, hidden=args.hidden
            ),
            model=chosen_model(args),
            options=caption_options(args, attention=args.attention, keywords=args.keywords),
            limits=image_limits(args),
            batch_size=args.batch_size,
            workers=args.workers,
            include_keywords=bool(args.include_keywords),
            ray=_ray_options(args) if args.engine == "ray" else None,
            gallery=args.gallery,
            retry_failed=args.retry_failed,
            watch=args.watch,
            **output_fields(args),
        )

    @property
    def paths(self) -> list[Path]:
        """The sources, for a run in this process."""
        return [Path(place) for place in self.sources]

    @property
    def folder(self) -> Path | None:
        """The only source, if it is a folder."""
        return self.paths[0] if len(self.sources) == 1 and self.paths[0].is_dir() else None


def _check(args: argparse.Namespace) -> None:
    if args.output == "-":
        raise OptionsError(
            "- is not a file name: batch writes files; captioner caption --recursive prints captions",
            "output",
        )
    if "-" in args.sources:
        raise OptionsError("- is no folder; --files-from - reads a list of images from stdin", "sources")
    if args.engine == "ray":
        _check_ray(args)
    else:
        _check_here(args)
    if args.files_from is None:
        if args.null:
            raise OptionsError("-0 needs --files-from", "null")
    elif args.pattern or args.exclude or args.hidden:
        raise OptionsError("--pattern, --exclude and --hidden are for folders, not for --files-from")


def _check_here(args: argparse.Namespace) -> None:
    from captioner.folder.outputs.place import find_state

    for name, flag in given_flags(args, _RAY_OPTIONS):
        raise OptionsError(f"{flag} needs --engine ray", name)
    for place in [*args.sources, args.output]:
        if is_url(place):
            fetched = place.lower().startswith("http")
            what = "captioner caption --allow-urls captions single images" if fetched else _STORES
            raise OptionsError(f"{place} is not a path: {what}", "sources")
    if args.watch and args.files_from is not None:
        raise OptionsError("--watch is for folders, not for --files-from", "watch")
    if args.watch and find_state(Path(args.output)) is None:
        raise OptionsError(
            f"--watch needs a file or folder as OUT: what is done is noted beside it, and {args.output} is a "
            "device or a pipe",
            "watch",
        )


def _check_ray(args: argparse.Namespace) -> None:
    from captioner.folder.outputs import format_by_name

    for name, flag in given_flags(args, _NOT_OF_RAY):
        raise OptionsError(f"{flag} is not for --engine ray: {_NOT_OF_RAY[name]}", name)
    chosen = args.format or format_by_name(args.output)
    if chosen not in (None, "parquet"):
        raise OptionsError(f"--engine ray writes parquet, not {chosen}", "format")
    if len(args.sources) > 1 or not (args.sources or args.files_from):
        raise OptionsError("--engine ray takes one FOLDER", "sources")


def _ray_options(args: argparse.Namespace) -> RayOptions:
    from captioner.folder.cluster.options import RayOptions

    given = given_flags(args, (*_RAY_OPTIONS, "batch_size"))
    values: dict[str, Any] = {_RAY_FIELDS.get(name, name): getattr(args, name) for name, _ in given}
    return RayOptions(**values)
