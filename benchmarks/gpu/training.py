"""A short epoch of the recipe coco, which is made for GPUs: random weights, made-up captions."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from measures.bench import Bench, Table
from measures.photos import SIZES, write_photos

_SENTENCES = ("a cup of coffee", "a raccoon looks up", "a woman in orange", "a long way up", "a rocket flies")


def epoch(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    if not all(bench.has(package, "a recipe's epoch") for package in ("torch", "torchvision")):
        return [], {}
    import torch

    from captioner.cli.commands.train import RECIPES
    from captioner.training.config.train_options import TrainOptions
    from captioner.training.loop.trainer import Trainer
    from captioner.training.progress import Progress

    device = torch.device(bench.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        bench.skip("a recipe's epoch", "PyTorch finds no GPU")
        return [], {}
    count = 16 if bench.quick else 2_000
    root = bench.work / "training"
    _write_data(root, count)
    recipe = TrainOptions.read(RECIPES / "coco.toml").to_dict()
    model = recipe["model"]
    if bench.quick:
        model |= {"encoder": "efficientnet_lite0", "image_size": 64, "features": 32, "hidden": 32}
        model |= {"embedding": 32, "attention_hidden": 16}
    stage = {**recipe["stages"][1], "epochs": 1, "warmup_steps": 1, "zoom": 1.0}
    data = {"name": "made-up", "captions": "captions.json", "images": ["photos"]}
    changes = {"weights": "random", "min_count": 1, "data": [data], "stages": [stage]}
    options = TrainOptions.from_dict({**recipe, **changes, "model": model})
    started = time.monotonic()
    history = Trainer(options, root / "run", root, root / "cache", device, Progress()).run()
    seconds = time.monotonic() - started
    row: dict[str, Any] = {"photos": count, "captions": count * len(_SENTENCES), "seconds": seconds}
    row |= {"captions/s": count * len(_SENTENCES) / seconds, "loss": history[-1]["loss"]}
    if device.type == "cuda":
        row["device MB at the peak"] = round(torch.cuda.max_memory_allocated(device) / 1e6)
    good = bool(row["loss"] == row["loss"])  # not NaN
    note = "Reading the photos and the validation are part of it."
    return [Table("An epoch of the recipe coco", [row], note)], {"an epoch is trained": good}


def _write_data(root: Path, count: int) -> None:
    """Photos below `root`, and a Karpathy file of them."""
    folder = write_photos(root / "photos", SIZES["500 x 375"], count, 16)
    sentences = [{"raw": text} for text in _SENTENCES]
    images = [
        {
            "filename": str(path.relative_to(folder)),
            "split": "val" if number % 8 == 0 else "train",
            "sentences": sentences,
        }
        for number, path in enumerate(sorted(folder.rglob("*.jpg")))
    ]
    (root / "captions.json").write_text(json.dumps({"images": images}))
