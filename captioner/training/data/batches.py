"""Captions of images as batches of tensors."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.training.config.train_options import StageOptions
from captioner.training.data.examples import Example

CAPTIONS_PER_GROUP = 5

# Kinds of groups.
CAPTIONS = "captions"
"""Captions to learn."""
PHOTOS = "photos"
"""Photos that captions are sampled for."""
LABELS = "labels"
"""Beginnings of captions that name what a labelled photo shows."""
NAMED = "named"
"""Labelled photos that captions are sampled for."""
RETAINED = "retained"
"""Photos whose captions by the starting model are kept."""

_SIDED = re.compile(r"\b(left|right)", re.IGNORECASE)


@dataclass(frozen=True)
class Group:
    """One image in a batch, with those of its captions that are learnt together."""

    image: int
    captions: tuple[tuple[int, ...], ...]
    can_mirror: bool
    kind: str = CAPTIONS
    """Groups of one kind make a batch; an objective says which kinds it has a loss for."""
    sampled: int = 0
    """Captions that will be sampled for it, which count for the size of the batch."""


def make_groups(examples: Sequence[Example], vocabulary: Vocabulary, max_words: int) -> list[Group]:
    """All captions of an image together, at most five in a group. Batches contain images with equally many
    captions, without padding; the encoder sees each image once for all of them.
    """
    groups = []
    for index, example in enumerate(examples):
        learnt = () if example.retained else example.image.captions
        encoded = [encode(caption, vocabulary, max_words) for caption in learnt]
        for start in range(0, len(encoded), CAPTIONS_PER_GROUP):
            part = range(start, min(start + CAPTIONS_PER_GROUP, len(encoded)))
            sided = any(_SIDED.search(example.image.captions[i]) for i in part)
            groups += [Group(index, tuple(encoded[i] for i in part), not sided)] * example.repeat
    return groups


def make_sampled_groups(
    examples: Sequence[Example], kind: str, samples: int, min_references: int = 1
) -> list[Group]:
    """The images of a kind, without captions, for each of which `samples` will be sampled: `PHOTOS` with at
    least `min_references` captions, `NAMED` with labels, or `RETAINED`."""
    groups = []
    for index, example in enumerate(examples):
        learnt = () if example.retained else example.image.captions
        has_kind = {
            PHOTOS: len(learnt) >= min_references,
            NAMED: bool(example.image.words),
            RETAINED: example.retained,
        }
        if has_kind[kind]:
            can_mirror = not any(map(_SIDED.search, learnt))
            groups += [Group(index, (), can_mirror, kind, samples)] * example.repeat
    return groups


def word_weights(groups: Sequence[Group], vocabulary: int) -> Tensor:
    """How informative each word is, float (vocabulary,): -log of the share of captions that contain it; 0
    for special tokens."""
    captions = {(group.image, caption) for group in groups for caption in group.captions}
    having = np.zeros(vocabulary)
    for _, caption in captions:
        having[list(set(caption))] += 1
    weights = -np.log(np.maximum(having, 1) / max(1, len(captions)))
    weights[having == 0] = 0
    weights[: len(SPECIAL)] = 0
    return torch.from_numpy(weights).float()


def encode(caption: str, vocabulary: Vocabulary, max_words: int) -> tuple[int, ...]:
    """Start, words, end; a caption that is too long is cut and has no end."""
    ids = [vocabulary.start_id, *vocabulary.encode(caption), vocabulary.end_id]
    return tuple(ids[: max_words + 2]) if len(ids) <= max_words + 2 else tuple(ids[: max_words + 1])


def pad(captions: Sequence[Sequence[Sequence[int]]]) -> Tensor:
    """Captions of images as int64 (images, captions, length), padded behind their end and where an image has
    fewer."""
    length = max((len(caption) for of_one in captions for caption in of_one), default=0)
    padded = np.full((len(captions), max(map(len, captions)), length), Vocabulary.pad_id, dtype=np.int64)
    for row, of_one in enumerate(captions):
        for column, caption in enumerate(of_one):
            padded[row, column, : len(caption)] = caption
    return torch.from_numpy(padded)


@dataclass(frozen=True)
class Batch:
    """What a step learns from: views of some images, and their captions."""

    images: Tensor
    """int64 (batch,): which examples."""
    views: Tensor
    """int64 (batch,): which view of each: the photo, the photo mirrored, a crop, the crop mirrored, …"""
    captions: Tensor
    """int64 (batch, captions, length), from the start token, padded behind the end token; of groups
    without captions, none."""
    kind: str = CAPTIONS


def epoch_batches(
    groups: Sequence[Group], stage: StageOptions, seed: Sequence[int], crops: int = 0
) -> list[Batch]:
    """The batches of one epoch in order; the same for the same seed. `crops` are those that each image has.

    Captions of similar length are batched together, so that there is little padding: groups are shuffled,
    sorted by length within stretches of a few batches, and the batches shuffled again.
    """
    random = np.random.default_rng(seed)
    by_size: dict[tuple[str, int, int], list[Group]] = defaultdict(list)
    for group in groups:
        by_size[group.kind, len(group.captions), group.sampled].append(group)
    batches = []
    for kind, size, sampled in sorted(by_size):
        alike = by_size[kind, size, sampled]
        per_batch = max(1, stage.batch_captions // max(1, size + sampled))
        order = random.permutation(len(alike))
        stretch = per_batch * 16
        for start in range(0, len(order), stretch):
            part = sorted((alike[i] for i in order[start : start + stretch]), key=_longest)
            cuts = range(0, len(part), per_batch)
            batches += [_collate(part[cut : cut + per_batch], stage.mirror, crops, random) for cut in cuts]
    return [batches[i] for i in random.permutation(len(batches))]


def _longest(group: Group) -> int:
    return max(map(len, group.captions), default=0)


def _collate(groups: Sequence[Group], mirror: bool, crops: int, random: np.random.Generator) -> Batch:
    coin = random.random(len(groups)) < 0.5
    mirrored = coin & np.array([group.can_mirror for group in groups]) & mirror
    views = mirrored.astype(np.int64)
    if crops:
        views += 2 * random.integers(crops, size=len(groups), endpoint=True)
    return Batch(
        torch.tensor([group.image for group in groups]),
        torch.from_numpy(views),
        pad([group.captions for group in groups]),
        groups[0].kind,
    )
