#!/usr/bin/env python3
"""Searches the captions of a model with the captions that people wrote for the same photos.

    captioner batch PHOTOS -o captions.jsonl --alternatives 4
    python benchmarks/search.py captions.jsonl REFERENCES --split val

The rank of the right photo, over all captions of people: how often it is first, among the first five and
ten, and the median.
"""

from __future__ import annotations

import argparse
import re
import statistics
from pathlib import Path, PurePosixPath

from captioner.cli.commands.search import read_captions
from captioner.references import read_references
from captioner.retrieval import CaptionIndex


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captions", type=Path)
    parser.add_argument("references", type=Path)
    parser.add_argument("--split")
    args = parser.parse_args()
    photos = list(read_captions(args.captions))
    stems = {PurePosixPath(photo.image).stem: photo.image for photo in photos}
    index = CaptionIndex(photos)
    ranks = []
    for reference in read_references(args.references, args.split):
        image = stems.get(PurePosixPath(reference.name).stem)
        for caption in reference.captions if image else ():
            words = re.sub(r"(?<!\w)-|\"", " ", caption)  # no phrases, nothing left out
            found = [one.photo.image for one in index.find(words)]
            # One that was not found stands in the middle of the others.
            rank = found.index(image) + 1 if image in found else (len(found) + len(photos)) / 2
            ranks.append(rank)
    print(f"{len(photos)} photos, {len(ranks)} captions of people")
    for most in (1, 5, 10):
        print(f"among the first {most}: {sum(rank <= most for rank in ranks) / len(ranks):.1%}")
    print(f"median rank: {statistics.median(ranks):g}")


if __name__ == "__main__":
    main()
