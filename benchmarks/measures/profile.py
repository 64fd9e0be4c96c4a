"""Where the time of captioning goes: by stage, and by kind of node of both graphs."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from captioner import Captioner
from captioner.model.graphs.graph import Graph
from measures.bench import SEARCHES, Bench, Table
from measures.photos import SIZES, photos

STAGES = ("reading photos", "encoder", "decoder", "search and captions")
BATCHES = (1, 32)
_KINDS = 8
_RUNS = 20


def measure(bench: Bench) -> list[Table]:
    stages, nodes = [], []
    for precision in bench.precisions():
        for batch in BATCHES:
            row, feeds = _stages(bench, precision, batch)
            stages.append(row)
            for name, fed in feeds.items():
                nodes.append(_nodes(bench, precision, name, fed) | {"batch": batch})
    note = "The search is beam 3, photos are of 500 x 375. Photos are read one after another here."
    return [
        Table("Where the time goes, ms a photo", stages, note),
        Table(
            "Kinds of nodes, by their share of a run of the graph",
            [{"graph": row.pop("graph"), "batch": row.pop("batch"), **row} for row in nodes],
        ),
    ]


def _stages(bench: Bench, precision: str, batch: int) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Times of the stages, and what the graphs were fed first."""
    captioner = bench.captioner(precision)
    files = [photos(SIZES["500 x 375"])[number % 8] for number in range(batch)]
    spent: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    feeds: dict[str, dict[str, Any]] = {}

    def once() -> None:
        started = time.perf_counter()
        pixels = np.stack([captioner.preprocess(photo) for photo in files])
        read = time.perf_counter()
        captioner.caption_pixels(pixels, SEARCHES["beam 3"])
        spent["reading photos"] += read - started
        spent["all"] += time.perf_counter() - started

    once()
    with _watched(captioner, spent, runs, feeds):
        spent.clear()
        times = len(bench.times(once)) + 1  # one more than it counts
    spent["search and captions"] = 2 * spent["all"] - sum(spent.values())
    row: dict[str, Any] = {"precision": precision, "batch": batch}
    row |= {stage: round(1000 * spent[stage] / times / batch, 2) for stage in STAGES}
    row["steps"] = round(runs["decoder"] / times, 1)
    return row, feeds


@contextmanager
def _watched(
    captioner: Captioner, spent: Counter[str], runs: Counter[str], feeds: dict[str, dict[str, Any]]
) -> Iterator[None]:
    """Count the time in the two graphs and their runs, and keep what each was fed first."""
    graphs: dict[str, Graph] = {
        "encoder": captioner._runtime._encoder,
        "decoder": captioner._runtime._decoder.graph,
    }

    def watch(name: str, graph: Graph) -> None:
        def run(fed: Any, *rest: Any) -> Any:
            feeds.setdefault(name, fed)  # the first step has all images of the batch
            runs[name] += 1
            started = time.perf_counter()
            try:
                return Graph.run(graph, fed, *rest)
            finally:
                spent[name] += time.perf_counter() - started

        graph.run = run  # type: ignore[method-assign]

    for name, graph in graphs.items():
        watch(name, graph)
    try:
        yield
    finally:
        for graph in graphs.values():
            del graph.run


def _nodes(bench: Bench, precision: str, name: str, feeds: dict[str, Any]) -> dict[str, Any]:
    """The kinds of nodes that take longest, and their shares, in a run of a graph of its own."""
    bundle = bench.captioner(precision).bundle
    files = {f"{name}.onnx": getattr(bundle, name)}
    graph = files[f"{name}.onnx"]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = str(bench.work / f"{name}-{precision}")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.intra_op_num_threads = bench.threads or 0
    if precision == "int8":
        assert bundle.int8 is not None
        graph = bundle.int8[("encoder", "decoder").index(name)]
        sizes = [len(content) for content in files.values()]
        options.add_external_initializers_from_files_in_memory(list(files), list(files.values()), sizes)
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    for _ in range(1 if bench.quick else _RUNS):
        session.run(None, feeds)
    spent: Counter[str] = Counter()
    for event in json.loads(Path(session.end_profiling()).read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            spent[event["args"]["op_name"]] += event["dur"]
    total = spent.total() or 1
    largest = ", ".join(f"{kind} {share / total:.0%}" for kind, share in spent.most_common(_KINDS))
    return {"graph": f"{name}, {precision}", "kinds of nodes": largest}
