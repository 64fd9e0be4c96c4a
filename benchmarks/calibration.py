#!/usr/bin/env python3
"""Fit and check the confidence of captions (`captioner batch --min-confidence`), and draw its reliability.

    calibration.py REFERENCES --images IMAGES --split val [--model BUNDLE] [--plot reliability.png] [--write]

The event: the caption is at least as close (CIDEr-D) to the image's human captions other than the first as
the median first caption is over the data. What is printed and drawn is of one half of the images, with
curves fitted on the other. The curves of all images come last; `--write` puts them into the bundle,
which gives it a new digest.
"""

from __future__ import annotations

import argparse
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from captioner import Captioner
from captioner.export.release import say_all
from captioner.model.bundle import DEFAULT, change_manifest
from captioner.model.calibration import Calibration
from captioner.training.config.train_options import SourceOptions
from captioner.training.data.examples import load_examples
from captioner.training.loop.calibrate import CLOSE, are_close, curves

BINS = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("references", type=Path)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--model", metavar="BUNDLE", type=Path, default=DEFAULT)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--plot", type=Path, metavar="OUT.png")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()

    root = Path("/")
    places = {"images": (str(args.images.resolve()),), "captions": str(args.references.resolve())}
    source = SourceOptions(name="photos", val=args.split, **places)
    examples = [one for one in load_examples([source], root, "val") if len(one.image.captions) > 1]
    captioner = Captioner.load(args.model, precision=args.precision)
    examples, captions = say_all(captioner, examples)
    good = np.array(list(are_close(examples, [said.text for said in captions]).values()))
    fitting = np.array([zlib.crc32(example.key.encode()) % 2 == 0 for example in examples])
    fitted = curves([captions[row] for row in np.flatnonzero(fitting)], good[fitting], CLOSE)
    calibration = Calibration.of({"confidence": fitted})
    assert calibration is not None
    truth = good[~fitting]
    for title, knows in (("with certainty", True), ("by log-probability alone", False)):
        checked = (captions[row] for row in np.flatnonzero(~fitting))
        predicted = np.array(
            [calibration.confidence(*said[:2], said.certainty if knows else None) for said in checked]
        )
        print(f"{title}: {fitting.sum()} images fitted, {len(truth)} checked; {truth.mean():.1%} are good")
        error = describe(predicted, truth)
        if args.plot and knows:
            draw(reliability(predicted, truth), error, args.plot)
    entry = curves(captions, good, CLOSE)
    print(json.dumps({"confidence": entry}))
    if args.write:
        change_manifest(args.model, {"confidence": entry})


def describe(predicted: Any, truth: Any) -> float:
    """Print how well confidence tells which captions are good. Returns the expected calibration error."""
    table = reliability(predicted, truth)
    print("predicted  observed  captions")
    for mean, observed, count in table:
        print(f"{mean:9.2f} {observed:9.2f} {count:9d}")
    error = sum(count * abs(mean - observed) for mean, observed, count in table) / len(truth)
    brier = float(np.mean((predicted - truth) ** 2))
    base = float(truth.mean() * (1 - truth.mean()))
    print(f"expected calibration error {error:.3f}; Brier score {brier:.3f}, {base:.3f} for a constant")
    print(f"AUC {auc(predicted, truth):.3f}")
    for threshold in (0.3, 0.5, 0.7):
        kept = predicted >= threshold
        share = truth[kept].mean() if kept.any() else float("nan")
        print(f"--min-confidence {threshold}: {kept.mean():.1%} of captions stay, {share:.1%} of them good")
    return float(error)


def auc(predicted: Any, truth: Any) -> float:
    """The chance that a good caption has a higher confidence than one that is not."""
    good, bad = predicted[truth], predicted[~truth]
    return float((good[:, None] > bad).mean() + 0.5 * (good[:, None] == bad).mean())


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
