"""From a checkpoint to a bundle, checked against the network it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioner.captioner import Captioner, preprocess_all
from captioner.errors import DataError
from captioner.export.card import TABLE, default_card, table_of, without_folders
from captioner.export.graphs import decoder_graph, encoder_graph
from captioner.export.int8.add import add_int8, check_number
from captioner.export.network import finish, with_checklist
from captioner.export.parity import Parity, check_parity
from captioner.export.release import Release, measure
from captioner.files.destination import writing
from captioner.files.whole_folder import folder_aside, is_taken, publish_folder
from captioner.images.preparation import Pixels, Preparation
from captioner.model import bundle as bundles
from captioner.model.articles import language_of
from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import CaptionModel
from captioner.options import BUNDLE_OPTIONS, CaptionOptions
from captioner.training.config.train_options import TrainOptions
from captioner.training.weights.checkpoint import load_model


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
    """Write the bundle `folder` (which must not exist or be empty) from `checkpoint`.

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
    if is_taken(folder):
        raise DataError(f"{folder} exists already; a bundle is written to a new folder")
    if int8_photos:
        check_number(len(int8_photos))
    model, vocabulary, options, contents = load_model(checkpoint)
    name = name or options.name
    if checklist_weight is not None:
        options = with_checklist(model, options, checklist_weight)
    _check_texts(name, avoided, vocabulary)
    calibration = _read_photos(int8_photos, model, options) if int8_photos else None
    vocabulary = finish(model, vocabulary, calibration)
    search = (decoding or CaptionOptions()).resolve(options.search)
    manifest = {"name": name, **_manifest(model, vocabulary, options, search, avoided)}
    card = card or default_card(name, options)
    stated = _recorded(contents, scores)
    with folder_aside(folder.parent) as aside:
        place = aside / "bundle"
        _write_graphs(place, model, vocabulary)
        _write_texts(place, manifest, card, stated)
        captioner = Captioner.load(place, device="cpu")
        parity = check_parity(model, captioner, images)
        if evaluate is not None:
            measured = measure(captioner, options.data, evaluate)
            _write_texts(place, manifest, card, _combined(measured, stated, scores or {}))
        if calibration is not None:
            add_int8(place, calibration)
        with writing(folder):
            publish_folder(place, folder)
    return parity


def _check_texts(name: str, avoided: Sequence[str], vocabulary: Vocabulary) -> None:
    try:
        bundles.check_name(name)
        bundles.avoided_phrases(avoided, vocabulary, None)
    except ValueError as error:
        raise DataError(str(error)) from None


def _read_photos(photos: Sequence[Path], model: CaptionModel, options: TrainOptions) -> Pixels:
    return preprocess_all(Preparation(options.model.image_size, model.letterbox).load, photos)


def _recorded(contents: Mapping[str, Any], scores: Mapping[str, Mapping[str, float]] | None) -> Release:
    """What a checkpoint states, with other `scores` if they are given."""
    scores = contents.get("scores", {}) if scores is None else scores
    return Release(scores, contents.get("confidence"), table_of(scores))


def _combined(measured: Release, stated: Release, scores: Mapping[str, Mapping[str, float]]) -> Release:
    """What was `measured`, with other `scores` for those of the same name, and the `stated` confidence where
    there are too few images to measure it."""
    return Release({**measured.scores, **scores}, measured.confidence or stated.confidence, measured.table)


def _write_graphs(place: Path, model: CaptionModel, vocabulary: Vocabulary) -> None:
    place.mkdir()
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
        "training": without_folders(options.to_dict()),
    }
