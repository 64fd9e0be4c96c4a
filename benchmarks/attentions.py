#!/usr/bin/env python3
"""Compare all attentions and decoders on the same data, with the same recipe and budget: docs/attentions.md.

    pip install '.[cpu,train,metrics]'
    attentions.py --data-root DATA [--work runs/attentions] [--only NAME ...] [--table-only]

DATA holds `flickr8k/` and `coco/`. Each variant is trained as attentions.toml says (`--recipe` for another),
exported, and measured as a bundle. `--work` gets a file with the results of each run, and the same command
resumes. Then the tables between the markers of the document, and the pictures beside it, are rewritten from
all these files.

Times on a CPU are CPU time of one thread, which other work on the machine does not change much.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attention_tables import write_tables

from captioner import Captioner
from captioner.captioner import Pixels
from captioner.export.bundle import export_bundle
from captioner.metrics import Meteor, evaluate_captions
from captioner.metrics.attention.faithfulness import Probe
from captioner.model.search import search
from captioner.references import read_references
from captioner.references.files import ImageFiles
from captioner.training.config.train_options import SourceOptions, TrainOptions
from captioner.training.loop.trainer import Trainer
from captioner.training.progress import Progress
from captioner.training.weights.checkpoint import load_model

HERE = Path(__file__).parent
PHOTO = HERE.parent / "examples" / "raccoon.jpg"
BATCH = 64
BEAMS = 3
STEPS = 30
"""Decoder steps that are timed; their median counts."""


@dataclass(frozen=True)
class Variant:
    """A row of the tables."""

    name: str
    title: str
    model: Mapping[str, Any]
    """What differs from the model of the recipe."""
    seeds: tuple[int, ...] = (1,)
    stage: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the stages of the recipe."""


TWO_LSTM = {"decoder": "two_lstm"}
VARIANTS = (
    Variant("none", "none: the mean of the grid", {"attention": "none"}),
    Variant("additive", "additive", {"attention": "additive"}, (1, 2, 3)),
    Variant("general", "general", {"attention": "general"}),
    Variant("scaled-dot", "scaled dot product", {"attention": "scaled_dot_product"}),
    Variant("multi-head", "multi-head", {"attention": "multi_head"}),
    Variant("sentinel", "visual sentinel", {"attention": "visual_sentinel"}),
    # The penalty on the entropy of maps would work against the sampling, which needs that entropy.
    Variant("hard", "hard", {"attention": "hard"}, stage={"attention_entropy": 0.0}),
    Variant("aoa", "attention on attention", {"attention": "attention_on_attention"}),
    Variant("two-lstm", "additive, two LSTMs", TWO_LSTM, (1, 2, 3)),
    Variant("up-down", "additive, Up-Down", {"decoder": "up_down"}),
    Variant(
        "transformer",
        "multi-head, Transformer",
        {"decoder": "transformer", "attention": "multi_head"},
        (1, 2, 3),
    ),
    Variant("two-lstm-heads", "multi-head, two LSTMs", TWO_LSTM | {"attention": "multi_head"}),
    Variant("refined", "additive, two LSTMs, refined grid", TWO_LSTM | {"refiner_layers": 1}),
    Variant("fine", "additive, two LSTMs, 14 x 14 cells", TWO_LSTM | {"stride": 16}),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--recipe", type=Path, default=HERE / "attentions.toml")
    parser.add_argument("--work", type=Path, default=Path("runs/attentions"))
    parser.add_argument("--cache", type=Path, default=Path("runs/cache"))
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[variant.name for variant in VARIANTS])
    parser.add_argument("--seed", type=int, metavar="N", help="this seed only")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="to train on")
    parser.add_argument("--document", type=Path, default=HERE.parent / "docs" / "attentions.md")
    parser.add_argument("--table-only", action="store_true", help="measure nothing")
    parser.add_argument("--no-table", action="store_true", help="write only into --work")
    args = parser.parse_args()
    torch.set_num_threads(1)

    runs = [
        (variant, seed)
        # The first seed of all before the second of any.
        for seed in sorted({seed for variant in VARIANTS for seed in variant.seeds})
        for variant in VARIANTS
        if seed in variant.seeds
    ]
    bench = None
    for variant, seed in runs:
        chosen = (not args.only or variant.name in args.only) and args.seed in (None, seed)
        if chosen and not args.table_only and not (args.work / f"{variant.name}-{seed}.json").exists():
            bench = bench or Bench(args)
            bench.run(variant, seed)
    if not args.no_table:
        titles = {variant.name: variant.title for variant in VARIANTS}
        write_tables(args.document, args.work, titles, PHOTO)


class Bench:
    """Trains and measures."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.device = torch.device(args.device)
        self.meteor = Meteor.load()
        # The process's CPU time does not include work of the GPU.
        self.clock: Callable[[], float] = time.process_time if args.device == "cpu" else time.monotonic
        self.sets: list[DataSet] = []

    def run(self, variant: Variant, seed: int) -> None:
        """Leave `NAME-SEED.json` and `NAME-SEED.bundle` in the work folder."""
        args = self.args
        name = f"{variant.name}-{seed}"
        folder, bundle = args.work / name, args.work / f"{name}.bundle"
        recipe = TrainOptions.read(args.recipe).to_dict()
        recipe |= {"name": variant.name, "seed": seed, "model": recipe["model"] | variant.model}
        recipe["stages"] = [stage | variant.stage for stage in recipe["stages"]]
        options = TrainOptions.from_dict(recipe)
        trainer = Trainer(options, folder, args.data_root, args.cache, self.device, Progress())
        started = self.clock()
        history = trainer.run()
        seconds = self.clock() - started
        del trainer
        if not bundle.exists():
            export_bundle(folder / "last.pt", bundle)
        model, *_ = load_model(folder / "last.pt")
        backbone = sum(value.numel() for value in model.encoder.backbone.parameters())
        record: dict[str, Any] = {
            "variant": variant.name,
            "seed": seed,
            "options": options.to_dict(),
            "training_seconds": round(seconds, 1),
            "loss": history[-1]["loss"],
            "parameters": sum(value.numel() for value in model.parameters()) - backbone,
            **self.measure(Captioner.load(bundle, device="cpu", threads=1), options),
        }
        aside = args.work / f"{name}.part"
        aside.write_text(json.dumps(record, indent=1))
        aside.replace(args.work / f"{name}.json")
        shutil.rmtree(folder)
        shown = ", ".join(f"{s} CIDEr {v['cider']:.1f}" for s, v in record["scores"].items())
        print(f"{name}: {shown}, {seconds:.0f} s of training", flush=True)

    def measure(self, captioner: Captioner, options: TrainOptions) -> dict[str, Any]:
        """Scores by data set, faithfulness over all of them, and the time of a decoder step."""
        self.sets = self.sets or [DataSet(source, self.args.data_root, captioner) for source in options.data]
        probe = Probe(captioner.bundle.vocabulary)
        scores = {}
        for data in self.sets:
            said = []
            for start in range(0, len(data.pixels), BATCH):
                part = data.pixels[start : start + BATCH]
                stepper = captioner.encode(part)
                found = [best[0].tokens for best in search(stepper, len(part), captioner.defaults)]
                probe.add(stepper, found)
                said += [" ".join(captioner.bundle.vocabulary.decode(tokens)) for tokens in found]
            found_scores = evaluate_captions(
                dict(zip(data.references, said, strict=True)), data.references, meteor=self.meteor
            )
            scores[data.name] = {
                **found_scores.to_dict(),
                "intervals": {
                    name: [100 * bound for bound in bounds] for name, bounds in found_scores.intervals.items()
                },
            }
        pixels = self.sets[0].pixels
        return {
            "scores": scores,
            "faithfulness": probe.result().to_dict(),
            "step_ms": {str(size): step_ms(captioner, pixels[:size]) for size in (1, 32)},
        }


class DataSet:
    """The validation split of a source, as pixels."""

    def __init__(self, source: SourceOptions, root: Path, captioner: Captioner) -> None:
        images = read_references(root / source.captions, "val")
        files = ImageFiles([root / place for place in source.images])
        self.name = source.name
        self.references = {image.name: image.captions for image in images}
        self.pixels: Pixels = np.stack([captioner.preprocess(files.read(image.name)) for image in images])


def step_ms(captioner: Captioner, pixels: Pixels) -> float:
    """Milliseconds of one decoder step for a batch, in the middle of a caption."""
    stepper = captioner.encode(pixels)
    state = stepper.start(BEAMS)
    tokens = np.full((len(pixels), BEAMS), captioner.bundle.vocabulary.start_id)
    for _ in range(5):
        log_probs, _, state = stepper.step(tokens, state)
        tokens = log_probs.argmax(axis=-1)
    times = []
    for _ in range(STEPS):
        started = time.process_time()
        stepper.step(tokens, state)
        times.append(time.process_time() - started)
    return round(1000 * statistics.median(times), 3)


if __name__ == "__main__":
    main()
