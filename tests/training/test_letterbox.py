"""Training on photos that keep their shape: the same pixels, masks and captions as in a bundle."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support import squares, tiny_cnn
from support.torch_session import TorchSession

from captioner.captioner import Captioner
from captioner.export.bundle import export_bundle
from captioner.images.letterbox import Letterbox
from captioner.images.opening import load_pixels
from captioner.nn.encoder import GridEncoder, build_backbone
from captioner.training.data import pixel_network, stored_arrays
from captioner.training.data.examples import Example, load_examples
from captioner.training.data.feature_cache import FeatureCache, build_cache
from captioner.training.data.frozen_part import FrozenPart, trained_outputs
from captioner.training.loop.trainer import Trainer
from captioner.training.loop.validation import validate
from captioner.training.weights import checkpoint

CPU = torch.device("cpu")
BOX = Letterbox(8, (124, 116, 104))
SHAPES = ((32, 32), (32, 11), (16, 32), (64, 3))


@pytest.fixture(scope="module")
def photos(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The squares in wide and tall photos; the folder of the data set."""
    folder = Path(shutil.copytree(data, tmp_path_factory.mktemp("shapes") / "data"))
    for number, path in enumerate(sorted((folder / "images").iterdir())):
        with Image.open(path) as square:
            square.resize(SHAPES[number % len(SHAPES)]).save(path)
    return folder


@pytest.fixture
def examples(photos: Path) -> list[Example]:
    return load_examples(squares.options().data, photos, "train")


@pytest.fixture
def encoder() -> GridEncoder:
    torch.manual_seed(0)
    return GridEncoder(build_backbone(tiny_cnn.NAME, None), 8, 6).eval()


def build(folder: Path, encoder: GridEncoder, examples: list[Example], **changes) -> FeatureCache:
    progress = changes.pop("progress", lambda done, total: None)
    values = {"segments": 0, "letterbox": BOX, **changes}
    part = FrozenPart(encoder=encoder, name="tiny", image_size=squares.SIZE, **values)
    return build_cache(folder, part, examples, CPU, progress)


def shown(examples: list[Example], rows: list[int], mirrored: list[int]) -> np.ndarray:
    """Pixels and where the photo is, uint8 (batch, height, width, 4)."""
    contents = [examples[row].files.read(examples[row].image.name) for row in rows]
    found = [load_pixels(content, squares.SIZE, letterbox=BOX) for content in contents]
    return np.stack([p[:, ::-1] if m else p for p, m in zip(found, mirrored, strict=True)])


@pytest.mark.parametrize("frozen", [0, 2])
def test_masks_are_kept_and_mirrored_with_the_photos(
    tmp_path, encoder, examples, frozen, monkeypatch
) -> None:
    monkeypatch.setattr(
        pixel_network, "pixel_session", lambda module, _: TorchSession(module)
    )  # seconds to export
    rows, mirrored = [0, 1, 2, 3, 7, 2], [0, 1, 0, 1, 0, 1]
    expected = shown(examples, rows, mirrored)
    for _ in range(2):  # computed, and as it lies on the disk
        kept = build(tmp_path, encoder, examples[:8], segments=frozen)
        mask = kept.masks(torch.tensor(rows), torch.tensor(mirrored), CPU)
        assert mask is not None and mask.dtype == torch.bool
        np.testing.assert_array_equal(mask.numpy(), BOX.mask(expected).reshape(len(rows), -1))
        maps = kept.maps(torch.tensor(rows), torch.tensor(mirrored), CPU)
        pixels = torch.from_numpy(expected[..., :3].copy())
        if frozen == 0:
            assert torch.equal(maps[0], pixels)
        with torch.inference_mode():
            grid = encoder.fuse(trained_outputs(encoder, maps, frozen, 3 - frozen), mask)
            torch.testing.assert_close(grid, encoder(pixels, mask), rtol=1e-2, atol=1e-2)  # half precision
    assert sorted(set(mask.sum(dim=1).tolist())) == [4, 8, 16]


def test_letterboxed_photos_are_another_cache(tmp_path, encoder, examples) -> None:
    few = examples[:3]
    boxes = (BOX, None, Letterbox(8, (0, 0, 0)))
    for number, box in enumerate(boxes, 1):
        kept = build(tmp_path, encoder, few, letterbox=box)
        assert len(list(tmp_path.iterdir())) == number
        assert (kept.masks(torch.tensor([0]), torch.tensor([0]), CPU) is None) is (box is None)


def test_an_interrupted_cache_goes_on(tmp_path, encoder, examples, monkeypatch) -> None:
    monkeypatch.setattr(stored_arrays, "BATCH", 1)
    expected = build(tmp_path / "whole", encoder, examples)

    def interrupt(done: int, _: int) -> None:
        if done == 18:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "parts", encoder, examples, progress=interrupt)
    found = build(tmp_path / "parts", encoder, examples)
    everything = torch.arange(24), torch.arange(24) % 2
    assert torch.equal(found.maps(*everything, CPU)[0], expected.maps(*everything, CPU)[0])
    assert torch.equal(found.masks(*everything, CPU), expected.masks(*everything, CPU))


@pytest.fixture(scope="module")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    options = squares.options((squares.stage(epochs=4),))
    model = dataclasses.replace(options.model, resize="letterbox", refiner_layers=1, attention_heads=2)
    source = dataclasses.replace(options.data[0], repeat=4)
    options = dataclasses.replace(options, model=model, data=(source,))
    folder = tmp_path_factory.mktemp("run")
    trainer = Trainer(options, folder, photos, tmp_path_factory.mktemp("cache"), CPU, squares.Silent())
    trainer.run()
    yield trainer


def test_squares_of_all_shapes_are_learnt(trained: Trainer) -> None:
    history = trained.history
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]
    assert history[-1]["val"]["squares"]["cider"] > 1.2 * max(10, history[0]["val"]["squares"]["cider"])


def test_the_bundle_says_what_validation_heard(trained: Trainer, photos: Path, tmp_path: Path) -> None:
    """From the same files by way of the cache and of the image path, with the network and with its graphs."""
    paths = [photos / "images" / example.image.name for example in trained.val_examples]
    parity = export_bundle(trained.folder.path / "best.pt", tmp_path / "bundle", images=paths)
    assert parity.captions == len(paths) and parity.log_prob < 1e-4 and parity.attention < 1e-5
    captioner = Captioner.load(tmp_path / "bundle", device="cpu", threads=1)
    model, vocabulary, options, _ = checkpoint.load_model(trained.folder.path / "best.pt")
    assert model.letterbox == BOX == captioner.bundle.letterbox
    heard, _ = validate(
        model,
        trained.val_features,
        trained.val_examples,
        vocabulary,
        trained.options.frozen_segments,
        options.search,
        CPU,
    )
    for caption, expected in zip(captioner.caption(paths), heard, strict=True):
        assert " ".join(word.text for word in caption.words) == expected.text
        assert caption.log_prob == pytest.approx(expected.log_prob, abs=1e-3)
    shapes = {caption.words[0].attention.shape for caption in captioner.caption(paths)}
    assert shapes == {(4, 4), (1, 4), (4, 2)}
