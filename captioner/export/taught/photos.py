"""Adds the corrected photos to an encoder's graph."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import compose

from captioner.export.certainty import MEAN
from captioner.export.graphs import export_graph
from captioner.export.rewrites.editor import GraphEditor
from captioner.export.taught.links import GATE, OPEN, RARE, declare
from captioner.export.taught.places import Places
from captioner.nn.encoder.taught import TaughtPhotos

IMPOSSIBLE = 1e-13
"""Least factor of the probability of new words."""
_PHOTOS = "encoder.taught."
"""Begins the names of the weights and values of corrected photos."""
_DEEPEST, _SUM, _NEAR, _HEARD, _LIKE, _NEAR_NEW = (
    _PHOTOS + name for name in ("deepest", "sum", "near", "heard", "like", "open")
)


def photos_graph(taught: TaughtPhotos) -> onnx.ModelProto:
    """The corrected photos as a graph that reads the deepest output."""
    deepest = torch.zeros(2, taught.keys.shape[1], 3, 5)
    dynamic = (dict.fromkeys((0, 2, 3), torch.export.Dim.DYNAMIC),)
    return compose.add_prefix(
        export_graph(taught, (deepest,), dynamic, ["deepest"], ["sum", "near", "heard", "like", "open"]),
        _PHOTOS,
    )


def add_photos(
    model: onnx.ModelProto,
    places: Places,
    photos: onnx.ModelProto,
    class_bias: npt.NDArray[np.float32] | None,
    new_words: int,
    rare_words: int,
) -> None:
    """Add `photos`, a `photos_graph`, to an encoder, in place of earlier ones, and tell the decoder what it
    needs for so many words. `class_bias` (classes,) if the model has classes."""
    editor = GraphEditor(model)
    if _DEEPEST not in editor.producers():  # else a model that was taught is taught more
        _add_places(editor, places.deepest, places.grid)
        if places.scores is not None and class_bias is not None:
            _add_quiet(editor, places.scores, class_bias)
    _set_photos(editor, photos)
    if rare_words:
        _add_nearness(model, editor, rare_words)
    if new_words:
        _add_gate(model, editor)
    editor.write()


def _add_places(editor: GraphEditor, deepest: str, grid: str) -> None:
    """Read the deepest output, and add the sum to the grid."""
    read = f"{deepest}.read"
    editor.add("Identity", [read if read in editor.producers() else deepest], [_DEEPEST])
    editor.add("Add", [_untaught(editor, grid), _SUM], [grid])


def _add_quiet(editor: GraphEditor, scores: str, bias: npt.NDArray[np.float32]) -> None:
    """Scale the scores of classes (batch, cells, classes), all but their `bias` (classes,). The certainty of
    the model stays what it was."""
    axis = editor.constant("taught.cells", np.array([-1]))
    one = editor.constant("taught.one", np.array(1, dtype=np.float32))
    classes = editor.constant("taught.classes.bias", bias)
    editor.add("Unsqueeze", [_HEARD, axis], ["taught.heard"])
    editor.add("Sub", [one, "taught.heard"], ["taught.unheard"])
    untaught = _untaught(editor, scores)
    for node in editor.nodes:
        if node.output[0] == MEAN:
            node.input[0] = untaught
    editor.add("Mul", [untaught, "taught.heard"], ["taught.scores"])
    editor.add("Mul", [classes, "taught.unheard"], ["taught.classes"])
    editor.add("Add", ["taught.scores", "taught.classes"], [scores])


def _untaught(editor: GraphEditor, value: str) -> str:
    """The new name of what a node gives, so that another node can give `value`."""
    giver, name = editor.producers()[value], f"{value}.untaught"
    giver.output[list(giver.output).index(value)] = name
    return name


def _set_photos(editor: GraphEditor, photos: onnx.ModelProto) -> None:
    """Put the nodes and the weights of all photos in place of those of earlier ones."""
    editor.remove(node for node in editor.nodes if node.name.startswith(_PHOTOS))
    editor.nodes += photos.graph.node
    editor.replace_initializers(_PHOTOS, photos.graph.initializer)


def _add_gate(model: onnx.ModelProto, editor: GraphEditor) -> None:
    """Put out how likely new words may be, and how near photos are that they are meant for."""
    axis = editor.constant("taught.axis", np.array([-1]))
    if GATE not in editor.producers():
        least = editor.constant("taught.impossible", np.array(IMPOSSIBLE, dtype=np.float32))
        editor.add("Max", [_NEAR, least], ["taught.share"])
        editor.add("Log", ["taught.share"], ["taught.log"])
        editor.add("Unsqueeze", ["taught.log", axis], [GATE])
    if OPEN not in editor.producers():
        editor.add("Unsqueeze", [_NEAR_NEW, axis], [OPEN])
    for name in (GATE, OPEN):
        declare(model.graph.output, name, 1)


def _add_nearness(model: onnx.ModelProto, editor: GraphEditor, rows: int) -> None:
    """Put out how near the photo is to those whose corrections have the rare words."""
    if RARE not in editor.producers():
        editor.add("Unsqueeze", [_LIKE, editor.constant("rare.axis", np.array([1]))], [RARE])
    declare(model.graph.output, RARE, rows)
