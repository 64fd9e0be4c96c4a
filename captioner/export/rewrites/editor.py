"""Edits an ONNX graph: finds, adds and removes nodes, and sorts them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper


@dataclass(frozen=True, slots=True)
class Linear:
    """`output` = `source` @ `weight` + `bias`, as two nodes; weight and bias are constant."""

    source: str
    weight: str
    bias: str
    output: str


class GraphEditor:
    """The nodes of a graph, to be replaced in any order; `write` sorts them again."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        self.nodes = list(model.graph.node)
        self.constants = {tensor.name for tensor in model.graph.initializer}
        for node in self.nodes:
            if all(name in self.constants for name in node.input):
                self.constants.update(node.output)

    def of_kind(self, kind: str) -> list[onnx.NodeProto]:
        """The nodes of an operator; a list of its own, so that nodes can be replaced meanwhile."""
        return [node for node in self.nodes if node.op_type == kind]

    def producers(self) -> dict[str, onnx.NodeProto]:
        """The node that each value comes from."""
        return {name: node for node in self.nodes for name in node.output}

    def uses(self) -> Counter[str]:
        """The number of nodes and graph outputs that read each value."""
        read: Iterable[str] = (name for node in self.nodes for name in node.input)
        return Counter([*read, *(value.name for value in self._graph.output)])

    def array(self, name: str) -> npt.NDArray[Any] | None:
        """An initializer or a constant; None for anything else."""
        for tensor in self._graph.initializer:
            if tensor.name == name:
                return numpy_helper.to_array(tensor)
        for node in self.of_kind("Constant"):
            if node.output[0] == name:
                [held] = attributes(node).values()
                return numpy_helper.to_array(held) if isinstance(held, onnx.TensorProto) else np.array(held)
        return None

    def constant(self, name: str, values: npt.NDArray[Any]) -> str:
        """Add an initializer unless the name exists; returns the name."""
        if name not in self.constants:
            self._graph.initializer.append(numpy_helper.from_array(values, name))
            self.constants.add(name)
        return name

    def replace_initializers(self, prefix: str | tuple[str, ...], others: Iterable[onnx.TensorProto]) -> None:
        """Put initializers in the place of those whose names begin with `prefix`, or with one of several."""
        kept = [tensor for tensor in self._graph.initializer if not tensor.name.startswith(prefix)]
        del self._graph.initializer[:]
        self._graph.initializer.extend([*kept, *others])

    def add(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> str:
        """Add a node, named after its first output, which is returned."""
        self.nodes.append(helper.make_node(kind, inputs, outputs, f"{kind}:{outputs[0]}", **attributes))
        if all(name in self.constants for name in inputs):
            self.constants.update(outputs)
        return outputs[0]

    def remove(self, nodes: Iterable[onnx.NodeProto]) -> None:
        gone = {id(node) for node in nodes}
        self.nodes = [node for node in self.nodes if id(node) not in gone]

    def linears(self) -> list[Linear]:
        """Every product with a constant matrix whose only use is the addition of a constant vector."""
        producers, uses = self.producers(), self.uses()
        found = []
        for node in self.of_kind("Add"):
            for value, bias in (tuple(node.input), tuple(node.input)[::-1]):
                product = producers.get(value)
                if (
                    product is not None
                    and product.op_type == "MatMul"
                    and uses[value] == 1
                    and bias in self.constants
                    and product.input[1] in self.constants
                    and product.input[0] not in self.constants
                ):
                    found.append(Linear(product.input[0], product.input[1], bias, node.output[0]))
        return found

    def remove_linear(self, linear: Linear) -> None:
        """Remove the two nodes of a linear layer."""
        producers = self.producers()
        last = producers[linear.output]
        self.remove([last, *(producers[name] for name in last.input if name not in self.constants)])

    def write(self) -> None:
        """Put the nodes into the graph, in an order in which they can be computed, without unused ones."""
        known = (
            {tensor.name for tensor in self._graph.initializer} | {v.name for v in self._graph.input} | {""}
        )
        ordered: list[onnx.NodeProto] = []
        left = self.nodes
        while left:
            ready = [node for node in left if known.issuperset(node.input)]
            assert ready, "the graph has a cycle, or a value that nothing computes"
            for node in ready:
                known.update(node.output)
            ordered += ready
            done = {id(node) for node in ready}
            left = [node for node in left if id(node) not in done]
        wanted = {value.name for value in self._graph.output}
        kept = []
        for node in reversed(ordered):
            if wanted.intersection(node.output):
                wanted.update(node.input)
                kept.append(node)
        del self._graph.node[:]
        self._graph.node.extend(kept[::-1])
        self.nodes = kept[::-1]
        used = [tensor for tensor in self._graph.initializer if tensor.name in wanted]
        del self._graph.initializer[:]
        self._graph.initializer.extend(used)
        del self._graph.value_info[:]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes that a node states, by name; texts are bytes."""
    return {one.name: helper.get_attribute_value(one) for one in node.attribute}
