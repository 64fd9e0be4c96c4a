"""The model that a run trains: a new one, or one made from the model that it starts from."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.nn.model import CaptionModel
from captioner.training.config.train_options import TrainOptions
from captioner.training.data.examples import Example
from captioner.training.names.class_words import ClassWords, caption_counts, class_names
from captioner.training.names.label_classes import choose_classes
from captioner.training.names.label_words import build_vocabulary, related_words
from captioner.training.names.related import related_names
from captioner.training.names.repetition import repetition_costs
from captioner.training.weights.start import Start, mix_backbone
from captioner.words.imagenet import class_words


class Built(NamedTuple):
    """A model, with what its run has chosen for it."""

    model: CaptionModel
    vocabulary: Vocabulary
    options: TrainOptions
    """Their `model` says how many words name classes, and which words of labels have classes."""
    added: tuple[str, ...]
    """The words of labels whose classes are new and not fitted yet."""


def build_model(
    options: TrainOptions, examples: Sequence[Example], start: Start | None, note: Callable[[str], None]
) -> Built:
    """The model for a run on `examples`, the training images, with random, pretrained or the start's weights.

    `options` are planned, with the architecture of the start if there is one; `note` receives what the user
    should know. Raises `DataError` for data that the options are not for.
    """
    architecture = options.model
    # A start that has classes has their words.
    bonus = architecture.bonus
    classes = class_words() if bonus.classes and not (start and start.model.bonus.classes) else []
    vocabulary = build_vocabulary(examples, options.min_count, classes)
    if start:
        vocabulary = start.extended(vocabulary)
    if len(vocabulary) == len(SPECIAL):
        raise DataError(f"no word of the captions occurs {options.min_count} times: lower min_count")
    counts = functools.cache(lambda: _caption_counts(examples, vocabulary, start))
    added: tuple[str, ...] = ()
    if options.label_classes.photos:
        added = choose_classes(options.label_classes, bonus, examples, vocabulary, counts())
        note(f"words of labels that get classes: {', '.join(added) or 'none'}")
    bonus = dataclasses.replace(bonus, label_classes=(*bonus.label_classes, *added))
    named = ClassWords.of(vocabulary, bonus) if classes or added else None
    if named:
        bonus = dataclasses.replace(bonus, named_words=named.count, single_words=named.single)
    names = None
    needs_names = start.needs_names(bonus) if start else bonus.helps_with_names
    if needs_names:
        names = (named or ClassWords.of(vocabulary, bonus)).names(counts())
        bonus = dataclasses.replace(bonus, following_words=names.membership.shape[1])
    architecture = dataclasses.replace(architecture, bonus=bonus)
    keeps = start is not None and start.model.encoder == architecture.encoder
    weights = None if options.weights == "random" or keeps else options.weights
    model = CaptionModel(architecture, len(vocabulary), weights)
    if named:
        model.name_classes(named.membership, named.column)
    if classes:
        model.score_pretrained_classes()
    if start:
        start.give(model, vocabulary, related_words(examples, classes))
        if options.pretrained_share:
            mix_backbone(model.encoder.backbone, architecture.encoder, options.pretrained_share)
    if names:
        model.help_with_names(names)
    if bonus.repetition_cost and not (start and start.model.bonus.repetition_cost):
        model.price_repetition(repetition_costs(examples, vocabulary))
    needs_related = start.needs_related(bonus) if start else bonus.related_cost
    if needs_related:
        model.relate_names(related_names(class_names(bonus), examples, vocabulary))
    model.strengthen_evidence(options.stages[0].evidence_gain)
    return Built(model, vocabulary, dataclasses.replace(options, model=architecture), added)


def _caption_counts(examples: Sequence[Example], vocabulary: Vocabulary, start: Start | None) -> Tensor:
    """The number of captions with each word, in the data of the run or of its start."""
    counts = caption_counts(examples, vocabulary)
    return torch.maximum(counts, start.caption_counts(vocabulary)) if start else counts
