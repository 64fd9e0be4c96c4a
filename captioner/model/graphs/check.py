"""Rejects graphs that no export writes: with operators that loop or draw numbers, with weights outside the
bundle, or with tensors that would fill the memory.

ONNX Runtime would run such operators, read such weights and allocate memory for such tensors. The check walks
the bytes of the graph (Protocol Buffers), so that it needs no package for ONNX. It keeps honest bundles apart
from most hostile ones; only limits of the process bound what a graph can take.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MAX_ELEMENTS = 2**26
"""Most elements of a tensor that the graph makes of a constant shape: 256 MiB of 32-bit numbers."""

_OPERATORS = """
Abs Add And ArgMax ArgMin AveragePool BatchNormalization Cast CastLike Ceil Celu Clip Concat
Constant ConstantOfShape Conv Cos CumSum DepthToSpace DequantizeLinear Div Elu Equal Erf Exp Expand
EyeLike Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool
Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization IsInf
IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max MaxPool Mean Min Mish
Mod Mul Neg Not Or PRelu Pad Pow QuantizeLinear Range Reciprocal ReduceL1 ReduceL2 ReduceLogSumExp
ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize Round
ScatterElements ScatterND Selu Shape Sigmoid Sign Sin Slice Softmax Softplus Softsign SpaceToDepth
Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu TopK Transpose Trilu Unsqueeze Where Xor
"""
OPERATORS = frozenset(_OPERATORS.encode().split())
"""Operators that graphs may use: those of the networks that `export` writes. None loops, draws numbers,
contains another graph or comes from a library."""
_SHAPING = frozenset(b"Cast Concat Constant Gather Identity Reshape Shape Slice Squeeze Unsqueeze".split())
"""Operators that may compute the shape of a tensor: they take sizes of others, and multiply nothing."""
_MOST_PADDING = 16

# Message: its fields that hold messages which matter here. Numbers are those of onnx.proto.
_CHILDREN = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_KIND, _INT64_DATA, _NAME, _RAW_DATA, _EXTERNAL_DATA, _LOCATION = 2, 7, 8, 9, 13, 14
_INPUT, _OUTPUT, _OPERATOR, _ATTRIBUTE, _DOMAIN = 1, 2, 4, 5, 7
_ATTRIBUTE_NAME, _INT, _INTS = 1, 3, 8
_KEY, _VALUE = 1, 2
_INT64 = 7
_BY_SHAPE = {b"ConstantOfShape": 0, b"Expand": 1, b"Pad": 1, b"Reshape": 1, b"Range": 1, b"Resize": 3}
"""Operators whose output is as large as one of their inputs says: which one."""
_MOST_SHAPE_BYTES = 8 * 16
_SCALES = 2
"""The input of Resize that enlarges by a factor."""
_MAX_DEPTH = 16


class GraphError(ValueError):
    """The graph holds what it may not."""


@dataclass(slots=True)
class _Seen:
    shapes: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    """Small constants of whole numbers, by name."""
    uses: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Operators, and the names of the shapes that they use."""
    makers: dict[bytes, tuple[bytes, list[bytes]]] = field(default_factory=dict)
    """For the name of each tensor, the operator that makes it and the names of its inputs."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What weights may lie in, besides the graph's own file."""


@dataclass(slots=True)
class _Node:
    operator: bytes = b""
    domain: bytes = b""
    inputs: list[bytes] = field(default_factory=list)
    outputs: list[bytes] = field(default_factory=list)
    whole: int | None = None
    """The whole number that its last attribute makes a constant of, if it does."""

    def read(self, number: int, raw: bytes, start: int, stop: int) -> None:
        """Take a field from the bytes of the graph. Raises `GraphError` as `_check_attribute` does."""
        if number == _ATTRIBUTE:
            self.whole = _check_attribute(raw, start, stop)
        elif number == _INPUT:
            self.inputs.append(raw[start:stop])
        elif number == _OUTPUT:
            self.outputs.append(raw[start:stop])
        elif number == _OPERATOR:
            self.operator = raw[start:stop][:64]
        elif number == _DOMAIN:
            self.domain = raw[start:stop][:64]


def check_graph(graph: bytes, files: Mapping[str, bytes] | None = None) -> None:
    """Raises `GraphError` for operators that no export writes, for weights outside the graph's file and these
    `files`, for tensors that are too large, and for bytes that are no graph."""
    seen = _Seen(files=files or {})
    try:
        _walk(graph, 0, len(graph), "model", seen, 0)
    except (IndexError, struct.error):
        raise GraphError("the graph is not in the format of ONNX") from None
    for operator, name in seen.uses:
        # Reshaping keeps the number of elements.
        if operator != b"Reshape" and (unusual := _computed_by(name, seen)):
            raise GraphError(
                f"{operator.decode()} makes a tensor of a shape that {unusual.decode()} computes"
            )
        sides = [side for side in seen.shapes.get(name, ()) if side > 1]
        if math.prod(sides[:16]) > MAX_ELEMENTS:
            raise GraphError(f"{operator.decode()} makes a tensor of more than {MAX_ELEMENTS} elements")


def _computed_by(name: bytes, seen: _Seen) -> bytes:
    """An operator that takes part in the computation of a shape and may not; b"" if none does."""
    known, names = set[bytes](), [name]
    for one in names:
        operator, inputs = seen.makers.get(one, (b"", []))
        if operator and operator not in _SHAPING:
            return operator
        if one not in known and operator != b"Shape":
            known.add(one)
            names += inputs
    return b""


def _walk(raw: bytes, position: int, end: int, kind: str, seen: _Seen, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise GraphError("the graph is nested too deeply")
    if kind == "tensor":
        name, shape = _tensor(raw, position, end, seen.files)
        if shape is not None:
            seen.shapes[name] = shape
        return
    node, before = _Node(), set(seen.shapes) if kind == "node" else set()
    for number, _value, start, stop in _fields(raw, position, end):
        if start < 0:
            continue
        child = _CHILDREN[kind].get(number)
        if kind == "attribute" and child == "graph":
            raise GraphError("the graph contains another graph")
        if kind == "node":
            node.read(number, raw, start, stop)
        if child:
            _walk(raw, start, stop, child, seen, depth + 1)
    if kind == "node":
        _check_node(node, seen, before)


def _check_node(node: _Node, seen: _Seen, before: set[bytes]) -> None:
    """Note what the node makes. Raises `GraphError` for what no export writes. `before` are the names of the
    shapes that were known before it."""
    operator, inputs, outputs = node.operator, node.inputs, node.outputs
    if operator not in OPERATORS or node.domain not in (b"", b"ai.onnx"):
        shown = b".".join(filter(None, (node.domain, operator))).decode(errors="replace")
        raise GraphError(f"the graph uses the operator {shown!r}, which no export writes")
    if operator == b"Resize" and len(inputs) > _SCALES and inputs[_SCALES]:
        raise GraphError("the graph enlarges a tensor by a factor (Resize with scales)")
    seen.makers |= dict.fromkeys(outputs, (operator, inputs))
    if operator == b"Range" and [seen.shapes.get(name) for name in inputs[::2]] != [(0,), (1,)]:
        raise GraphError("the graph counts in other steps than from 0 by 1 (Range)")
    if operator == b"Constant" and outputs and node.whole is not None:
        seen.shapes[outputs[0]] = (node.whole,)
    elif operator == b"Constant" and outputs:
        for name in seen.shapes.keys() - before or {b""} & seen.shapes.keys():
            seen.shapes[outputs[0]] = seen.shapes.pop(name)
    index = _BY_SHAPE.get(operator)
    if index is not None and index < len(inputs):
        seen.uses.append((operator, inputs[index]))


def _check_attribute(raw: bytes, position: int, end: int) -> int | None:
    """The whole number that the attribute makes a constant of, if it does. Raises `GraphError` if it pads a
    tensor by more than convolutions do."""
    name, single, values = b"", 0, list[int]()
    for number, value, start, stop in _fields(raw, position, end):
        if number == _ATTRIBUTE_NAME:
            name = raw[start:stop]
        elif number == _INT:
            single = value
        elif number == _INTS:
            values += [value] if start < 0 else _packed(raw, start, stop)
    if name == b"pads" and any(value > _MOST_PADDING for value in values):
        raise GraphError(f"the graph pads a tensor by more than {_MOST_PADDING}")
    return single if name == b"value_int" else None


def _tensor(
    raw: bytes, position: int, end: int, files: Mapping[str, bytes]
) -> tuple[bytes, tuple[int, ...] | None]:
    """The name of a tensor, and its values if they may be a shape. Raises `GraphError` for data that are
    elsewhere."""
    name, kind, values = b"", 0, None
    place: dict[bytes, bytes] = {}
    outside = False
    for number, value, start, stop in _fields(raw, position, end):
        if number == _EXTERNAL_DATA:
            entry = {key: raw[begin:to] for key, _, begin, to in _fields(raw, start, stop)}
            place[entry.get(_KEY, b"")] = entry.get(_VALUE, b"")
        if number == _EXTERNAL_DATA or (number == _LOCATION and value):
            outside = True
        if number == _NAME:
            name = raw[start:stop]
        elif number == _KIND:
            kind = value
        elif number == _RAW_DATA and 0 < stop - start <= _MOST_SHAPE_BYTES and (stop - start) % 8 == 0:
            values = struct.unpack(f"<{(stop - start) // 8}q", raw[start:stop])
        elif number == _INT64_DATA and start >= 0 and stop - start <= _MOST_SHAPE_BYTES:
            values = tuple(_packed(raw, start, stop))
        elif number == _INT64_DATA and start < 0:
            values = (*(values or ()), value)[:16]
    if outside and not _lies_in(place, files):
        raise GraphError("the graph has weights outside its file (external data)")
    return name, values if kind == _INT64 else None


def _lies_in(place: dict[bytes, bytes], files: Mapping[str, bytes]) -> bool:
    """Whether external data are a part of one of the files."""
    if set(place) != {b"location", b"offset", b"length"}:
        return False
    content = files.get(place[b"location"].decode("utf-8", "replace"))
    offset, length = place[b"offset"], place[b"length"]
    if content is None or not (
        offset.isdigit() and length.isdigit() and max(map(len, (offset, length))) < 20
    ):
        return False
    return int(offset) + int(length) <= len(content)


def _fields(raw: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, value, begin and end of each field; begin and end are -1 where the field is a number."""
    while position < end:
        key, position = _varint(raw, position)
        wire_type = key & 7
        if wire_type == 0:
            value, position = _varint(raw, position)
            yield key >> 3, value, -1, -1
        elif wire_type == 2:
            length, position = _varint(raw, position)
            if position + length > end:
                raise IndexError
            yield key >> 3, 0, position, position + length
            position += length
        elif wire_type in (1, 5):
            position += 8 if wire_type == 1 else 4
        else:
            raise IndexError
    if position != end:
        raise IndexError


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise IndexError


def _packed(raw: bytes, position: int, end: int) -> Iterator[int]:
    while position < end:
        value, position = _varint(raw, position)
        yield value - 2**64 if value >= 2**63 else value
