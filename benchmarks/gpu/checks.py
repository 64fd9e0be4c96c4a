"""What must hold on a GPU: it computes there, what the CPU computes, and CUDA that is broken is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
from measures.bench import Bench, Table
from measures.photos import SIZES, photos

from captioner import Captioner, CaptionOptions
from captioner.results import Caption

SAME_CAPTIONS = 1.0
"""Least share of captions that are those of the CPU, word by word. In TF32 it was 0.98 to 0.99."""
LOG_PROB_DIFFERENCE = 0.05
"""Largest difference of a caption's log-probability, in nats, where the words are the same."""
LEAST_COSINE = 0.9999
"""Least cosine of a map and that of the CPU, where the words are the same."""
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def providers(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    """The sessions themselves say what they run on; what was asked for does not."""
    runtime = bench.captioner("float32")._runtime
    used = {
        name: graph._session.get_providers()[0]
        for name, graph in (("encoder", runtime._encoder), ("decoder", runtime._decoder.graph))
    }
    wanted = _PROVIDERS[bench.device.partition(":")[0]]
    rows = [{"graph": name, "first provider of the session": provider} for name, provider in used.items()]
    return [Table("Where the sessions run", rows)], {
        f"sessions run on {wanted}": set(used.values()) == {wanted}
    }


def parity(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    """Captions, log-probabilities and maps beside those of the CPU, at several batch sizes and searches."""
    here, there = bench.captioner("float32"), Captioner.load(bench.model, device="cpu", precision="float32")
    files = photos(SIZES["500 x 375"], 8 if bench.quick else 200)
    pixels = np.stack([here.preprocess(photo) for photo in files])
    rows, checks = [], {}
    for beams in (1, 3):
        options = CaptionOptions(beam_size=beams)
        expected = _captions(there, pixels, options, 32)
        for batch in (1, 7, 32):
            row: dict[str, Any] = {"beam": beams, "batch": batch}
            row |= _difference(expected, _captions(here, pixels, options, batch))
            rows.append(row)
            checks[f"captions of the CPU, beam {beams}, batch {batch}"] = (
                row["same captions"] >= SAME_CAPTIONS
                and row["largest difference, nats"] <= LOG_PROB_DIFFERENCE
                and row["least cosine of a map"] >= LEAST_COSINE
            )
    note = f"{len(pixels)} photos. Differences are those of captions with the same words."
    return [Table("Beside the CPU", rows, note)], checks


def _captions(captioner: Captioner, pixels: Any, options: CaptionOptions, batch: int) -> list[Caption]:
    found: list[Caption] = []
    for start in range(0, len(pixels), batch):
        found += captioner.caption_pixels(pixels[start : start + batch], options)
    return found


def _difference(expected: list[Caption], found: list[Caption]) -> dict[str, float]:
    same = [(one, other) for one, other in zip(expected, found, strict=True) if one.text == other.text]
    maps = [
        (word.attention, again.attention)
        for one, other in same
        for word, again in zip(one.words, other.words, strict=True)
        if word.attention is not None and again.attention is not None
    ]
    return {
        "same captions": round(len(same) / len(expected), 4),
        "largest difference, nats": max((abs(a.log_prob - b.log_prob) for a, b in same), default=np.inf),
        "largest difference of a map": max((float(np.abs(a - b).max()) for a, b in maps), default=0.0),
        "least cosine of a map": min((round(_cosine(a, b), 6) for a, b in maps), default=1.0),
    }


def _cosine(one: Any, other: Any) -> float:
    return float((one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum()))


def broken_cuda(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    """Without a usable GPU, cuda is refused with a reason and auto captions on the CPU."""
    photo = bench.work / "photo.jpg"
    photo.write_bytes(photos(SIZES["224 x 224"], 1)[0])
    model = ["--model", str(bench.model)] if bench.model else []
    rows, checks = [], {}
    for device, hidden in (("cuda", True), ("auto", True), ("cuda:99", False)):
        done = subprocess.run(
            [sys.executable, "-m", "captioner", "caption", str(photo), "--device", device, *model],
            env={**os.environ, **({"CUDA_VISIBLE_DEVICES": "-1"} if hidden else {})},
            capture_output=True,
            text=True,
        )
        said = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        where = "no GPU visible" if hidden else "as it is"
        rows.append({"--device": device, "machine": where, "status": done.returncode, "said": said[:200]})
        refused = done.returncode == 2 and "cannot be used" in done.stderr and "Traceback" not in done.stderr
        good = done.returncode == 0 if device == "auto" else refused
        checks[f"--device {device}, {where}"] = good
    return [Table("CUDA that cannot be used", rows)], checks
