#!/usr/bin/env python3
"""Fit and check the confidence of captions (`captioner batch --min-confidence`), and draw its reliability.

    captioner evaluate REFERENCES --split val --images IMAGES -o captions.jsonl
    calibration.py captions.jsonl REFERENCES --split val [--plot reliability.png] [--write BUNDLE]

The event: the caption is at least as close (CIDEr-D) to the image's human captions other than the first as
the median first caption is over the data. The curve is fitted on one half of the images and everything that
is printed and drawn is of the other half. `--write` puts the curve into bundle.json, which gives the bundle a
new digest.
"""

from __future__ import annotations

import argparse
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from captioner.metrics import tokenize
from captioner.metrics.cider import CiderReward
from captioner.model.bundle import change_manifest
from captioner.model.calibration import mean_log_prob
from captioner.references import image_key, read_references
from captioner.training.loop.calibrate import CLOSE, fit_platt

BINS = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captions", type=Path)
    parser.add_argument("references", type=Path)
    parser.add_argument("--split")
    parser.add_argument("--plot", type=Path, metavar="OUT.png")
    parser.add_argument("--write", type=Path, metavar="BUNDLE")
    args = parser.parse_args()

    scores, good, names = measure(args.captions, args.references, args.split)
    fitting = np.array([zlib.crc32(name.encode()) % 2 == 0 for name in names])
    slope, intercept = fit_platt(scores[fitting], good[fitting])
    predicted = sigmoid(slope * scores[~fitting] + intercept)
    truth = good[~fitting]
    table = reliability(predicted, truth)
    print(f"{fitting.sum()} images fitted, {len(truth)} checked; {truth.mean():.1%} of these are good")
    print("predicted  observed  captions")
    for mean, observed, count in table:
        print(f"{mean:9.2f} {observed:9.2f} {count:9d}")
    error = sum(count * abs(mean - observed) for mean, observed, count in table) / len(truth)
    brier = float(np.mean((predicted - truth) ** 2))
    base = float(truth.mean() * (1 - truth.mean()))
    print(f"expected calibration error {error:.3f}; Brier score {brier:.3f}, {base:.3f} for a constant")
    for threshold in (0.3, 0.5, 0.7):
        kept = predicted >= threshold
        share = truth[kept].mean() if kept.any() else float("nan")
        print(f"--min-confidence {threshold}: {kept.mean():.1%} of captions stay, {share:.1%} of them good")
    entry = {"slope": round(slope, 5), "intercept": round(intercept, 5), "event": CLOSE}
    print(json.dumps({"confidence": entry}))
    if args.plot:
        draw(table, error, args.plot)
    if args.write:
        change_manifest(args.write, {"confidence": entry})


def measure(captions: Path, references: Path, split: str | None) -> tuple[Any, Any, list[str]]:
    """For each image: mean log-probability of a token, whether the event holds, and the name."""
    images = [image for image in read_references(references, split) if len(image.captions) > 1]
    by_key = {image.key: number for number, image in enumerate(images)}
    reward = CiderReward([[tokenize(text) for text in image.captions[1:]] for image in images])
    people = reward.scores(range(len(images)), [tokenize(image.captions[0]) for image in images])
    records = [json.loads(line) for line in captions.read_text(encoding="utf-8").split("\n") if line]
    records = [one for one in records if "caption" in one and image_key(one["image"]) in by_key]
    indices = [by_key[image_key(record["image"])] for record in records]
    closeness = reward.scores(indices, [tokenize(record["caption"]) for record in records])
    scores = np.array([mean_log_prob(record["caption"], record["log_prob"]) for record in records])
    return scores, closeness >= np.median(people), [record["image"] for record in records]


def sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


def reliability(predicted: Any, truth: Any) -> list[tuple[float, float, int]]:
    """For each tenth of the captions, in order of confidence: predicted and observed share, and their
    number."""
    order = np.argsort(predicted)
    return [
        (float(predicted[part].mean()), float(truth[part].mean()), len(part))
        for part in np.array_split(order, BINS)
        if len(part)
    ]


def draw(table: list[tuple[float, float, int]], error: float, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(4.5, 4.5), layout="constrained")
    axes.plot([0, 1], [0, 1], color="0.7", linestyle="--", label="perfect")
    axes.plot([row[0] for row in table], [row[1] for row in table], marker="o", label="a tenth of the images")
    axes.set(xlabel="predicted confidence", ylabel="share of good captions", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(f"expected calibration error {error:.3f}")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
