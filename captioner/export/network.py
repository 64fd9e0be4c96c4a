"""What becomes of a trained network before its graphs are written."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from captioner.export.int8.smoothing import smooth
from captioner.images.preparation import Pixels
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.nn.encoder.clip import ByteLinear, round_to_bytes
from captioner.nn.model import CaptionModel
from captioner.training.config.train_options import TrainOptions


def with_checklist(model: CaptionModel, options: TrainOptions, weight: float) -> TrainOptions:
    """Give the model another checklist, or none if `weight` is 0. Returns the options with it."""
    before = options.model.bonus
    changes: dict[str, Any] = {"checklist_weight": weight}
    if not weight:  # of which these are parts
        changes |= {"repetition_cost": 0.0, "related_cost": 0.0, "name_proposal": 0.0}
    bonus = dataclasses.replace(before, **changes)
    architecture = dataclasses.replace(options.model, bonus=bonus)
    model.change_bonus(bonus)
    return dataclasses.replace(options, model=architecture)


def finish(model: CaptionModel, vocabulary: Vocabulary, calibration: Pixels | None) -> Vocabulary:
    """Make the model's weights those of the graphs. Returns the vocabulary in its new order. `calibration`:
    the photos that INT8 graphs are fitted to, uint8 (photos, size, size, channels), if there will be any."""
    if calibration is not None:
        smooth(model, calibration)
    round_weights(model)
    return put_named_words_last(model, vocabulary)


@torch.no_grad()
def round_weights(model: CaptionModel) -> None:
    """To half precision and back, as the weights in `best.pt`; those of `ByteLinear` to 8 bits, and with them
    those of the classes, which are as many as all others of the decoder."""
    in_bytes: set[nn.Module] = {module for module in model.modules() if isinstance(module, ByteLinear)}
    if in_bytes and model.evidence is not None:
        in_bytes.add(model.evidence.classes)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if module in in_bytes and name == "weight":
                round_to_bytes(parameter)
            else:
                parameter.copy_(parameter.half().float())


@torch.no_grad()
def put_named_words_last(model: CaptionModel, vocabulary: Vocabulary) -> Vocabulary:
    """Bring the words that name classes to the end of the vocabulary, in the order of their classes, so that
    a step need not look up where the gains of each go. Returns the vocabulary in the new order; a model for
    which that cannot be is left as it is."""
    evidence = model.evidence
    if evidence is None:
        return vocabulary
    count = len(evidence.scale)
    order = torch.argsort(torch.where(evidence.column == count, -1, evidence.column), stable=True)
    if (
        not torch.equal(evidence.column[order][-count:], torch.arange(count))
        or order[: len(SPECIAL)].ne(torch.arange(len(SPECIAL))).any()
    ):
        return vocabulary  # two words share a class column, or none has it
    embedding, names = model.decoder.embedding, model.names
    for values in (
        embedding.weight,
        embedding.bias,
        evidence.column,
        model.repetition,
        model.related,
        *(() if names is None else (names.following, names.following_token, names.following_gain)),
    ):
        if values is not None:
            values.copy_(values[order])
    place = torch.argsort(order)
    if model.related is not None:
        model.related.copy_(place[model.related])
    if names is not None:
        names.following_token.copy_(place[names.following_token])
        names.proposed.copy_(place[names.proposed])
    evidence.trailing = True
    return Vocabulary([vocabulary.words[token] for token in order.tolist()])
