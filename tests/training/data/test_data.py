"""Images and captions as batches."""

from __future__ import annotations

import dataclasses
import itertools
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from support import squares

from captioner.errors import DataError
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.training.config.train_options import SourceOptions, StageOptions
from captioner.training.data.batches import Group, encode, epoch_batches, make_groups, word_weights
from captioner.training.data.examples import load_examples

VOCABULARY = Vocabulary([*SPECIAL, *["a", "the", "dog", "cat", "runs", "on", "left", "right", "of", "grass"]])
START, END, UNKNOWN = Vocabulary.start_id, Vocabulary.end_id, Vocabulary.unknown_id


def source(**changes: object) -> SourceOptions:
    return SourceOptions(**{"name": "one", "captions": "captions.json", "images": ("images",), **changes})  # type: ignore[arg-type]


def test_the_splits_of_a_karpathy_file(data: Path) -> None:
    train = load_examples([source(repeat=3)], data, "train")
    val = load_examples([source(repeat=3)], data, "val")
    assert (len(train), len(val)) == (24, 6)
    assert train[0].key == "one/00.png" and train[0].image.captions[0] == "a red square on the left"
    assert (train[0].repeat, val[0].repeat) == (3, 1)
    assert train[0].files.read(train[0].image.name) == (data / "images" / "00.png").read_bytes()


def test_coco_and_flickr_files_without_splits(data: Path, tmp_path: Path) -> None:
    names = ["00.png", "01.png"]
    coco = {
        "images": [{"id": n, "file_name": name} for n, name in enumerate(names)],
        "annotations": [{"image_id": n % 2, "caption": f"caption {n}"} for n in range(6)],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    (tmp_path / "tokens.txt").write_text(
        "".join(f"{name}#{n}\tcaption {n}\n" for name in names for n in range(5))
    )
    sources = [
        source(captions=str(tmp_path / "coco.json"), train="", val=""),
        source(name="two", captions=str(tmp_path / "tokens.txt"), train="", val=""),
    ]
    examples = load_examples(sources, data, "train")
    assert [e.key for e in examples] == ["one/00.png", "one/01.png", "two/00.png", "two/01.png"]
    assert [len(e.image.captions) for e in examples] == [3, 3, 5, 5]
    assert load_examples(sources, data, "val") == []


def test_images_in_a_zip_file(data: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for path in (data / "images").iterdir():
            archive.write(path, f"deep/{path.name}")
    [first, *_] = load_examples([source(images=(str(tmp_path / "images.zip"),))], data, "train")
    assert first.files.read(first.image.name) == (data / "images" / "00.png").read_bytes()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"captions": "nowhere.json"}, "nowhere.json"),
        ({"train": "holidays"}, "holidays"),
        ({"images": ("nowhere",)}, "there is no .*nowhere; nowhere is looked for in "),
    ],
)
def test_data_that_are_not_there(data: Path, changes: dict, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        load_examples([source(**changes)], data, "train")


def test_an_image_that_is_not_there(data: Path) -> None:
    [first, *_] = load_examples([source(images=(".",))], data, "train")
    with pytest.raises(DataError, match=r"00\.png is in none of the folders"):
        first.files.read(first.image.name)


def test_captions_become_ids() -> None:
    a, dog, runs = VOCABULARY.encode("a dog runs")
    assert encode("A dog, runs!", VOCABULARY, 8) == (START, a, dog, runs, END)
    assert encode("a purple dog", VOCABULARY, 8) == (START, a, UNKNOWN, dog, END)


@pytest.mark.parametrize(("limit", "ends"), [(3, True), (2, False), (1, False)])
def test_a_caption_that_is_too_long_is_cut_and_has_no_end(limit: int, ends: bool) -> None:
    ids = encode("a dog runs", VOCABULARY, limit)
    assert len(ids) == 1 + limit + ends
    assert (ids[-1] == END) is ends


def groups_of(counts: list[int], repeat: int = 1, text: str = "a dog runs") -> list[Group]:
    class Example:
        def __init__(self, count: int) -> None:
            self.image = type("Image", (), {"captions": tuple(f"{text}{' a' * n}" for n in range(count))})
            self.repeat, self.retained = repeat, False

    return make_groups([Example(n) for n in counts], VOCABULARY, 20)  # type: ignore[arg-type, misc]


def test_captions_of_a_photo_are_learnt_together_at_most_five() -> None:
    groups = groups_of([5, 7, 2, 10, 0])
    assert [(g.image, len(g.captions)) for g in groups] == [
        (0, 5), (1, 5), (1, 2), (2, 2), (3, 5), (3, 5)
    ]  # fmt: skip
    assert len({c for g in groups if g.image == 3 for c in g.captions}) == 10
    assert len(groups_of([5, 2], repeat=3)) == 6


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("a dog runs", True),
        ("a dog on the left", False),
        ("the RIGHT dog", False),
        ("a left-handed cat", False),
        ("cleft cats are upright", True),
    ],
)
def test_what_says_left_or_right_is_not_mirrored(text: str, may: bool) -> None:
    assert {g.can_mirror for g in groups_of([5], text=text)} == {may}


def batches(seed: int = 1, mirror: bool = True, sided: int = 0):
    groups = groups_of([5, 6, 5, 7, 3] * 8)
    groups += groups_of([5] * sided, text="a cat on the left")
    stage = StageOptions(name="one", batch_captions=20, mirror=mirror)
    return groups, epoch_batches(groups, stage, (seed, 0))


def test_an_epoch_shows_every_group_once() -> None:
    groups, epoch = batches()
    shown = sorted(
        (int(image), tuple(tuple(c[c != 0].tolist()) for c in captions))
        for batch in epoch
        for image, captions in zip(batch.images, batch.captions, strict=True)
    )
    assert shown == sorted((g.image, g.captions) for g in groups)


def test_batches_are_no_larger_than_asked_and_padded_behind_the_end_alone() -> None:
    _, epoch = batches()
    for batch in epoch:
        assert batch.captions.shape[0] * batch.captions.shape[1] <= 20
        assert len(batch.images) == len(batch.views) == len(batch.captions)
        for caption in batch.captions.flatten(0, 1).tolist():
            assert caption[0] == START
            words = list(itertools.takewhile(bool, caption))
            assert words[-1] == END and not any(caption[len(words) :])
        assert (batch.captions[..., -1] != 0).any()  # no column is all padding


def test_an_epoch_is_the_same_for_the_same_seed_alone() -> None:
    first, again, other = (batches(seed)[1] for seed in (1, 1, 2))
    for one, two in zip(first, again, strict=True):
        for name in ("images", "views", "captions"):
            assert torch.equal(getattr(one, name), getattr(two, name))
    assert [b.images.tolist() for b in first] != [b.images.tolist() for b in other]


def test_half_of_the_images_are_mirrored_but_none_that_says_left() -> None:
    mirrored = []
    for seed in range(5):
        groups, epoch = batches(seed, sided=30)
        left = VOCABULARY.encode("left")[0]
        for batch in epoch:
            sided = (batch.captions == left).flatten(1).any(dim=1)
            assert not batch.views[sided].any()
            mirrored += batch.views[~sided].tolist()
        assert any(not group.can_mirror for group in groups)
    assert 0.4 < np.mean(mirrored) < 0.6
    assert not any(batch.views.any() for batch in batches(mirror=False)[1])


def test_crops_are_shown_as_often_as_the_photo_and_mirrored_like_it() -> None:
    views = []
    for seed in range(10):
        groups, _ = batches(seed, sided=30)
        left = VOCABULARY.encode("left")[0]
        for batch in epoch_batches(groups, StageOptions(name="s", batch_captions=20), (seed,), crops=2):
            sided = (batch.captions == left).flatten(1).any(dim=1)
            assert not (batch.views[sided] % 2).any()
            views += batch.views[~sided].tolist()
    shares = np.bincount(views, minlength=6) / len(views)
    assert len(shares) == 6 and (abs(shares - 1 / 6) < 0.06).all()


def test_the_data_of_the_tests_say_left(data: Path) -> None:
    examples = load_examples([source()], data, "train")
    vocabulary = Vocabulary.build((c for e in examples for c in e.image.captions), 1)
    assert not any(group.can_mirror for group in make_groups(examples, vocabulary, 8))
    assert set(squares.COLORS) <= set(vocabulary.words)


def test_rare_words_weigh_more_and_what_is_no_word_nothing() -> None:
    groups = [
        Group(0, ((START, 4, 5, END), (START, 4, 4, END)), True),
        Group(1, ((START, 4, 6, END), (START, Vocabulary.unknown_id, END)), True),
    ]
    weights = word_weights([*groups, groups[0]], 8)  # shown twice, counted once
    expected = [0, 0, 0, 0, -np.log(3 / 4), -np.log(1 / 4), -np.log(1 / 4), 0]
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-6)


def test_a_fraction_for_validation_is_always_the_same(data: Path) -> None:
    document = json.loads((data / "captions.json").read_text())
    for image in document["images"]:
        del image["split"]
        image["split"] = ""
    path = data / "without_splits.json"
    path.write_text(json.dumps(document))
    whole = SourceOptions(name="a", captions=path.name, images=("images",))
    assert len(load_examples([whole], data, "train")) == 30 and not load_examples([whole], data, "val")
    part = dataclasses.replace(whole, val_fraction=0.3)
    learnt, unseen = (
        {example.image.name for example in load_examples([part], data, split)} for split in ("train", "val")
    )
    assert len(learnt | unseen) == 30 and not learnt & unseen and 3 <= len(unseen) <= 15
    more = dataclasses.replace(part, val_fraction=0.5)
    assert unseen <= {example.image.name for example in load_examples([more], data, "val")}
    splits = SourceOptions(name="a", captions="captions.json", images=("images",), val_fraction=0.3)
    assert len(load_examples([splits], data, "train")) + len(load_examples([splits], data, "val")) == 24
