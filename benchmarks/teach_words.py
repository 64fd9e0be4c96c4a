#!/usr/bin/env python3
"""What a model gains and loses when labelled photos teach it new words.

    teach_words.py PHOTOS DATA/flickr8k -o runs/words [--photos 30] [--split val] [--model BUNDLE]

PHOTOS holds a folder for each word, named by it, with at least a few photos more than are taught; at most as
many are held out. DATA/flickr8k holds captions.json (Karpathy) and photos that show none of the words, in
folders or zip files. The model is taught with `captioner train` and the options that it chooses by itself.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from teach import caption, found_in, train, write_references

from captioner import Captioner
from captioner.metrics import compare_captions
from captioner.metrics.naming import has_phrase
from captioner.references import read_references
from captioner.words.tokens import tokenize

CONFIG = """name = "words"
start = {start}

[[data]]
name = "words"
labels = {labels}
images = [{photos}]

[[stages]]
name = "words"
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", type=Path, metavar="PHOTOS")
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for what is made")
    parser.add_argument("--photos", type=int, default=30, metavar="N", help="photos of each word to teach")
    parser.add_argument("--split", default="val")
    parser.add_argument("--model", type=Path, metavar="BUNDLE", help="the model to teach (the embedded one)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="as of captioner train"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    out = args.out.resolve()

    taught, held_out = choose(args.words, args.photos)
    (out / "labels.json").write_text(json.dumps({"images": taught}), encoding="utf-8")
    begun = time.monotonic()
    config = {"labels": str(out / "labels.json"), "photos": str(args.words.resolve())}
    train(out, CONFIG, config, args)
    print(f"{len(taught)} photos taught in {(time.monotonic() - begun) / 60:.1f} minutes")

    for name, model in (("before", args.model), ("after", out / "bundle")):
        report_naming(name, model, args.words, held_out)
    images = read_references(args.data / "captions.json", args.split)
    write_references(images, out / "held-out.json")
    places = found_in(args.data)
    before = caption(images, out / "before.jsonl", places, args.model)
    after = caption(images, out / "after.jsonl", places, out / "bundle")
    words = sorted({photo["words"][0] for photo in taught})
    wrong = [text for text in after.values() if any(has_phrase(tokenize(text), tokenize(w)) for w in words)]
    print(f"taught words in captions of {len(wrong)} of {len(after)} photos that show none: {wrong[:5]}")
    references = {image.name: image.captions for image in images}
    change = compare_captions(after, before, references, meteor=False).differences["cider"]
    low, high = (100 * bound for bound in change.interval)
    print(f"CIDEr of these: {100 * change.value:+.2f} (95% interval {low:+.2f} to {high:+.2f})")


def choose(folder: Path, count: int) -> tuple[list[dict], list[dict]]:
    """`count` photos of each word to teach, and as many others at most, as entries of a label file."""
    taught, held_out = [], []
    for place in sorted(one for one in folder.iterdir() if one.is_dir()):
        photos = sorted(place.iterdir(), key=lambda path: zlib.crc32(path.name.encode()))
        entries = [{"filename": f"{place.name}/{path.name}", "words": [place.name]} for path in photos]
        taught += entries[:count]
        held_out += entries[count : 2 * count]
    return taught, held_out


def report_naming(name: str, model: Path | None, folder: Path, photos: Sequence[dict]) -> None:
    """Prints how many captions have the word of their photo, and how many have several of the taught words,
    or one twice. Words are single ones."""
    captioner = Captioner.load(model, precision="float32")  # the taught bundle has no other
    captions = captioner.caption([folder / photo["filename"] for photo in photos])
    words = {photo["words"][0] for photo in photos}
    said = [[word for word in tokenize(one.text) if word in words] for one in captions]
    named = sum(photo["words"][0] in own for own, photo in zip(said, photos, strict=True))
    several = sum(len(own) > 1 for own in said)
    print(
        f"{name}: {named} of {len(said)} held-out photos named; {several} captions say several taught words"
    )
    for one, photo in list(zip(captions, photos, strict=True))[:: max(1, len(photos) // 12)]:
        print(f"    {photo['filename']}: {one.text}")


if __name__ == "__main__":
    main()
