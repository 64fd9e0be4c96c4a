"""Features of the training photos from another network, computed once and cached."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import onnxruntime as ort
import torch
from torch import Tensor
from torch.nn import functional as F

from captioner.errors import DataError, ImageError, reason_of
from captioner.images.opening import open_image, to_pixels
from captioner.training.data.augment import crop_box
from captioner.training.data.examples import Example
from captioner.training.data.placing import place, sent, take
from captioner.training.data.stored_arrays import at_once, fill, on_threads

CPU = torch.device("cpu")
CELLS, WHOLE = "cells", "whole"
MEASURED = 1000
"""Number of photos whose statistics normalise features to mean 0 and deviation 1."""
NORMALIZATIONS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
}
"""Mean and standard deviation of red, green and blue, in [0, 1], that networks were trained with."""


class CachedNetwork(Protocol):
    """What `build_features` needs from a network."""

    name: str
    """The name of the folder of the cache begins with it."""
    digest: str
    """Identifies its weights."""
    normalization: str
    side: int

    def __call__(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
        """uint8 (batch, side, side, 3) -> float16 features by the names `CELLS` and `WHOLE`."""


class FeatureNetwork:
    """An ONNX network from normalised float32 (batch, 3, side, side) to features.

    One output must be spatial: (batch, features, rows, columns), or (batch, tokens, features) as in
    vision transformers, whose last tokens form a square. An output for the whole photo, (batch,
    features), is used too.
    """

    def __init__(self, path: Path, normalization: str, image_size: int, device: torch.device) -> None:
        """`normalization` is one of `NORMALIZATIONS`, `image_size` the side for a network that takes any.
        Raises `DataError` for a file that is no network."""
        providers = ["CUDAExecutionProvider"] * (device.type == "cuda") + ["CPUExecutionProvider"]
        try:
            content = path.read_bytes()
            self._session = ort.InferenceSession(content, providers=providers)
        except OSError as error:
            raise DataError(f"cannot read the teacher network {path}: {reason_of(error)}") from None
        except Exception as error:  # ONNX Runtime's have no class in common
            raise DataError(f"{path} is not an ONNX network that can be run: {error}") from None
        self.path, self.name, self.normalization = path, path.stem, normalization
        self.digest = hashlib.sha256(content).hexdigest()
        [taken, *_] = self._session.get_inputs()
        self._input = taken.name
        self.side = taken.shape[-1] if taken.shape and isinstance(taken.shape[-1], int) else image_size
        self._mean, self._deviation = np.array(NORMALIZATIONS[normalization], dtype=np.float32)

    def __call__(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
        """uint8 (batch, side, side, 3) -> float16 "cells" (batch, features, rows, columns), and where the
        network has it, "whole" (batch, features, 1, 1). Raises `DataError`."""
        normal = (pixels.astype(np.float32) / 255 - self._mean) / self._deviation
        try:
            outputs = self._session.run(None, {self._input: normal.transpose(0, 3, 1, 2)})
        except Exception as error:
            raise DataError(f"the teacher network {self.path} does not take photos: {error}") from None
        found: dict[str, np.ndarray] = {}
        for output in outputs:
            if output.ndim == 2:
                found.setdefault(WHOLE, output[:, :, None, None].astype(np.float16))
            elif output.ndim in (3, 4):
                found.setdefault(CELLS, _map(output).astype(np.float16))
        if CELLS not in found:
            raise DataError(f"the teacher network {self.path} has no spatial features")
        return found


def _map(features: np.ndarray) -> np.ndarray:
    """(batch, features, rows, columns) from the same shape or from (batch, tokens, features)."""
    if features.ndim == 4:
        return features
    side = math.isqrt(features.shape[1])
    cells = features[:, -side * side :].transpose(0, 2, 1)
    return cells.reshape(*cells.shape[:2], side, side)


class TeacherFeatures:
    """Features of examples by index. Features of the original photo are stored; those of its crops and
    mirror images are cut from them."""

    def __init__(
        self, features: Mapping[str, np.ndarray], boxes: np.ndarray, device: torch.device = CPU
    ) -> None:
        """`features` as a `FeatureNetwork` gives them, of all examples; `boxes` float32 (examples, 1 + crops,
        4), the parts of the photo that are shown: left, top, right and bottom, of 1. What is taken is on the
        `device`, where all of it lies if it fits."""
        given = [features[name] for name in (CELLS, WHOLE) if name in features]
        self._device, self._features = device, place(given, device)
        self._boxes = torch.from_numpy(boxes).to(device)
        self.scales: list[tuple[Tensor, Tensor]] = []
        """Mean and standard deviation of cells, and of the whole photo, each (1, features, 1, 1)."""
        for values in given:
            some = torch.from_numpy(values[:: math.ceil(len(values) / MEASURED)].astype(np.float32))
            deviation, mean = torch.std_mean(some, dim=(0, 2, 3), keepdim=True)
            self.scales.append((mean.to(device), deviation.clamp(min=1e-6).to(device)))

    @property
    def sizes(self) -> list[int]:
        """Numbers of features: of a cell, and of the whole photo where the network has such an output."""
        return [values.shape[1] for values in self._features]

    def take(self, images: Tensor, views: Tensor) -> list[Tensor]:
        """Cells, float32 (batch, features, rows, columns), and whole (batch, features, 1, 1) if there is one,
        of mean 0 and deviation 1 over all photos; of int64 images and views, (batch,) each, on the CPU, as
        `FeatureCache` numbers them."""
        cells, *whole = (
            (take(values, (images,), self._device).float() - mean) / deviation
            for values, (mean, deviation) in zip(self._features, self.scales, strict=True)
        )
        images, views = sent(images, self._device), sent(views, self._device)
        left, top, right, bottom = self._boxes[images, views // 2].unbind(dim=1)
        across = torch.stack([(right - left) * (1 - 2 * (views % 2)), top * 0, left + right - 1], dim=1)
        down = torch.stack([left * 0, bottom - top, top + bottom - 1], dim=1)
        points = F.affine_grid(torch.stack([across, down], dim=1), list(cells.shape), align_corners=False)
        return [F.grid_sample(cells, points, padding_mode="border", align_corners=False), *whole]


def build_features(
    folder: Path,
    network: CachedNetwork,
    examples: Sequence[Example],
    crops: int,
    progress: Callable[[int, int], None],
    device: torch.device = CPU,
) -> TeacherFeatures:
    """Compute the features that `folder` lacks; `progress(done, total)` is called after each batch.
    `TeacherFeatures` gives them on the `device`.

    Raises as `captioner.training.data.feature_cache.build_cache` does.
    """
    identity = {
        "network": network.digest,
        "normalization": network.normalization,
        "side": network.side,
        "crops": crops,
    }

    def read(example: Example) -> tuple[np.ndarray, np.ndarray]:
        try:
            photo = open_image(example.files.read(example.image.name), target=2 * network.side)
        except ImageError as error:
            raise type(error)(f"{example.key}: {error}") from None
        shown = [(0, 0, *photo.size)]
        shown += [crop_box(photo.size, example.key, number) for number in range(1, crops + 1)]
        return to_pixels(photo, network.side), np.array(shown, dtype=np.float32) / (photo.size * 2)

    def compute(part: Sequence[Example]) -> dict[str, np.ndarray]:
        pixels, boxes = zip(*on_threads(read, part), strict=True)
        return {**network(np.stack(pixels)), "boxes": np.stack(boxes).astype(np.float32)}

    kept = fill(folder, network.name, identity, examples, compute, progress, at_once(device))
    return TeacherFeatures(kept, np.array(kept["boxes"]), device)
