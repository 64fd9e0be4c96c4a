"""`captioner batch --engine ray`."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from captioner.cli.batch import make_shape
from captioner.cli.common import caption_options, image_limits
from captioner.cli.output import printable
from captioner.errors import OptionsError

_LOCAL_ONLY = {
    "server": "--server",
    "files_from": "--files-from",
    "overwrite": "--overwrite",
    "gallery": "--gallery",
    "embed": "--embed",
    "coco_ids": "--coco-ids",
}


def run_ray(args: argparse.Namespace) -> int:
    from captioner.bundle import Bundle
    from captioner.folder.ray_engine import RayOptions, RayRun
    from captioner.folder.sources import IMAGE_PATTERNS, Selection

    for name, flag in _LOCAL_ONLY.items():
        if getattr(args, name):
            raise OptionsError(f"{flag} is not for --engine ray", name)
    if len(args.sources) != 1 or args.format not in (None, "parquet"):
        raise OptionsError("--engine ray takes one FOLDER and writes parquet", "engine")
    bundle = Bundle.load(args.model)
    shape = make_shape(args, bundle.manifest)
    wording = (args.drop_openings, args.capitalize, args.sentence, args.template, args.prefix, args.suffix)
    run = RayRun(
        args.sources[0],
        args.output,
        bundle=None if args.model is None else str(args.model.absolute()),
        model=bundle.identity,
        options=dataclasses.replace(caption_options(args), attention=args.attention),
        selection=Selection(
            patterns=args.pattern or IMAGE_PATTERNS, exclude=args.exclude, hidden=args.hidden
        ),
        limits=image_limits(args),
        ray=RayOptions(
            actors=args.actors,
            cpus_per_actor=args.cpus_per_actor,
            gpus_per_actor=args.gpus_per_actor,
            images_a_shard=args.shard_size,
            batch_size=args.batch_size,
        ),
        wording=repr((*wording, args.min_confidence)),
        shape=shape,
        retry_failed=args.retry_failed,
    )
    _say(f"{run.total - run.left} of {run.total} images are done already")
    done = 0
    for shard in run:
        done += shard.images
        for name, reason in shard.failed.items():
            _say(f"{printable(name)}: {printable(reason)}")
        _say(f"{done} of {run.left} images")
    failed = run.count_failed()
    _say(f"{run.total} images in all, {failed} of them failed")
    return 1 if failed else 0


def _say(text: str) -> None:
    print(f"captioner: {text}", file=sys.stderr)
