"""Uses weights that a float graph stores in 8 bits as they are, without rounding them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import onnx

from captioner.export.rewrites.editor import GraphEditor
from captioner.training.weights.stored import BYTES, SCALE


class Stored(NamedTuple):
    """Names of a matrix of bytes, and of the scale of each of its columns."""

    integers: str
    scale: str


def stored_bytes(editor: GraphEditor, producers: Mapping[str, onnx.NodeProto], weight: str) -> Stored | None:
    """What the constant matrix `weight` is made of, if that is bytes, or several such side by side."""
    if weight + BYTES in editor.constants and weight + SCALE in editor.constants:
        return Stored(weight + BYTES, weight + SCALE)
    node = producers.get(weight)
    if node is None or node.op_type != "Concat" or [a.i for a in node.attribute] != [1]:
        return None
    parts = [stored_bytes(editor, producers, name) for name in node.input]
    if not all(parts):
        return None
    found = Stored(f"{weight}{BYTES}", f"{weight}{SCALE}")
    editor.add("Concat", [part.integers for part in parts if part], [found.integers], axis=1)
    editor.add("Concat", [part.scale for part in parts if part], [found.scale], axis=0)
    return found
