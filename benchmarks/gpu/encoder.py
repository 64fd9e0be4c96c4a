"""Captions beside the encoder alone, in ONNX Runtime and in PyTorch, and where the time of a batch goes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from measures.bench import SEARCHES, Bench, Table
from measures.photos import SIZES, photos, pixels
from measures.pytorch import same_model

from captioner.errors import CaptionerError
from gpu.load import BATCHES

TORCH_BATCHES = (1, 32, 256)
"""Few: compiling takes a minute."""


def alone(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    """Photos a second of the whole and of the encoder alone."""
    captioner = bench.captioner()
    rows = []
    for size in BATCHES[:2] if bench.quick else BATCHES:
        batch = pixels(captioner, size)
        encode = partial(captioner.encode, batch)
        own = 1000 * size / bench.median_ms(encode)
        row: dict[str, Any] = {"batch": size, "encoder/s": own}
        for search, options in SEARCHES.items():
            whole = 1000 * size / bench.median_ms(partial(captioner.caption_pixels, batch, options))
            row |= {f"captions/s, {search}": whole, f"share, {search}": round(whole / own, 2)}
        rows.append(row)
    note = "From decoded pixels in host memory. The share is of the encoder alone in ONNX Runtime."
    return [Table("Beside the encoder alone", rows, note)], {}


def pytorch(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    """The same encoder in PyTorch, in bfloat16 and compiled."""
    encode = _torch_encoder(bench)
    if encode is None:
        return [], {}
    rows: list[dict[str, Any]] = []
    for size in TORCH_BATCHES[:1] if bench.quick else TORCH_BATCHES:
        batch = pixels(bench.captioner(), size)
        own = 1000 * size / bench.median_ms(partial(bench.captioner().encode, batch))
        other = 1000 * size / bench.median_ms(partial(encode, batch))
        rows.append({"batch": size, "ONNX Runtime, photos/s": own, "PyTorch, photos/s": other})
    note = "PyTorch computes in bfloat16, compiled on a GPU."
    return [Table("The encoder in PyTorch", rows, note)], {}


def parts(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    """Milliseconds of each part of a batch: what is largest limits it."""
    captioner = bench.captioner()
    files = photos(SIZES["500 x 375"])
    one = bench.median_ms(partial(captioner.preprocess, files[0]))
    rows = []
    for size in (1, 2) if bench.quick else (1, 32, 256):
        part = pixels(captioner, size)
        row: dict[str, Any] = {"batch": size, "decode on one core, ms": size * one}
        if bench.device != "cpu":
            from onnxruntime import OrtValue

            number = int(bench.device.partition(":")[2] or 0)
            row["copy to the GPU, ms"] = bench.median_ms(
                partial(OrtValue.ortvalue_from_numpy, part, "cuda", number)
            )
        row["encoder, copies included, ms"] = encode = bench.median_ms(partial(captioner.encode, part))
        for search, options in SEARCHES.items():
            whole = bench.median_ms(partial(captioner.caption_pixels, part, options))
            row[f"decoder and search, {search}, ms"] = max(0.0, whole - encode)
        rows.append(row)
    return [Table("Where the time of a batch goes", rows, "Decoding is of JPEG files of 500 x 375.")], {}


def _torch_encoder(bench: Bench) -> Callable[[Any], object] | None:
    """The encoder with the same weights in PyTorch; None where PyTorch or the weights are not there."""
    what = "the encoder in PyTorch"
    if not all(bench.has(package, what) for package in ("torch", "torchvision", "onnx")):
        return None
    import torch

    try:
        model = same_model(bench)
    except CaptionerError as error:  # weights or a network that are not here
        bench.skip(what, str(error))
        return None
    device = torch.device(bench.device)
    model = model.to(device)
    encode: Callable[..., object] = model.encode
    if device.type == "cuda":
        if any(map(shutil.which, ("gcc", "cc", "clang"))):
            encode = torch.compile(model.encode)
        else:
            bench.skip("torch.compile", "there is no C compiler: PyTorch's encoder is eager")

    def run(batch: Any) -> object:
        given = torch.from_numpy(np.ascontiguousarray(batch[..., :3])).to(device)
        mask = None
        if model.letterbox is not None:
            mask = torch.from_numpy(model.letterbox.mask(batch)).flatten(1).to(device)
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16):
            encoded = encode(given, mask)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return encoded

    return run
