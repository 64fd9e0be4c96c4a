"""From a checkpoint to a bundle, checked against the network it came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import torch
from torch import nn

from captioner.captioner import Captioner, preprocess_all
from captioner.errors import DataError
from captioner.export.graphs import decoder_graph, encoder_graph
from captioner.export.int8.add import add_int8, check_number
from captioner.export.int8.smoothing import smooth
from captioner.export.parity import Parity, check_parity
from captioner.export.release import Release, measure
from captioner.files.destination import writing
from captioner.files.whole_folder import folder_aside, publish_folder
from captioner.images.preparation import Preparation
from captioner.metrics.tables import label
from captioner.model import bundle as bundles
from captioner.model.articles import language_of
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.nn.encoder.clip import ByteLinear, round_to_bytes
from captioner.nn.model import CaptionModel
from captioner.options import BUNDLE_OPTIONS, CaptionOptions
from captioner.training.config.train_options import TrainOptions
from captioner.training.weights.checkpoint import load_model

TABLE = "<!-- scores -->"
"""The line of a model card that the table of scores replaces."""
_TERMS = {bundles.DEFAULT_NAME: ": research and evaluation only"}
SHOWN = ("cider", "bleu_4", "rouge_l", "named", "exactly")
"""Scores of validation in training that the table has."""


def export_bundle(
    checkpoint: Path,
    folder: Path,
    *,
    name: str | None = None,
    card: str | None = None,
    decoding: CaptionOptions | None = None,
    checklist_weight: float | None = None,
    avoided: Sequence[str] = (),
    images: Sequence[Path] = (),
    int8_photos: Sequence[Path] = (),
    scores: Mapping[str, Mapping[str, float]] | None = None,
    evaluate: Path | None = None,
) -> Parity:
    """Write the bundle `folder` (which must not exist) from `checkpoint`.

    With `int8_photos`, of the kind that the model was trained on, the bundle also holds graphs in
    INT8. `images` are real photos for the parity check; without any, fixed noise stands in. `decoding` and
    `checklist_weight` override the run's search, `scores` those of its validation, by the name of their data.
    Captions will not contain the `avoided` phrases.
    With `evaluate`, the root of the run's data, the bundle captions the validation images: scores and
    confidence are those of its captions. `card` is the text of the model card, in which a table of the scores
    takes the place of `TABLE`; by default it holds what the checkpoint knows.

    Raises `DataError` for a bad checkpoint, a model that has diverged, an existing folder, a name that a
    bundle cannot have or phrases of unknown words, `ParityError` if the graphs differ from the network. The
    bundle appears whole or not at all.
    """
    if folder.exists():
        raise DataError(f"{folder} exists already; a bundle is written to a new folder")
    if int8_photos:
        check_number(len(int8_photos))
    model, vocabulary, options, contents = load_model(checkpoint)
    name = name or options.name
    if checklist_weight is not None:
        options = with_checklist(model, options, checklist_weight)
    try:
        bundles.check_name(name)
        bundles.avoided_phrases(avoided, vocabulary, None)
    except ValueError as error:
        raise DataError(str(error)) from None
    if int8_photos:
        prepare = Preparation(options.model.image_size, model.letterbox).load
        calibration = preprocess_all(prepare, int8_photos)
        smooth(model, calibration)
    _round(model)
    vocabulary = put_named_words_last(model, vocabulary)
    search_options = (decoding or CaptionOptions()).resolve(options.search)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder_aside(folder.parent) as aside:
        place = aside / "bundle"
        place.mkdir()
        _write_graphs(place, model, vocabulary)
        manifest = {"name": name, **_manifest(model, vocabulary, options, search_options, avoided)}
        card = card or _card(name, options)
        stated = _recorded(contents, scores)
        _write_texts(place, manifest, card, stated)
        captioner = Captioner.load(place, device="cpu")
        parity = check_parity(model, captioner, images)
        if evaluate is not None:
            measured = measure(captioner, options.data, evaluate)
            stated = Release(
                {**measured.scores, **(scores or {})},
                measured.confidence or stated.confidence,
                measured.table,
            )
            _write_texts(place, manifest, card, stated)
        if int8_photos:
            add_int8(place, calibration)
        with writing(folder):
            publish_folder(place, folder)
    return parity


def _recorded(contents: Mapping[str, Any], scores: Mapping[str, Mapping[str, float]] | None) -> Release:
    """What a checkpoint states, with other `scores` if they are given."""
    scores = contents.get("scores", {}) if scores is None else scores
    return Release(scores, contents.get("confidence"), _table(scores))


def _write_graphs(place: Path, model: CaptionModel, vocabulary: Vocabulary) -> None:
    for name, graph in ((bundles.ENCODER, encoder_graph), (bundles.DECODER, decoder_graph)):
        (place / name).write_bytes(graph(model).SerializeToString(deterministic=True))
    vocabulary.save(place / bundles.WORDS)


def _write_texts(place: Path, manifest: Mapping[str, Any], card: str, stated: Release) -> None:
    """Write the manifest and the model card, with what the bundle states."""
    confidence = {"confidence": stated.confidence} if stated.confidence else {}
    (place / bundles.CARD).write_text(card.replace(TABLE, stated.table), encoding="utf-8")
    bundles.write_manifest(place, {**manifest, "scores": stated.scores, **confidence})


def _manifest(
    model: CaptionModel,
    vocabulary: Vocabulary,
    options: TrainOptions,
    search: CaptionOptions,
    avoided: Sequence[str],
) -> dict[str, Any]:
    """What the bundle says about the model, besides its name and scores."""
    language = language_of(vocabulary.words)
    return {
        **({"language": language} if language else {}),
        "image": bundles.image_section(options.model.image_size, model.letterbox),
        "grid": list(options.model.grid),
        "sentinel": model.decoder.has_sentinel,
        "heads": model.decoder.heads,
        "decoding": {name: getattr(search, name) for name in BUNDLE_OPTIONS},
        **({"avoided_phrases": list(avoided)} if avoided else {}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "training": _without_folders(options.to_dict()),
    }


@torch.no_grad()
def _round(model: CaptionModel) -> None:
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


def _card(name: str, options: TrainOptions) -> str:
    """A minimal model card; its author adds the training data and the weaknesses."""
    lines = [f"# {name}", "", "Trained with `captioner train`; the configuration is in bundle.json.", ""]
    if options.start:
        start = _without_folders(options.start)
        lines += [
            f"It started from the model {start}, whose terms of use hold for it too{_TERMS.get(start, '')}.",
            "",
        ]
    captions = [_without_folders(source.captions or source.labels or "classes") for source in options.data]
    data = [f"- {source.name} ({text})" for source, text in zip(options.data, captions, strict=True)]
    return "\n".join([*lines, "## Data", "", *data, "", "## Validation scores", "", TABLE, ""])


def _without_folders(value: Any) -> Any:
    """`value` with only the last part of absolute paths: the others tell who trained, and where."""
    if isinstance(value, str):
        kinds = (PurePosixPath(value), PureWindowsPath(value))
        return next((path.name for path in kinds if path.is_absolute() or value.startswith("~")), value)
    if isinstance(value, dict):
        return {name: _without_folders(one) for name, one in value.items()}
    return [*map(_without_folders, value)] if isinstance(value, list | tuple) else value


def _table(scores: Mapping[str, Mapping[str, float]]) -> str:
    """The main scores of validation in training."""
    names = [name for name in SHOWN if any(name in values for values in scores.values())]
    rows = [["data", *(label(name) for name in names)], ["---"] * (len(names) + 1)]
    for source, values in scores.items():
        rows.append([source, *(f"{values[name]:.1f}" if name in values else "" for name in names)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
