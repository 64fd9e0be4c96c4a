"""Whether exported graphs compute what the network computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from captioner.captioner import DEFAULT_BATCH_SIZE, Captioner, preprocess_all
from captioner.errors import CaptionerError, DataError
from captioner.images.preparation import Pixels
from captioner.model.graphs.decoder import OnnxStepper
from captioner.model.search import search
from captioner.nn.model import CaptionModel
from captioner.nn.stepper import TorchStepper

PARITY_BATCHES = (1, 2, 7)
PARITY_TOLERANCE = 1e-3
"""Largest difference of a log-probability; half of what would show in the second decimal."""


class ParityError(CaptionerError):
    """The exported graphs do not compute what the network computes."""

    code = "parity"


@dataclass(frozen=True, slots=True)
class Parity:
    """Differences between ONNX and PyTorch: the largest absolute ones over all batch sizes and steps."""

    log_prob: float
    attention: float
    captions: int
    """Images captioned by both; all captions were the same, word by word."""


@torch.inference_mode()
def check_parity(model: CaptionModel, captioner: Captioner, images: Sequence[Path] = ()) -> Parity:
    """Compare ONNX with PyTorch: log-probabilities and maps at every step of greedy captions, at several
    batch sizes, and the captions that the bundle's own search finds for all images. Raises `ParityError`, and
    `DataError` for a model whose log-probabilities are not finite."""
    pool = preprocess_all(captioner.preprocess, images or _noise(captioner.bundle.image_size))
    worst_log_prob = worst_attention = 0.0
    for batch in PARITY_BATCHES:
        ours, theirs = _steppers(model, captioner, pool[np.arange(batch) % len(pool)])
        our_state, their_state = ours.start(1), theirs.start(1)
        tokens = np.full((batch, 1), captioner.bundle.vocabulary.start_id, dtype=np.int64)
        for _ in range(captioner.defaults.max_words or 1):
            our_log_probs, our_attention, our_state = ours.step(tokens, our_state)
            their_log_probs, their_attention, their_state = theirs.step(tokens, their_state)
            worst_log_prob = max(worst_log_prob, float(np.abs(our_log_probs - their_log_probs).max()))
            worst_attention = max(worst_attention, float(np.abs(our_attention - their_attention).max()))
            tokens = our_log_probs.argmax(axis=-1)
    if not max(worst_log_prob, worst_attention) <= PARITY_TOLERANCE:
        raise ParityError(
            f"ONNX differs from PyTorch by {worst_log_prob:.2g} in log-probabilities and "
            f"{worst_attention:.2g} in attention; {PARITY_TOLERANCE:g} is allowed"
        )
    for start in range(0, len(pool), DEFAULT_BATCH_SIZE):
        part = pool[start : start + DEFAULT_BATCH_SIZE]
        found, again = (
            [best[0].tokens if best else None for best in search(stepper, len(part), captioner.defaults)]
            for stepper in _steppers(model, captioner, part)
        )
        if None in found:
            raise DataError("the model captions no image: its training has diverged (learning_rate)")
        for index, (tokens_here, tokens_there) in enumerate(zip(found, again, strict=True)):
            if tokens_here != tokens_there:
                raise ParityError(f"ONNX and PyTorch caption image {start + index + 1} differently")
    return Parity(worst_log_prob, worst_attention, len(pool))


def _noise(size: int) -> list[Image.Image]:
    """Square and tall images, so that models that letterbox are tested with masks."""
    random = np.random.default_rng(0)
    widths = [size // (1 + number % 3) for number in range(max(PARITY_BATCHES))]
    return [Image.fromarray(random.integers(0, 256, (size, width, 3), dtype=np.uint8)) for width in widths]


def _steppers(model: CaptionModel, captioner: Captioner, pixels: Pixels) -> tuple[TorchStepper, OnnxStepper]:
    mask = None
    if model.letterbox is not None:
        mask = torch.from_numpy(model.letterbox.mask(pixels)).flatten(1)
    memory, state = model.encode(torch.from_numpy(np.ascontiguousarray(pixels[..., :3])), mask)
    return TorchStepper(model.decoder, memory, state), captioner.encode(pixels)
