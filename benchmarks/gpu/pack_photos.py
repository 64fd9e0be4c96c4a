#!/usr/bin/env python3
"""Photos for training on a machine that takes little with each command: small, in parts, the best ones first.

    pack_photos.py world --data-root DATA build/photos     # here: parts with the photos of a recipe
    pack_photos.py --unpack PARTS DATA                     # there: of the parts that have arrived

A part is a zip file with photos of 224 x 224 pixels as WebP (about 6 KB each) and what is said of them:
SOURCE/photos/NAME.webp, and SOURCE/captions.json or SOURCE/labels.json with the entries of these photos. Any
parts make a data set; the recipe `gpu` reads it. First come photos for validation, and one of each source for
training; then those of which most is said.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:
    from captioner.training.data.examples import Example

SIDE, QUALITY = 224, 50
LABELLED = 2
"""Captions that a photo with labels counts for."""
PER_PHOTO = 300
"""Bytes that a photo takes in a part besides its own, at most, and besides its name and its text."""
UNITS = {"K": 2**10, "M": 2**20}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--unpack", action="store_true", help="make the data set DATA of the parts in the folder PARTS"
    )
    parser.add_argument(
        "source", metavar="RECIPE|PARTS", help="recipe or file of a run, whose data are packed"
    )
    parser.add_argument("out", type=Path, metavar="OUT|DATA", help="folder to write")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="folder that paths in RECIPE are below")
    parser.add_argument("--part-size", type=_size, default=_size("60M"), metavar="N", help="default: 60M")
    parser.add_argument("--most", type=int, metavar="N", help="at most so many photos")
    parser.add_argument(
        "--val", type=int, default=500, metavar="N", help="validation photos of each source, at most (500)"
    )
    args = parser.parse_args(argv)
    if args.unpack:
        return unpack(Path(args.source), args.out)
    if args.data_root is None:
        parser.error("--data-root is needed to pack")
    return pack(args.source, args.data_root, args.out, args.part_size, args.most, args.val)


def _size(text: str) -> int:
    """Bytes, from text such as 60M."""
    match = re.fullmatch(r"([1-9]\d*)([KM]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 60M")
    return int(match[1]) * UNITS.get(match[2], 1)


def pack(recipe: str, root: Path, out: Path, part_size: int, most: int | None, val: int) -> int:
    """Write the parts; returns the exit status."""
    from captioner.cli.commands.train import RECIPES
    from captioner.errors import CaptionerError
    from captioner.training.config.train_options import TrainOptions
    from captioner.training.data.examples import load_examples

    out.mkdir(parents=True, exist_ok=True)
    named = RECIPES / f"{recipe}.toml"
    try:
        data = TrainOptions.read(named if named.exists() else Path(recipe)).data
        examples = in_order(load_examples(data, root, "train"), load_examples(data, root, "val"), val)
        parts = _write(examples[:most], out, part_size)
    except CaptionerError as error:
        print(f"pack_photos.py: {error}", file=sys.stderr)
        return 2
    for path, counts in parts:
        said = ", ".join(f"{count} of {name}" for name, count in counts.items())
        print(f"{path}\t{path.stat().st_size / 1e6:.1f} MB\t{said}")
    return 0


def in_order(train: list[Example], val: list[Example], most_val: int) -> list[tuple[str, Example]]:
    """Each photo with its split, the most useful first."""

    def useful(example: Example) -> tuple[int, bytes]:
        image = example.image
        said = len(image.captions) or LABELLED * bool(image.words)
        return -said, hashlib.sha256(example.key.encode()).digest()  # of equal ones, sources are mixed

    chosen: list[tuple[str, Example]] = []
    of_source: dict[str, int] = defaultdict(int)
    for example in sorted(val, key=useful):
        of_source[example.source] += 1
        if of_source[example.source] <= most_val:
            chosen.append(("val", example))
    ranked = sorted(train, key=useful)
    first = {example.source: example for example in reversed(ranked)}
    chosen += [("train", example) for example in first.values()]
    return chosen + [("train", one) for one in ranked if first[one.source] is not one]


def _write(
    examples: Sequence[tuple[str, Example]], out: Path, part_size: int
) -> list[tuple[Path, dict[str, int]]]:
    parts: list[tuple[Path, dict[str, int]]] = []
    waiting: list[tuple[str, dict[str, Any], bytes]] = []
    held = 0
    for source, entry, photo in _entries(examples):
        size = len(photo) + PER_PHOTO + 2 * len(entry["filename"]) + len(json.dumps(entry))
        if waiting and held + size > part_size:
            parts.append(_write_part(out / f"photos.{len(parts):03}.zip", waiting))
            waiting, held = [], 0
        waiting.append((source, entry, photo))
        held += size
    if waiting:
        parts.append(_write_part(out / f"photos.{len(parts):03}.zip", waiting))
    return parts


def _entries(examples: Sequence[tuple[str, Example]]) -> Iterator[tuple[str, dict[str, Any], bytes]]:
    """The source, the entry and the small photo of each; photos that cannot be read are left out."""
    from captioner.errors import CaptionerError

    def shrunk(one: tuple[str, Example]) -> bytes | CaptionerError:
        try:
            return small(one[1].files.read(one[1].image.name))
        except CaptionerError as error:
            return error

    with ThreadPoolExecutor() as threads:
        for (split, example), photo in zip(examples, threads.map(shrunk, examples), strict=True):
            if not isinstance(photo, bytes):
                print(f"left out: {example.key}: {photo}", file=sys.stderr)
                continue
            image = example.image
            name = image.name if image.name.endswith(".webp") else f"{image.name}.webp"
            entry: dict[str, Any] = {"filename": name, "split": split}
            if image.words:
                entry["words"] = list(image.words)
            else:
                entry["sentences"] = [{"raw": caption} for caption in image.captions]
            if image.objects:
                entry["objects"] = list(image.objects)
            yield example.source, entry, photo


def small(content: bytes) -> bytes:
    """A photo as the model sees it, squashed to the square; one that is small enough is kept as it is."""
    from captioner.images.opening import load_pixels

    with Image.open(io.BytesIO(content)) as opened:
        if opened.format == "WEBP" and opened.size == (SIDE, SIDE) and len(content) < SIDE**2 / 4:
            return content
    file = io.BytesIO()
    Image.fromarray(load_pixels(content, SIDE)).save(file, "WEBP", quality=QUALITY)
    return file.getvalue()


def _write_part(
    path: Path, photos: Sequence[tuple[str, dict[str, Any], bytes]]
) -> tuple[Path, dict[str, int]]:
    entries: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with zipfile.ZipFile(path, "w") as part:
        for source, entry, photo in photos:
            part.writestr(f"{source}/photos/{entry['filename']}", photo)
            entries[source].append(entry)
        for source, own in entries.items():
            text = json.dumps({"images": own})
            name = "labels" if "words" in own[0] else "captions"
            part.writestr(f"{source}/{name}.json", text, zipfile.ZIP_DEFLATED)
    return path, {source: len(own) for source, own in entries.items()}


def unpack(parts: Path, data: Path) -> int:
    """Write the photos and the entries of all parts together; returns the exit status. Damaged parts are
    left out."""
    listed: dict[str, list[Any]] = defaultdict(list)
    for path in sorted(parts.glob("photos.*.zip")):
        try:
            with zipfile.ZipFile(path) as part:
                if part.testzip() is not None:
                    raise zipfile.BadZipFile("damaged")
                for name in part.namelist():
                    if name.endswith(".json"):
                        listed[name] += json.loads(part.read(name))["images"]
                    else:
                        part.extract(name, data)
        except (zipfile.BadZipFile, OSError) as error:
            print(f"left out: {path}: {error}", file=sys.stderr)
    for name, images in listed.items():
        (data / name).write_text(json.dumps({"images": images}))
        print(f"{data / name}\t{len(images)} photos")
    return 0 if listed else 1


if __name__ == "__main__":
    sys.exit(main())
