"""Writes a bundle that was taught: the graphs of the bundle it started from, edited."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import onnx

from captioner.export.shared_weights import hold_weights, refer_to
from captioner.export.taught.new_words import add_new_words, added_words
from captioner.export.taught.photos import add_photos, photos_graph
from captioner.export.taught.places import find_places
from captioner.export.taught.rare_words import add_rare_words
from captioner.files.destination import writing
from captioner.files.whole_folder import folder_aside, publish_folder
from captioner.model import bundle as bundles
from captioner.model.bundle import Bundle
from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import CaptionModel

_Edit = Callable[[onnx.ModelProto], None]


def export_taught(
    start: Bundle, model: CaptionModel, words: Vocabulary, folder: Path, name: str, card: str
) -> None:
    """Write the bundle `folder`, which must not exist: `start`, with the corrected photos of `model` and the
    last of its `words`, which the graphs of `start` do not know, but not with its scores, which others have
    now. Raises `DataError` if these graphs compute something else than the network does."""
    taught, embedding = model.encoder.taught, model.decoder.embedding
    rare = embedding.rare
    assert taught is not None
    classes = None if model.evidence is None else model.evidence.classes.bias.detach().numpy()
    places, photos = find_places(start, model), photos_graph(taught)
    known = _count_words(start)
    weight, bias = (values[known:].detach().numpy() for values in (embedding.weight, embedding.bias))

    def encoder(graph: onnx.ModelProto) -> None:
        rows = 0 if rare is None else len(rare.words)
        add_photos(graph, places, photos, classes, len(weight), rows)

    def decoder(graph: onnx.ModelProto) -> None:
        if len(weight):
            add_new_words(graph, weight, bias)
        if rare is not None:
            add_rare_words(graph, rare)

    with folder_aside(folder.parent) as aside:
        place = aside / "bundle"
        place.mkdir()
        _write(place, bundles.ENCODER, start.encoder, encoder, start.int8 and start.int8[0])
        _write(place, bundles.DECODER, start.decoder, decoder, start.int8 and start.int8[1])
        words.save(place / bundles.WORDS)
        (place / bundles.CARD).write_text(card, encoding="utf-8")
        left_out = ("format", "files", "scores")
        manifest = copy.deepcopy({k: v for k, v in start.manifest.items() if k not in left_out})
        manifest["training"]["model"]["taught"] = len(taught.keys)
        manifest |= {"name": name, "parameters": sum(p.numel() for p in model.parameters())}
        bundles.write_manifest(place, manifest)
        with writing(folder):
            publish_folder(place, folder)


def _count_words(bundle: Bundle) -> int:
    """The number of words that a model knew before it was taught any."""
    return len(bundle.vocabulary) - added_words(onnx.load_from_string(bundle.decoder))


def _write(folder: Path, file: str, graph: bytes, edit: _Edit, rounded: bytes | None) -> None:
    """Write an edited graph, and its edited version in INT8, which refers to its weights."""
    exact = onnx.load_from_string(graph)
    edit(exact)
    content = exact.SerializeToString(deterministic=True)
    (folder / file).write_bytes(content)
    if rounded is not None:
        model = onnx.load_from_string(rounded)
        hold_weights(model, graph)
        edit(model)
        refer_to(model, content, file)
        (folder / file.replace(".onnx", ".int8.onnx")).write_bytes(
            model.SerializeToString(deterministic=True)
        )
