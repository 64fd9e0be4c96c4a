"""Adds INT8 graphs to a bundle: activation ranges from calibration photos, with the better of two rules,
corrected biases, and a record of the effect of quantisation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from captioner.captioner import Captioner
from captioner.errors import DataError
from captioner.export.int8.bias_correction import correct_biases
from captioner.export.int8.quantizer import Quantizer
from captioner.export.int8.ranges import Array, Range, widen
from captioner.export.shared_weights import session
from captioner.images.preparation import Pixels
from captioner.model import bundle as bundles
from captioner.model.graphs.decoder import OnnxStepper
from captioner.model.search import search
from captioner.model.search.choices import Ints
from captioner.model.vocabulary import Vocabulary

SHARES = (0.0, 1e-4)
"""Shares of the values of a photo, at either end, that may lie outside a range."""
LEAST_PHOTOS = 8
_BATCH = 4  # the values of all layers are kept at once
_CORRECTION_BATCHES = 12


@dataclass(frozen=True, slots=True)
class Int8Record:
    """The effect of quantisation, measured on the quarter of the photos that did not set the ranges."""

    photos: int
    """Photos that set the ranges."""
    share: float
    """The share that was chosen from `SHARES`."""
    memory_cosine: float
    """Mean cosine of the cells that the decoder reads, between INT8 and float32."""
    map_cosine: float
    """Mean cosine of the maps, for the captions of the float32 model."""
    same_words: float
    """Share of the words of these captions that are also the most likely ones in INT8."""


def check_number(photos: int) -> None:
    """Raise `DataError` for fewer than `LEAST_PHOTOS` photos."""
    if photos < LEAST_PHOTOS:
        raise DataError(f"INT8 graphs need at least {LEAST_PHOTOS} calibration photos, got {photos}")


def add_int8(folder: Path, pixels: Pixels) -> Int8Record:
    """Add INT8 graphs to the bundle `folder`, and the record to its manifest. `pixels` are calibration
    photos, prepared for this model, uint8 (photos, size, size, channels).

    Raises `DataError` for fewer than `LEAST_PHOTOS` photos."""
    check_number(len(pixels))
    exact = Captioner.load(folder, device="cpu", precision="float32")
    held_out = max(2, len(pixels) // 4)
    calibration, test = pixels[:-held_out], pixels[-held_out:]
    encoder, cosine, share = _encoder(exact, calibration, test)
    decoder = _decoder(exact, calibration)
    (folder / bundles.ENCODER_INT8).write_bytes(encoder)
    (folder / bundles.DECODER_INT8).write_bytes(decoder)
    bundles.change_manifest(folder, {})
    record = Int8Record(len(calibration), share, cosine, *_compare(exact, folder, test))
    bundles.change_manifest(folder, {"int8": asdict(record)})
    return record


def _encoder(exact: Captioner, calibration: Pixels, test: Pixels) -> tuple[bytes, float, float]:
    """The encoder, the mean cosine of its memory of the test photos, and the share that gave it."""
    graph = exact.bundle.encoder
    quantizer = Quantizer(graph)
    observed = quantizer.observed()
    ranges: dict[float, dict[str, Range]] = {share: {} for share in SHARES}
    batches = _batches(exact, calibration)
    for feeds in batches:
        values = observed.run(quantizer.activations, feeds)
        for share, found in ranges.items():
            widen(found, zip(quantizer.activations, values, strict=True), share)
    # The cells as the decoder sees them, whatever decoder it is.
    [seen, *_] = [
        value.name
        for value in observed.get_outputs()
        if value.name.startswith("memory.") and len(value.shape) == 3
    ]
    wanted = exact.encode(test).memory[seen.removeprefix("memory.")]
    # Means need fewer photos than ranges.
    batches = batches[:: math.ceil(len(batches) / _CORRECTION_BATCHES)]
    best = (b"", -1.0, 0.0)
    for share, found in ranges.items():
        candidate = Quantizer(graph).quantize(found, bundles.ENCODER)
        candidate = correct_biases(graph, candidate, bundles.ENCODER, batches)
        rounded = session(candidate, {bundles.ENCODER: graph})
        values = np.concatenate([rounded.run([seen], feeds)[0] for feeds in _batches(exact, test)])
        if (cosine := _cosine(wanted, values)) > best[1]:
            best = (candidate, cosine, share)
    return best


def _batches(captioner: Captioner, pixels: Pixels) -> list[dict[str, npt.NDArray[Any]]]:
    """The inputs of the encoder graph for all photos, a few at a time."""
    return [encoder_feeds(captioner, pixels[i : i + _BATCH]) for i in range(0, len(pixels), _BATCH)]


def encoder_feeds(captioner: Captioner, pixels: Pixels) -> dict[str, npt.NDArray[Any]]:
    """The inputs of the encoder graph for a batch."""
    letterbox = captioner.bundle.letterbox
    if letterbox is None:
        return {"pixels": pixels}
    masks = letterbox.mask(pixels).reshape(len(pixels), -1)
    return {"pixels": np.ascontiguousarray(pixels[..., :3]), "mask": masks}


def _decoder(exact: Captioner, calibration: Pixels) -> bytes:
    """The decoder, with ranges from its own captions of the photos."""
    quantizer = Quantizer(exact.bundle.decoder)
    observed = quantizer.observed()
    ranges: dict[str, Range] = {}
    for stepper, captions in _captioned(exact, calibration):
        for feeds in _forced_feeds(stepper, captions):
            values = observed.run(quantizer.activations, feeds)
            widen(ranges, zip(quantizer.activations, values, strict=True))
    return quantizer.quantize(ranges, bundles.DECODER)


def _captioned(exact: Captioner, pixels: Pixels) -> Iterator[tuple[OnnxStepper, list[tuple[int, ...]]]]:
    """Batches, each with the tokens of its captions."""
    for start in range(0, len(pixels), 32):
        stepper = exact.encode(pixels[start : start + 32])
        found = search(stepper, len(pixels[start : start + 32]), exact.defaults)
        yield stepper, [best[0].tokens if best else () for best in found]


def _forced_feeds(stepper: OnnxStepper, captions: list[tuple[int, ...]]) -> Iterator[dict[str, Any]]:
    """The inputs of the decoder graph at each step of the captions."""
    state = stepper.start(1)
    tokens = np.full((len(captions), 1), Vocabulary.start_id, dtype=np.int64)
    for step in range(max(map(len, captions), default=0) + 1):
        yield stepper.feeds(tokens, state)
        _, _, state = stepper.step(tokens, state)
        tokens = _said(captions, step)[:, None]


def _said(captions: list[tuple[int, ...]], step: int) -> Ints:
    """The token of each caption at a step; the end token after its end."""
    tokens = [caption[step] if step < len(caption) else Vocabulary.end_id for caption in captions]
    return np.array(tokens, dtype=np.int64)


def _compare(exact: Captioner, folder: Path, pixels: Pixels) -> tuple[float, float]:
    """Mean cosine of the maps, and share of equal most likely words, over the captions of the exact model."""
    rounded = Captioner.load(folder, device="cpu", precision="int8")
    cosines, same, words = 0.0, 0, 0
    for start, (stepper, captions) in zip(range(0, len(pixels), 32), _captioned(exact, pixels), strict=True):
        other = rounded.encode(pixels[start : start + 32])
        state, other_state = stepper.start(1), other.start(1)
        tokens = np.full((len(captions), 1), Vocabulary.start_id, dtype=np.int64)
        for step in range(max(map(len, captions), default=0)):
            log_probs, maps, state = stepper.step(tokens, state)
            other_log_probs, other_maps, other_state = other.step(tokens, other_state)
            going = [image for image, caption in enumerate(captions) if step < len(caption)]
            cosines += _cosine(maps[going], other_maps[going]) * len(going)
            same += int((log_probs.argmax(-1) == other_log_probs.argmax(-1))[going].sum())
            words += len(going)
            tokens = _said(captions, step)[:, None]
    return cosines / max(words, 1), same / max(words, 1)


def _cosine(first: Array, second: Array) -> float:
    """Mean cosine of the last axes."""
    products = (first * second).sum(-1)
    lengths = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return float((products / np.maximum(lengths, 1e-12)).mean())
