"""What copies and launches cost the encoder: its outputs fetched, kept on the device, and in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from measures.bench import Bench, Table
from measures.photos import pixels

from captioner.model.bundle import Bundle
from captioner.model.graphs.device import cuda_options
from captioner.model.graphs.graph import Graph

BATCHES = (1, 8, 64, 256)


def bound(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    """Photos a second of the encoder by where its inputs and outputs are. `captioner` keeps outputs on the
    GPU; a CUDA graph also needs batches of fixed sizes, so it is measured here alone."""
    import onnxruntime as ort

    kind, _, number = bench.device.partition(":")
    device = kind, int(number or 0)
    bundle = Bundle.load(bench.model)
    rows, same = [], True
    for size in BATCHES[:2] if bench.quick else BATCHES:
        given = {"pixels": pixels(bench.captioner(), size)}
        session = _session(ort, bundle.encoder, device)
        graph = Graph(session, device)
        graph.on_cpu = False  # bind also on a CPU, so that this is tried everywhere
        names = list(graph.outputs)
        plain = session.run(names, given)
        row: dict[str, Any] = {"batch": size}
        variants: dict[str, Callable[[], object]] = {
            "fetched": partial(session.run, names, given),
            "kept on the device": partial(graph.run, given, (), names),
        }
        for name, call in variants.items():
            row[f"{name}, photos/s"] = 1000 * size / bench.median_ms(call)
        if kind == "cuda":
            try:
                capturing = _session(ort, bundle.encoder, device, {"enable_cuda_graph": "1"})
                call = _fixed(ort, capturing, given, names, plain, device)
                row["in a CUDA graph, photos/s"] = 1000 * size / bench.median_ms(call)
            except Exception as error:  # the other figures should not be lost
                bench.skip("a CUDA graph of the encoder", str(error).splitlines()[0])
        rows.append(row)
        kept = graph.run(given, (), names)[1]
        same = same and all(
            np.allclose(one, kept[name].numpy(), atol=1e-3) for name, one in zip(names, plain, strict=True)
        )
    note = "Pixels come from host memory, except in the CUDA graph, whose input is already on the GPU."
    return [Table("Outputs of the encoder", rows, note)], {"bound outputs are those that are fetched": same}


def _session(ort: Any, content: bytes, device: tuple[str, int], options: dict[str, str] | None = None) -> Any:
    if device[0] == "cpu":
        return ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    settings = cuda_options(device[1]) | (options or {})
    return ort.InferenceSession(content, providers=[("CUDAExecutionProvider", settings)])


def _fixed(
    ort: Any,
    session: Any,
    given: dict[str, Any],
    names: list[str],
    shapes: list[Any],
    device: tuple[str, int],
) -> Callable[[], object]:
    """A run with all inputs and outputs at fixed places, as a CUDA graph needs it."""
    binding = session.io_binding()
    for name, value in given.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(value, *device))
    for name, value in zip(names, shapes, strict=True):
        binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(value, *device))
    return partial(session.run_with_iobinding, binding)
