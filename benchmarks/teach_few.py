#!/usr/bin/env python3
"""What a few corrections gain, and what they change elsewhere.

    teach_few.py DATA/flickr8k [DATA/coco ...] -o runs/few [--corrections 20] [--folder 70] [--elsewhere 100]

Each DATA is a folder with captions.json (Karpathy) and images in it or in zip files. A folder of photos of
the first DATA's split is made; some of them, evenly spaced, are corrected: the first caption that a person
wrote stands for the correction. `captioner teach` teaches them. Then both models caption other photos of all
DATA, in each precision: the share of captions that changed, and their CIDEr before and after. Choose a split
that the model has not learnt.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from teach import found_in, run

from captioner import Captioner
from captioner.cli.commands.teach import print_effects
from captioner.references import CaptionedImage, read_references
from captioner.references.files import ImageFiles
from captioner.teaching.effects import Effect


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for what is made")
    parser.add_argument("--corrections", type=int, default=20, metavar="N")
    parser.add_argument(
        "--folder", type=int, default=70, metavar="N", help="photos of the folder, with these"
    )
    parser.add_argument("--elsewhere", type=int, default=100, metavar="N", help="other photos, of each DATA")
    parser.add_argument("--split", default="val")
    parser.add_argument("--model", default="default", help="the model to teach (the embedded one)")
    args = parser.parse_args()
    sources = {data: ImageFiles([Path(place) for place in found_in(data)]) for data in args.data}
    photos = {data: shuffled(read_references(data / "captions.json", args.split)) for data in args.data}

    folder = args.out / "photos"
    folder.mkdir(parents=True, exist_ok=True)
    first = args.data[0]
    own, photos[first] = photos[first][: args.folder], photos[first][args.folder :]
    for image in own:
        (folder / image.name).write_bytes(sources[first].read(image.name))
    corrected = [own[number * len(own) // args.corrections] for number in range(args.corrections)]
    lines = [{"image": one.name, "caption": one.captions[0], "status": "edited"} for one in corrected]
    given = args.out / "corrections.jsonl"
    given.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    begun = time.monotonic()
    bundle = args.out / "bundle"
    run(["teach", str(folder), str(given), "-o", str(bundle), "--model", args.model, "--device", "cpu"])
    print(f"{len(corrected)} corrections taught in {(time.monotonic() - begun) / 60:.1f} minutes")
    wanted = {image.name: image.captions[:1] for image in corrected}
    for precision in ("float32", "int8"):
        models = [Captioner.load(model, precision=precision) for model in (args.model, bundle)]
        effects = []
        for name, files, images in [
            ("corrected", ImageFiles([folder]), corrected),
            *((data.name, sources[data], photos[data][: args.elsewhere]) for data in args.data),
        ]:
            before, after = (captions(model, files, images) for model in models)
            references = wanted if name == "corrected" else {one.name: one.captions for one in images}
            effects.append(Effect.measure(name, before, after, references))
            for image in images:
                if name == "corrected" or before[image.name] != after[image.name]:
                    wrote = f" [{wanted[image.name][0]}]" if image.name in wanted else ""
                    print(f"    {name}: {before[image.name]} -> {after[image.name]}{wrote}")
        print(f"{precision}:")
        print_effects(effects)


def shuffled(images: Sequence[CaptionedImage]) -> list[CaptionedImage]:
    return sorted(images, key=lambda image: zlib.crc32(image.name.encode()))


def captions(model: Captioner, files: ImageFiles, images: Sequence[CaptionedImage]) -> dict[str, str]:
    found = model.caption([files.read(image.name) for image in images])
    return {image.name: one.text for image, one in zip(images, found, strict=True)}


if __name__ == "__main__":
    main()
