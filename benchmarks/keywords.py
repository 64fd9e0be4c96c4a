#!/usr/bin/env python3
"""Keywords of photos against what is in them.

usage: keywords.py REFERENCES --images PLACE... [--split val] [--labels]

REFERENCES: a file with `objects` (COCO categories) for each image, or with --labels a label file. Prints for
the keywords of captions alone, and for those that the photo supports:
  precision, recall   of COCO's objects
  named, exactly      share of labelled photos with a right keyword, and with the most exact one
  keywords            for each photo
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from captioner import Caption, Captioner, CaptionOptions
from captioner.references import CaptionedImage, read_label_file, read_references, select_split
from captioner.references.files import ImageFiles
from captioner.words.coco import PHRASES
from captioner.words.keywords import hierarchy_of, keywords_of
from captioner.words.tokens import tokenize


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("references", type=Path)
    parser.add_argument("--split", default="val")
    parser.add_argument("--images", nargs="+", type=Path, required=True)
    parser.add_argument("--labels", action="store_true")
    parser.add_argument("--precision", default="auto")
    args = parser.parse_args()
    read = read_label_file if args.labels else read_references
    images = select_split(args.references, read(args.references), args.split)
    captions = caption(images, ImageFiles(args.images), args.precision)
    ways: dict[str, Callable[[Caption], Sequence[str]]] = {
        "caption alone": lambda one: keywords_of(one.text),
        "supported": lambda one: one.keywords,
    }
    for way, keywords in ways.items():
        found = [keywords(one) for one in captions]
        shares = labelled(images, found) if args.labels else objects(images, found)
        shares["keywords"] = sum(map(len, found)) / len(found)
        print(f"{way:14}", "  ".join(f"{name} {value:.3f}" for name, value in shares.items()))


def caption(images: Sequence[CaptionedImage], files: ImageFiles, precision: str) -> list[Caption]:
    captioner, options = Captioner.load(precision=precision), CaptionOptions(attention=False, keywords=True)
    photos = (files.read(image.name) for image in images)
    return captioner.caption(photos, options)


def objects(images: Sequence[CaptionedImage], found: Sequence[Sequence[str]]) -> dict[str, float]:
    right = said = there = 0
    for image, keywords in zip(images, found, strict=True):
        named = {PHRASES.get(tuple(tokenize(keyword))) for keyword in keywords} - {None}
        right += len(named & {*image.objects})
        said += len(named)
        there += len(image.objects)
    return {"precision": right / said, "recall": right / there}


def labelled(images: Sequence[CaptionedImage], found: Sequence[Sequence[str]]) -> dict[str, float]:
    named = exactly = 0
    for image, keywords in zip(images, found, strict=True):
        named += any(not {*image.words}.isdisjoint(hierarchy_of(keyword)) for keyword in keywords)
        exactly += image.words[0] in keywords
    return {"named": named / len(images), "exactly": exactly / len(images)}


if __name__ == "__main__":
    main()
