"""The same weights in PyTorch, eager and compiled, with the same search."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from captioner.cores import available_cores
from captioner.errors import CaptionerError
from captioner.model.search import search
from measures.bench import SEARCHES, Bench, Skip, Table, ratio
from measures.photos import pixels

if TYPE_CHECKING:
    from captioner.nn.model import CaptionModel

BATCHES = (1, 32)


def measure(bench: Bench) -> list[Table]:
    captioner = bench.captioner("float32")
    batches = {size: pixels(captioner, size) for size in BATCHES[: 1 if bench.quick else 2]}
    ways: dict[str, Callable[[Any], object]] = {
        f"captioner, {precision}": ours(bench, precision) for precision in bench.precisions()
    }
    ways["PyTorch, eager"] = theirs(bench, compiled=False)
    if bench.quick:
        bench.skip("torch.compile", "it takes minutes, not for --quick")
    elif not (shutil.which("g++") or shutil.which("clang++")):
        bench.skip("torch.compile", "there is no C++ compiler")
    else:
        ways["PyTorch, torch.compile"] = theirs(bench, compiled=True)
    rows = []
    for name, way in ways.items():
        row: dict[str, Any] = {"with the same weights": name}
        started = time.perf_counter()
        for size, batch in batches.items():
            row[f"batch {size}, ms a photo"] = bench.median_ms(partial(way, batch)) / size
        row["seconds to warm up and measure"] = round(time.perf_counter() - started)
        rows.append(row)
    eager = next(row for row in rows if row["with the same weights"] == "PyTorch, eager")
    for row in rows:
        for size in batches:
            column = f"batch {size}, ms a photo"
            row[f"to eager, batch {size}"] = ratio(eager[column], row[column])
    return [Table("Against PyTorch, beam 3, without reading photos", rows)]


def same_model(bench: Bench) -> CaptionModel:
    """The network in PyTorch, with the weights of the bundle. Raises `CaptionerError` where these, or the
    network, are not there."""
    from captioner.training.weights.start import Start

    place = str(bench.model.resolve()) if bench.model else "default"
    return Start.read(place, Path("/")).build().eval()


def ours(bench: Bench, precision: str) -> Callable[[Any], object]:
    """Caption a batch of pixels, by ONNX Runtime."""
    captioner = bench.captioner(precision)
    return lambda pixels: captioner.caption_pixels(pixels, SEARCHES["beam 3"])


def theirs(bench: Bench, *, compiled: bool) -> Callable[[Any], object]:
    """The same by PyTorch. Raises `Skip` where it or the weights are not there."""
    if not bench.has("torch", "PyTorch with the same weights"):
        raise Skip("PyTorch is not installed")
    import torch

    from captioner.nn.stepper import TorchStepper

    torch.set_num_threads(bench.threads or available_cores())
    captioner = bench.captioner("float32")
    try:
        model = same_model(bench)
    except CaptionerError as error:
        raise Skip(str(error)) from None
    options = SEARCHES["beam 3"].resolve(captioner.defaults)
    if compiled:
        model.encode = torch.compile(model.encode)  # type: ignore[method-assign]
        model.decoder.step = torch.compile(model.decoder.step)  # type: ignore[method-assign]

    def caption(pixels: Any) -> object:
        mask = None
        if model.letterbox is not None:
            mask = torch.from_numpy(model.letterbox.mask(pixels)).flatten(1)
        with torch.inference_mode():
            memory, state = model.encode(torch.from_numpy(np.ascontiguousarray(pixels[..., :3])), mask)
            return search(TorchStepper(model.decoder, memory, state), len(pixels), options)

    return caption
