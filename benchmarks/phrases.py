#!/usr/bin/env python3
"""Phrases that a model says far more often than people do: candidates for `captioner export --avoid`.

usage: phrases.py CAPTIONS... --people REFERENCES... [--share 0.004] [--ratio 40]

CAPTIONS: what `captioner batch` wrote for photos of many kinds. Prints each phrase of two to four words that
at least `--share` of the captions contain, and `--ratio` times as many of them as of people's captions, with
both shares; not those that contain a shorter one. Which of them are wrong is for people to judge: "white
background" is rare among people, but right for photos of products.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from captioner.references import read_references
from captioner.words.tokens import tokenize

SIZES = (2, 3, 4)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captions", nargs="+", type=Path)
    parser.add_argument("--people", nargs="+", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.004)
    parser.add_argument("--ratio", type=float, default=40)
    args = parser.parse_args()
    for phrase, model, people in excess(read(args.captions), read(args.people), args.share, args.ratio):
        print(f"{phrase:30} {model:8.2%} {people:8.3%}")


def read(paths: Sequence[Path]) -> list[list[str]]:
    return [tokenize(text) for path in paths for image in read_references(path) for text in image.captions]


def excess(
    captions: Sequence[Sequence[str]], people: Sequence[Sequence[str]], share: float, ratio: float
) -> Iterator[tuple[str, float, float]]:
    """The phrases, the shortest first, with the shares of the captions and of people's that contain them."""
    ours, theirs = count(captions), count(people)
    found: list[str] = []
    for phrase, number in sorted(ours.items(), key=lambda item: (item[0].count(" "), -item[1])):
        model, human = number / len(captions), theirs[phrase] / len(people)
        # One more of people's, so that what they happen not to have said is not infinitely rare.
        if model < max(share, ratio * (human + 1 / len(people))):
            continue
        if not any(f" {shorter} " in f" {phrase} " for shorter in found):
            found.append(phrase)
            yield phrase, model, human


def count(captions: Iterable[Sequence[str]]) -> Counter[str]:
    """How many captions contain each phrase."""
    return Counter(
        phrase
        for words in captions
        for phrase in {
            " ".join(words[start : start + size]) for size in SIZES for start in range(len(words) - size + 1)
        }
    )


if __name__ == "__main__":
    main()
