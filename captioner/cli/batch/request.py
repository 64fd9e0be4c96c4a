"""What a command line of `captioner batch` asks for."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.cli.arguments.model import LocalModel, ServedModel, chosen_model, image_limits
from captioner.cli.arguments.search import caption_options
from captioner.cli.arguments.values import given_flags
from captioner.errors import OptionsError
from captioner.images.urls import is_url

if TYPE_CHECKING:
    from captioner.folder.ray_engine import RayOptions
    from captioner.folder.sources import Selection
    from captioner.folder.text import TextOptions
    from captioner.images.sources import ImageLimits
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
_WRITTEN = ("embed", "excel", "keywords", "hierarchy", "replace_existing")
"""Options of `OutputOptions`, by the same names."""
_BY_ORDER = Path("order")
"""The value of --coco-ids that is no file; a file of this name is ./order."""
_STORES = "--engine ray reads and writes object stores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
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
    output: str
    format: str | None
    written: Mapping[str, bool]
    """What is written beside captions, as fields of `OutputOptions`."""
    coco_ids: Path | None
    """A file with the ids of COCO."""
    ids_by_order: bool
    """Whether these ids count the images from 1."""
    corrections: Path | None
    gallery: Path | None
    text: TextOptions
    min_confidence: float | None
    overwrite: bool
    retry_failed: bool
    watch: bool
    quiet: bool

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        """Raises `OptionsError` for flags that conflict or are out of range."""
        from captioner.folder.sources import IMAGE_PATTERNS, Selection
        from captioner.folder.text import TextOptions

        _check(args)
        return cls(
            sources=tuple(args.sources),
            files_from=args.files_from,
            null=args.null,
            selection=Selection(
                patterns=args.pattern or IMAGE_PATTERNS, exclude=args.exclude, hidden=args.hidden
            ),
            model=chosen_model(args),
            options=caption_options(args, attention=args.attention),
            limits=image_limits(args),
            batch_size=args.batch_size,
            workers=args.workers,
            include_keywords=bool(args.include_keywords),
            ray=_ray_options(args) if args.engine == "ray" else None,
            output=args.output,
            format=args.format,
            written={name: getattr(args, name) for name in _WRITTEN},
            coco_ids=None if args.coco_ids == _BY_ORDER else args.coco_ids,
            ids_by_order=args.coco_ids == _BY_ORDER,
            corrections=args.corrections,
            gallery=args.gallery,
            text=TextOptions(
                **{field.name: getattr(args, field.name) for field in dataclasses.fields(TextOptions)}
            ),
            min_confidence=args.min_confidence,
            overwrite=args.overwrite,
            retry_failed=args.retry_failed,
            watch=args.watch,
            quiet=args.quiet,
        )

    @property
    def paths(self) -> list[Path]:
        """The sources, for a run in this process."""
        return [Path(place) for place in self.sources]

    @property
    def out(self) -> Path:
        """The output, for a run in this process."""
        return Path(self.output)

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
    for name, flag in given_flags(args, _RAY_OPTIONS):
        raise OptionsError(f"{flag} needs --engine ray", name)
    for place in [*args.sources, args.output]:
        if is_url(place):
            fetched = place.lower().startswith("http")
            what = "captioner caption --allow-urls captions single images" if fetched else _STORES
            raise OptionsError(f"{place} is not a path: {what}", "sources")
    if args.watch and args.files_from is not None:
        raise OptionsError("--watch is for folders, not for --files-from", "watch")


def _check_ray(args: argparse.Namespace) -> None:
    for name, flag in given_flags(args, _NOT_OF_RAY):
        raise OptionsError(f"{flag} is not for --engine ray: {_NOT_OF_RAY[name]}", name)
    if args.format not in (None, "parquet"):
        raise OptionsError(f"--engine ray writes parquet, not {args.format}", "format")
    if len(args.sources) > 1 or not (args.sources or args.files_from):
        raise OptionsError("--engine ray takes one FOLDER", "sources")


def _ray_options(args: argparse.Namespace) -> RayOptions:
    from captioner.folder.ray_engine import RayOptions

    given = given_flags(args, (*_RAY_OPTIONS, "batch_size"))
    values: dict[str, Any] = {_RAY_FIELDS.get(name, name): getattr(args, name) for name, _ in given}
    return RayOptions(**values)
