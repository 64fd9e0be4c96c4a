"""Features that are computed once."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from support import squares, tiny_cnn
from support.disks import filled
from support.torch_session import TorchSession

from captioner.errors import DataError, OutputError
from captioner.images.opening import load_pixels, open_image, to_pixels
from captioner.nn.encoder import GridEncoder, build_backbone
from captioner.training.config.train_options import SourceOptions
from captioner.training.data import frozen_part, pixel_network, stored_arrays
from captioner.training.data.augment import crop
from captioner.training.data.examples import Example, load_examples
from captioner.training.data.feature_cache import FeatureCache, build_cache
from captioner.training.data.frozen_part import FrozenPart, trained_outputs
from captioner.training.data.pixel_network import weights_digest
from captioner.training.data.stored_arrays import fill

CPU = torch.device("cpu")


@pytest.fixture
def examples(data: Path) -> list[Example]:
    source = SourceOptions(name="squares", captions="captions.json", images=("images",))
    return load_examples([source], data, "train")


@pytest.fixture
def encoder() -> GridEncoder:
    return make_encoder()


def make_encoder(color_levels: int = 0) -> GridEncoder:
    torch.manual_seed(0)
    return GridEncoder(build_backbone(tiny_cnn.NAME, None), 16, 6, color_levels=color_levels).eval()


def build(folder: Path, encoder: GridEncoder, examples: list[Example], **changes) -> FeatureCache:
    progress = changes.pop("progress", lambda done, total: None)
    values = {"name": "tiny", "image_size": squares.SIZE, "segments": 0, **changes}
    return build_cache(folder, FrozenPart(encoder=encoder, **values), examples, CPU, progress)


def pixels_of(examples: list[Example], rows: list[int], mirrored: list[int]) -> torch.Tensor:
    found = [load_pixels(examples[row].files.read(examples[row].image.name), squares.SIZE) for row in rows]
    flipped = [p[:, ::-1] if m else p for p, m in zip(found, mirrored, strict=True)]
    return torch.from_numpy(np.stack(flipped))


def test_with_nothing_frozen_the_pixels_are_kept(tmp_path, encoder, examples) -> None:
    kept = build(tmp_path, encoder, examples)
    rows, mirrored = [3, 0, 23], [0, 1, 1]
    [found] = kept.maps(torch.tensor(rows), torch.tensor(mirrored), CPU)
    assert found.dtype == torch.uint8
    assert torch.equal(found, pixels_of(examples, rows, mirrored))


@pytest.mark.parametrize("color_levels", [0, 3])
def test_frozen_segments_are_as_pytorch_computes_them(tmp_path, examples, color_levels) -> None:
    encoder = make_encoder(color_levels)
    kept = build(tmp_path, encoder, examples[:5], segments=3)
    rows, mirrored = [4, 1], [1, 0]
    maps = kept.maps(torch.tensor(rows), torch.tensor(mirrored), CPU)
    with torch.inference_mode():
        pixels = pixels_of(examples, rows, mirrored)
        expected = encoder.outputs(encoder.inputs(pixels), 0, 3)
        for ours, theirs in zip(maps, expected, strict=True):
            assert ours.dtype == torch.float32
            torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3)  # half precision
        torch.testing.assert_close(
            encoder.fuse(trained_outputs(encoder, maps, 3, 0)), encoder(pixels), rtol=1e-2, atol=1e-2
        )


@pytest.mark.parametrize("tuned", [0, 1, 2, 3])
def test_what_a_stage_does_not_train_has_no_gradient(tmp_path, encoder, examples, tuned: int) -> None:
    maps = build(tmp_path, encoder, examples).maps(torch.tensor([0]), torch.tensor([0]), CPU)
    grid = encoder.fuse(trained_outputs(encoder, maps, 0, tuned))
    with torch.inference_mode():
        torch.testing.assert_close(grid.detach(), encoder(maps[0]))
    grid.square().sum().backward()
    learns = [any(p.grad is not None for p in segment.parameters()) for segment in encoder.backbone.segments]
    assert learns == [False] * (3 - tuned) + [True] * tuned


def test_crops_are_views_too(tmp_path, encoder, examples) -> None:
    kept = build(tmp_path, encoder, examples[:2], crops=2)
    [views] = kept.maps(torch.tensor([1] * 6), torch.arange(6), CPU)
    assert torch.equal(views[:2], pixels_of(examples, [1, 1], [0, 1]))
    assert torch.equal(views[1::2], views[::2].flip(2))
    photo = open_image(examples[1].files.read(examples[1].image.name))
    for number in (1, 2):
        expected = to_pixels(crop(photo, examples[1].key, number), squares.SIZE)
        assert torch.equal(views[2 * number], torch.from_numpy(expected))
    assert not torch.equal(views[2], views[4])


def test_photos_that_are_never_mirrored_have_half_the_views(tmp_path, encoder, examples) -> None:
    both, plain = (build(tmp_path, encoder, examples[:3], crops=1, mirrored=sides) for sides in (True, False))
    rows = torch.tensor([0, 2])
    for view in range(2):
        views = torch.full((2,), view)
        for one, other in zip(plain.maps(rows, views, CPU), both.maps(rows, 2 * views, CPU), strict=True):
            assert torch.equal(one, other)
    with pytest.raises(IndexError):
        plain.maps(rows, torch.tensor([2, 2]), CPU)


class Counter:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loaded = 0
        real = frozen_part.load_pixels

        def load(*arguments, **options):
            self.loaded += 1
            return real(*arguments, **options)

        monkeypatch.setattr(frozen_part, "load_pixels", load)

    def take(self) -> int:
        taken, self.loaded = self.loaded, 0
        return taken


def test_an_interrupted_computation_goes_on(tmp_path, encoder, examples, monkeypatch) -> None:
    monkeypatch.setattr(stored_arrays, "BATCH", 1)
    expected = build(tmp_path / "whole", encoder, examples)
    counter = Counter(monkeypatch)

    def interrupt(done: int, total: int) -> None:
        assert total == 24
        if done == 19:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "parts", encoder, examples, progress=interrupt)
    assert counter.take() == 19
    told: list[int] = []
    found = build(tmp_path / "parts", encoder, examples, progress=lambda done, _: told.append(done))
    assert counter.take() == 24 - 16  # from the last note
    assert told == list(range(17, 25))
    everything = torch.arange(24), torch.arange(24) % 2
    assert torch.equal(found.maps(*everything, CPU)[0], expected.maps(*everything, CPU)[0])
    build(tmp_path / "parts", encoder, examples)
    assert counter.take() == 0


def test_another_question_is_another_cache(tmp_path, encoder, examples, monkeypatch) -> None:
    counter = Counter(monkeypatch)
    build(tmp_path, encoder, examples)
    assert counter.take() == 24
    build(tmp_path, encoder, examples)
    assert counter.take() == 0
    other = GridEncoder(build_backbone(tiny_cnn.NAME, None), 8, 6).eval()
    for changes in ({"name": "other"}, {"image_size": 64}, {"crops": 1}):
        build(tmp_path, encoder, examples, **changes)
        assert counter.take() == 24
    for encoder_of_its_own in (other, make_encoder(color_levels=3)):
        build(tmp_path, encoder_of_its_own, examples)
        assert counter.take() == 24
    build(tmp_path, encoder, examples[:20])
    assert counter.take() == 20


def test_other_weights_of_the_same_encoder_are_another_cache(
    tmp_path, encoder, examples, monkeypatch
) -> None:
    monkeypatch.setattr(pixel_network, "pixel_session", lambda frozen, _: TorchSession(frozen))
    few = examples[:2]
    build(tmp_path, encoder, few, segments=2)
    torch.manual_seed(1)
    other = GridEncoder(build_backbone(tiny_cnn.NAME, None), 16, 6).eval()
    kept = build(tmp_path, other, few, segments=2)
    [maps] = kept.maps(torch.tensor([0]), torch.tensor([0]), CPU)
    with torch.inference_mode():
        normal = other.backbone.normalize(pixels_of(few, [0], [0]))
        [expected] = other.outputs([normal], 0, 2)
    torch.testing.assert_close(maps, expected, rtol=2e-3, atol=2e-3)


def test_a_note_is_whole_or_not_there(tmp_path, encoder, examples) -> None:
    build(tmp_path, encoder, examples)
    [note] = tmp_path.glob("*/done.json")
    assert json.loads(note.read_text())["done"] == 24
    assert sorted(path.name for path in note.parent.iterdir()) == [
        "damaged.npy",
        "done.json",
        "lock",
        "stage0.npy",
    ]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: os.truncate(folder / "stage0.npy", 1000),
        lambda folder: os.truncate(folder / "stage0.npy", 0),
        lambda folder: (folder / "stage0.npy").unlink(),
        lambda folder: shutil.copy(folder / "damaged.npy", folder / "stage0.npy"),
        lambda folder: shutil.copy(folder / "stage0.npy", folder / "stage1.npy"),
        lambda folder: (folder / "done.json").write_text(""),
        lambda folder: (folder / "done.json").write_text('{"done": 24}'),
    ],
)
def test_a_damaged_cache_is_computed_anew(tmp_path, encoder, examples, damage, monkeypatch) -> None:
    build(tmp_path, encoder, examples)
    [note] = tmp_path.glob("*/done.json")
    expected = {path.name: path.read_bytes() for path in note.parent.iterdir()}
    damage(note.parent)
    counter = Counter(monkeypatch)
    build(tmp_path, encoder, examples)
    assert counter.take() == 24
    assert {path.name: path.read_bytes() for path in note.parent.iterdir()} == expected


def test_a_bad_image_is_named(tmp_path, encoder, data) -> None:
    (tmp_path / "images").mkdir()
    source = SourceOptions(name="squares", captions=str(data / "captions.json"), images=("images",))
    examples = load_examples([source], tmp_path, "train")
    with pytest.raises(DataError, match=r"00\.png"):
        build(tmp_path / "cache", encoder, examples)
    shutil.copytree(data / "images", tmp_path / "images", dirs_exist_ok=True)
    (tmp_path / "images" / "00.png").write_text("no image")
    damaged = build(tmp_path / "cache", encoder, examples).damaged
    assert list(damaged) == [0] and damaged[0].startswith("not an image")


def test_a_negative_zero_is_a_zero(encoder) -> None:
    weight = next(encoder.backbone.parameters()).data.view(-1)
    found = []
    for weight[0] in (0.0, -0.0, 1.0):
        found.append(weights_digest(encoder.backbone.segments))
    assert found[0] == found[1] != found[2]


def test_a_disk_without_room_is_noticed_at_the_start(tmp_path, encoder, examples, mount) -> None:
    disk = mount("-t", "tmpfs", "-o", "size=1m", "tmpfs")
    with filled(disk, 100_000), pytest.raises(OutputError, match=r"0\.1 MB.*No space left on device"):
        build(disk, encoder, examples)
    assert not list(disk.rglob("*.npy"))
    everything = torch.arange(24), torch.arange(24) % 2
    found, expected = build(disk, encoder, examples), build(tmp_path / "elsewhere", encoder, examples)
    assert torch.equal(found.maps(*everything, CPU)[0], expected.maps(*everything, CPU)[0])


def test_a_replaced_image_of_the_same_size_and_time_is_computed_anew(
    tmp_path: Path, encoder, data: Path
) -> None:
    root = tmp_path / "data"
    shutil.copytree(data, root)
    sources = squares.options().data
    replaced = root / "images" / "24.png"

    def draw(number: int) -> None:
        content = io.BytesIO()
        squares.draw("red", "left", number).save(content, "PNG")
        replaced.write_bytes(content.getvalue().ljust(1000, b"\0"))
        os.utime(replaced, (1, 1))

    draw(24)
    before = build(tmp_path / "cache", encoder, load_examples(sources, root, "val"))
    draw(900)
    after = build(tmp_path / "cache", encoder, load_examples(sources, root, "val"))
    images, views = torch.arange(6), torch.zeros(6, dtype=torch.int64)
    one, two = (kept.maps(images, views, CPU)[0] for kept in (before, after))
    assert [bool((a != b).any()) for a, b in zip(one, two, strict=True)] == [True, *[False] * 5]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, examples) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(OutputError, match=r"cannot write .*/cache/kind-\w+: Not a directory"):
        fill(tmp_path / "cache", "kind", {}, examples, lambda part: {}, lambda done, total: None)


def test_of_two_runs_one_computes(tmp_path: Path, examples) -> None:
    computed: list[int] = []

    def compute(part: Sequence[Example]) -> dict[str, np.ndarray]:
        computed.append(len(part))
        time.sleep(0.2)
        return {"a": np.zeros((len(part), 2), np.float32)}

    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(fill, tmp_path, "kind", {}, examples, compute, lambda done, total: None)
            for _ in range(3)
        ]
        assert all(run.result()["a"].shape == (len(examples), 2) for run in runs)
    assert sum(computed) == len(examples)
