"""The recipes that come with captioner can be read, and that for all of COCO trains on its official files."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path

import pytest
from support import squares, tiny_cnn

from captioner.cli.commands.train import RECIPES
from captioner.training.config.train_options import SourceOptions, TrainOptions
from captioner.training.weights import checkpoint

NAMES = sorted(path.stem for path in RECIPES.glob("*.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_read(name: str) -> None:
    options = TrainOptions.read(RECIPES / f"{name}.toml")
    assert options.name == name and all(stage.objectives for stage in options.stages)
    assert TrainOptions.from_dict(options.to_dict()) == options


def official(root: Path, split: str, count: int, zipped: bool) -> None:
    """A sample as cocodataset.org has it: images with numbers, captions in annotations of their own."""
    folder = root / split
    folder.mkdir(parents=True)
    images, annotations = [], []
    for number in range(count):
        color, side = list(squares.COLORS)[number % 3], squares.SIDES[number % 2]
        name = f"{number + 9:012}.jpg"
        squares.draw(color, side, number).resize((64, 48)).save(folder / name)
        images.append({"id": number + 9, "file_name": name, "license": 1, "width": 64, "height": 48})
        annotations += [
            {"id": len(annotations) + row, "image_id": number + 9, "caption": text + "."}
            for row, text in enumerate(squares.captions(color, side))
        ]
    document = {"info": {}, "licenses": [], "images": images, "annotations": annotations}
    (root / "annotations").mkdir(exist_ok=True)
    (root / "annotations" / f"captions_{split}.json").write_text(json.dumps(document))
    if zipped:
        with zipfile.ZipFile(root / f"{split}.zip", "w") as archive:
            for path in sorted(folder.iterdir()):
                archive.write(path, f"{split}/{path.name}")
                path.unlink()
        folder.rmdir()


@pytest.mark.parametrize("zipped", [False, True])
def test_the_recipe_for_coco_trains_on_a_sample(zipped: bool, cache: Path, tmp_path: Path) -> None:
    official(tmp_path, "train2017", 12, zipped)
    official(tmp_path, "val2017", 4, zipped)
    small = {
        "weights": "random",
        "min_count": "1",
        "model.encoder": tiny_cnn.NAME,
        "model.image_size": "32",
        "model.stride": "8",
        **{f"model.{name}": "16" for name in ("features", "hidden", "embedding", "attention_hidden")},
        **{f"stages.{stage}.epochs": "1" for stage in range(3)},
        **{f"stages.{stage}.tuned_segments": "3" for stage in range(3)},
        "stages.1.stochastic_depth": "0",
        "precision": "float32",
    }
    options = TrainOptions.read(RECIPES / "coco.toml", small)
    history = squares.trainer(options, tmp_path / "run", tmp_path, cache).run()
    assert [record["stage"] for record in history] == ["decoder", "encoder", "reward"]
    assert all(list(record["val"]) == ["coco-val"] for record in history)
    checkpoint.load_model(tmp_path / "run" / "best.pt")


def test_the_recipe_for_a_small_model_under_a_large_decoder_trains_on_a_sample(
    cache: Path, tmp_path: Path
) -> None:
    names = ("flickr8k", "coco", "coco40k")
    for name in names:
        squares.write(tmp_path / name)
    source = SourceOptions(name="flickr8k", captions="flickr8k/captions.json", images=("flickr8k/images",))
    model = dataclasses.replace(squares.CLASSIFYING, stride=8)
    teacher = squares.options((squares.stage(epochs=1),), model=model, data=(source,), weights="imagenet")
    squares.trainer(teacher, tmp_path / "large", tmp_path, cache).run()
    small = {
        "start": "large/best.pt",
        "model.encoder": "efficientnet_lite1",
        **{f"data.{row}.images": f'["{name}/images"]' for row, name in enumerate(names)},
        **{f"stages.{row}.objectives.distillation.teachers": '["large/best.pt"]' for row in range(2)},
        **{f"stages.{row}.epochs": "1" for row in range(3)},
        **{f"stages.{row}.batch_captions": "200" for row in range(3)},
        "precision": "float32",
    }
    options = TrainOptions.read(RECIPES / "distilled.toml", small)
    history = squares.trainer(options, tmp_path / "run", tmp_path, cache).run()
    assert [record["stage"] for record in history] == ["readers", "encoder", *["reward"] * 3]
    learnt, *_ = checkpoint.load_model(tmp_path / "run" / "best.pt")
    assert learnt.options.encoder == "efficientnet_lite1"
