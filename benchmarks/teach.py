#!/usr/bin/env python3
"""What corrected captions gain: CIDEr on held-out photos, before and after a model was taught with others.

    teach.py DATA/flickr8k -o runs/teach [--split val] [--photos N] [--model BUNDLE] [--set NAME=VALUE]

DATA is a folder with captions.json (Karpathy) and images in it or in zip files. Half of the photos of the
split are corrected: the first caption that a person wrote stands for the correction. The model is taught with
these (`captioner train`, a tenth of them for validation); both models then caption the other half, and are
scored against all captions that people wrote. Choose a split that the model has not learnt.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

from captioner.cli.main import main as captioner
from captioner.metrics import compare_captions
from captioner.references import CaptionedImage, read_references

CONFIG = """name = "taught"
start = {start}

[[data]]
name = "corrections"
captions = {captions}
images = {images}
val_fraction = 0.1

[[stages]]
name = "teach"
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for what is made")
    parser.add_argument("--split", default="val")
    parser.add_argument("--photos", type=int, metavar="N", help="correct only so many photos")
    parser.add_argument("--model", type=Path, metavar="BUNDLE", help="the model to teach (the embedded one)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="as of captioner train"
    )
    args = parser.parse_args()

    images = read_references(args.data / "captions.json", args.split)
    taught, held_out = (
        [image for image in images if zlib.crc32(image.name.encode()) % 2 == half] for half in (0, 1)
    )
    taught = taught[: args.photos]
    args.out.mkdir(parents=True, exist_ok=True)
    out = args.out.resolve()
    write_corrections(taught, out / "corrections.jsonl")
    write_references(held_out, out / "held-out.json")

    places = found_in(args.data)
    config = {"captions": str(out / "corrections.jsonl"), "images": places}
    train(out, CONFIG, config, args)

    before = caption(held_out, out / "before.jsonl", places, args.model)
    after = caption(held_out, out / "after.jsonl", places, out / "bundle")
    references = {image.name: image.captions for image in held_out}
    found = compare_captions(after, before, references, meteor=False)
    change = found.differences["cider"]
    low, high = (100 * bound for bound in change.interval)
    print(f"{len(taught)} photos corrected, {len(held_out)} held out")
    old, new = (100 * scores.values["cider"] for scores in (found.second, found.first))
    print(f"CIDEr before {old:.1f}, after {new:.1f}")
    print(f"difference {100 * change.value:+.1f} (95% interval {low:+.1f} to {high:+.1f})")


def train(out: Path, text: str, values: dict[str, object], args: argparse.Namespace) -> None:
    """Train the model of `args` with a configuration, in which the `values` are put, and leave its bundle."""
    start = "default" if args.model is None else str(args.model.resolve())
    written = {name: json.dumps(value) for name, value in {"start": start, **values}.items()}
    (out / "teach.toml").write_text(text.format(**written), encoding="utf-8")
    changes = [part for change in args.set for part in ("--set", change)]
    run(["train", str(out / "teach.toml"), "-o", str(out / "run"), "--cache", str(out / "cache"), *changes])
    if not (out / "bundle").exists():
        best = out / "run" / "best.pt"  # few photos leave none to validate on
        run(["export", str(best if best.exists() else out / "run" / "last.pt"), "-o", str(out / "bundle")])


def found_in(data: Path) -> list[str]:
    """The places where the images of a data set may be."""
    inside = sorted(path for path in data.iterdir() if path.is_dir() or path.suffix == ".zip")
    return [str(path.resolve()) for path in (data, *inside)]


def write_corrections(images: Sequence[CaptionedImage], path: Path) -> None:
    lines = [
        json.dumps({"image": image.name, "caption": image.captions[0], "status": "edited"})
        for image in images
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_references(images: Sequence[CaptionedImage], path: Path) -> None:
    entries = [
        {"filename": image.name, "split": "val", "sentences": [{"raw": text} for text in image.captions]}
        for image in images
    ]
    path.write_text(json.dumps({"images": entries}), encoding="utf-8")


def caption(
    images: Sequence[CaptionedImage], path: Path, places: Sequence[str], model: Path | None
) -> dict[str, str]:
    """The captions of a model by image, kept in `path`."""
    chosen = [] if model is None else ["--model", str(model)]
    references = str(path.parent / "held-out.json")
    precision = ["--precision", "float32"]  # the taught bundle has no other
    run(["evaluate", references, "--images", *places, "-o", str(path), "--json", *precision, *chosen])
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return {record["image"]: record["caption"] for record in records}


def run(arguments: Sequence[str]) -> None:
    if status := captioner(arguments):
        raise SystemExit(status)


if __name__ == "__main__":
    main()
