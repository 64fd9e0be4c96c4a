"""An ONNX graph on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class Graph:
    """A session whose inputs and outputs may stay where it computes: arrays on the CPU, `OrtValue`s on a GPU.
    Thread-safe."""

    def __init__(self, session: Any, device: tuple[str, int]) -> None:
        """`device` is the kind of memory and its number, as ONNX Runtime names them."""
        self._session, self._device = session, device
        self.on_cpu = device[0] == "cpu"
        self.inputs: dict[str, list[Any]] = {value.name: value.shape for value in session.get_inputs()}
        """Shapes by name; an axis of any length is a string."""
        self.outputs: dict[str, list[Any]] = {value.name: value.shape for value in session.get_outputs()}

    def run(
        self, feeds: Mapping[str, Any], fetched: Sequence[str], kept: Sequence[str]
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Compute outputs: `fetched` as arrays, `kept` to be fed to a graph on the same device."""
        if self.on_cpu:
            values = self._session.run([*fetched, *kept], feeds)
            split = len(fetched)
            return dict(zip(fetched, values, strict=False)), dict(zip(kept, values[split:], strict=True))
        binding = self._session.io_binding()
        for name, value in feeds.items():
            if isinstance(value, np.ndarray):
                binding.bind_cpu_input(name, np.ascontiguousarray(value))
            else:
                binding.bind_ortvalue_input(name, value)
        for name in fetched:
            binding.bind_output(name, "cpu")
        for name in kept:
            binding.bind_output(name, *self._device)
        self._session.run_with_iobinding(binding)
        values = binding.get_outputs()
        return (
            {name: value.numpy() for name, value in zip(fetched, values, strict=False)},
            dict(zip(kept, values[len(fetched) :], strict=True)),
        )

    def place(self, value: npt.NDArray[Any]) -> Any:
        """An array in the memory of the device."""
        value = np.ascontiguousarray(value)
        if self.on_cpu:
            return value
        from onnxruntime import OrtValue

        return OrtValue.ortvalue_from_numpy(value, *self._device)
