"""Outputs of the frozen part of the encoder, computed once and stored on disk.

They are the input of the first segment that a run trains (the pixels, if nothing is frozen), for each
view of each image, in half precision, with masks for letterboxed photos. Views are the photo, the photo
mirrored, then each crop and the crop mirrored. An interrupted computation resumes.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime as ort
import torch
from filelock import FileLock
from torch import Tensor, nn

from captioner.cores import available_cores
from captioner.errors import ImageError, OutputError
from captioner.files.destination import replacing
from captioner.images.letterbox import Letterbox
from captioner.images.opening import load_pixels, open_image, to_pixels
from captioner.nn.encoder import STRIDES, GridEncoder
from captioner.surrogates import name_bytes
from captioner.training.data.augment import crop
from captioner.training.data.examples import Example
from captioner.training.data.placing import Features, place, take

BATCH, BATCH_ON_GPU = 32, 256
_DAMAGED = "damaged"


class FeatureCache:
    """Stage maps of examples by index. Files are memory-mapped, so that only what is used is in memory."""

    def __init__(
        self,
        arrays: Sequence[Features],
        masks: Features | None = None,
        damaged: Mapping[int, str] | None = None,
        rows: Tensor | None = None,
    ) -> None:
        """`masks` bool (images, views, cells) of letterboxed photos; `damaged`: what is wrong with images
        that have no features, by index; `rows` int64 (images,): where each image is, by default in order."""
        self._arrays, self._masks, self._rows = arrays, masks, rows
        self.damaged = damaged or {}

    def select(self, rows: Sequence[int]) -> FeatureCache:
        """The cache of these images."""
        if not self.damaged:
            return self
        return FeatureCache(self._arrays, self._masks, rows=torch.tensor(rows, dtype=torch.int64))

    def _places(self, images: Tensor, views: Tensor) -> tuple[Tensor, Tensor]:
        return images if self._rows is None else self._rows[images], views

    def maps(self, images: Tensor, views: Tensor, device: torch.device) -> list[Tensor]:
        """float32 (batch, channels, rows, columns) of each, or [uint8 (batch, height, width, 3)]; of
        int64 images and views, (batch,) each."""
        taken = [take(array, self._places(images, views), device) for array in self._arrays]
        return [maps.float() if maps.is_floating_point() else maps for maps in taken]

    def masks(self, images: Tensor, views: Tensor, device: torch.device) -> Tensor | None:
        """The photos' cells, bool (batch, rows * columns), of letterboxed photos; else None."""
        if self._masks is None:
            return None
        return take(self._masks, self._places(images, views), device)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPart:
    """What features are computed with: the first segments of an encoder, and the views of a photo."""

    encoder: GridEncoder
    name: str
    """The name of the encoder."""
    segments: int
    """Features are the outputs of so many segments; of none, they are the pixels."""
    image_size: int
    letterbox: Letterbox | None = None
    crops: int = 0
    """Parts of each photo that are views, beside the whole."""

    def identity(self) -> dict[str, Any]:
        """What tells its features from others. Names and defaults stay: caches of earlier runs have them."""
        told: dict[str, Any] = {
            "encoder": self.name,
            "weights": fingerprint(self.encoder.backbone.segments[: self.segments]),
            "image_size": self.image_size,
            "stride": self.encoder.stride,
            "frozen_segments": self.segments,
        }
        if self.letterbox is not None:
            told["letterbox"] = dataclasses.asdict(self.letterbox)
        if self.crops:
            told["crops"] = self.crops
        if self.encoder.colors is not None:
            told["colors"] = True
        return told

    def views(self, example: Example) -> np.ndarray | ImageError:
        """uint8 (views, image_size, image_size, channels), or what is wrong with the photo."""
        content, size = example.files.read(example.image.name), self.image_size
        try:
            found = [load_pixels(content, size, letterbox=self.letterbox)]
            if self.crops:
                photo = open_image(content, target=2 * size)
                for number in range(1, self.crops + 1):
                    found.append(to_pixels(crop(photo, example.key, number), size, self.letterbox))
        except ImageError as error:
            return error
        return np.stack([view for pixels in found for view in (pixels, pixels[:, ::-1])])

    def blank(self) -> np.ndarray:
        """Zeros in the shape of `views`."""
        channels = 3 + (self.letterbox is not None)
        return np.zeros((2 + 2 * self.crops, self.image_size, self.image_size, channels), dtype=np.uint8)

    def on(self, device: torch.device) -> Callable[[np.ndarray], list[np.ndarray]]:
        """A function from uint8 (batch, height, width, 3) to maps, float16 (batch, channels, rows, columns),
        or to the pixels themselves if `segments` is 0."""
        if self.segments == 0:
            return lambda pixels: [pixels]
        return on_pixels(_Segments(self.encoder, self.segments), self.image_size, device)


def build_cache(
    folder: Path,
    part: FrozenPart,
    examples: Sequence[Example],
    device: torch.device,
    progress: Callable[[int, int], None],
) -> FeatureCache:
    """Compute what the cache in `folder` lacks; `progress(done, total)` is called after each batch.

    On a GPU, what the cache holds is copied there if it fits. Images that cannot be read have no features
    (`FeatureCache.damaged`). Raises `DataError` for one that is missing, and `OutputError` if there is no
    space for the cache.
    """
    maps_of = functools.cache(lambda: part.on(device))

    def compute(some: Sequence[Example]) -> dict[str, np.ndarray]:
        read = on_threads(part.views, some)
        blank = part.blank()
        views = np.concatenate([blank if isinstance(one, ImageError) else one for one in read])
        found = {} if part.letterbox is None else {"mask": part.letterbox.mask(views).reshape(len(views), -1)}
        found |= {f"stage{number}": each for number, each in enumerate(maps_of()(views[..., :3]))}
        rows = {name: array.reshape(len(some), -1, *array.shape[1:]) for name, array in found.items()}
        return rows | {_DAMAGED: np.array([isinstance(one, ImageError) for one in read])}

    kept = fill(folder, part.name, part.identity(), examples, compute, progress, at_once(device))
    rows = np.flatnonzero(kept.get(_DAMAGED, ())).tolist()
    damaged = {row: str(part.views(examples[row])) for row in rows}
    maps = place([array for name, array in kept.items() if name not in ("mask", _DAMAGED)], device)
    return FeatureCache(maps, kept.get("mask"), damaged)


def at_once(device: torch.device) -> int:
    """Images that are computed together."""
    return BATCH if device.type == "cpu" else BATCH_ON_GPU


def on_threads(read: Callable[[Example], Any], examples: Sequence[Example]) -> list[Any]:
    """What `read` returns for each. Most of decoding and resizing a photo does not hold Python's lock."""
    with ThreadPoolExecutor(min(len(examples), available_cores()) or 1) as threads:
        return list(threads.map(read, examples))


def fill(
    folder: Path,
    kind: str,
    identity: Mapping[str, Any],
    examples: Sequence[Example],
    compute: Callable[[Sequence[Example]], dict[str, np.ndarray]],
    progress: Callable[[int, int], None],
    batch: int = BATCH,
) -> dict[str, np.ndarray]:
    """Memory-mapped arrays by name, in order, with a row for each example; missing rows are computed.

    `compute` returns the rows of at most `batch` examples. The arrays are stored in a subfolder that is named
    after their `kind`, their `identity`, and the names and digests of the images, so that a replaced image is
    computed again. Damaged arrays are, too. If several runs need the same arrays, one computes them and the
    others wait. Raises `OutputError` if there is no space.
    """
    names = "\n".join(f"{example.key}\t{example.digest}" for example in examples)
    images = hashlib.sha256(name_bytes(names)).hexdigest()
    identity = {**identity, "images": images}
    name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    folder = folder / f"{kind}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        _fill(folder, identity, examples, compute, progress, batch)
    return _opened(folder, "r")


def _fill(
    folder: Path,
    identity: Mapping[str, Any],
    examples: Sequence[Example],
    compute: Callable[[Sequence[Example]], dict[str, np.ndarray]],
    progress: Callable[[int, int], None],
    batch: int,
) -> None:
    note, count = folder / "done.json", len(examples)
    done, arrays = _resume(folder, note)
    for start in range(done, count, batch):
        stop = min(start + batch, count)
        computed = compute(examples[start:stop])
        arrays = arrays or {
            name: _make_file(folder / f"{name}.npy", array.dtype, (count, *array.shape[1:]))
            for name, array in computed.items()
        }
        for name, array in computed.items():
            arrays[name][start:stop] = array
        # The count is written after the data, so that after a kill the counted rows exist.
        if start // batch % 16 == 15 or stop == count:
            for array in arrays.values():
                array.flush()  # type: ignore[attr-defined]
            with replacing(note) as file:
                file.write(json.dumps({"done": stop, "arrays": _kinds(arrays), **identity}).encode())
        progress(stop, count)


def _resume(folder: Path, note: Path) -> tuple[int, dict[str, np.ndarray]]:
    """How many rows are there, and the arrays. If these are not what the note says, all is removed."""
    with suppress(OSError, EOFError, ValueError, KeyError, TypeError):
        said = json.loads(note.read_text())
        if said["arrays"] == _kinds(_opened(folder, "r")):  # which refuses a file that is cut short
            return int(said["done"]), _opened(folder, "r+")
    for path in (note, *folder.glob("*.npy")):
        path.unlink(missing_ok=True)
    return 0, {}


def _kinds(arrays: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    return {name: [array.dtype.str, *array.shape] for name, array in arrays.items()}


def _opened(folder: Path, mode: Literal["r", "r+"]) -> dict[str, np.ndarray]:
    return {path.stem: np.load(path, mmap_mode=mode) for path in sorted(folder.glob("*.npy"))}


def _make_file(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """A memory-mapped array whose disk space is allocated in advance. Without that, a full disk would end the
    process with a bus error at the first write."""
    path.unlink(missing_ok=True)  # also a link, which would be followed
    try:
        array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        if hasattr(os, "posix_fallocate"):
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as error:
        path.unlink(missing_ok=True)
        size = math.prod(shape) * dtype.itemsize
        raise OutputError(f"cannot write {path}, which takes {size / 1e6:.1f} MB: {error.strerror}") from None
    return array


@contextmanager
def naming(example: Example) -> Iterator[None]:
    """Name the image in errors raised while reading it."""
    try:
        yield
    except ImageError as error:
        raise type(error)(f"{example.key}: {error}") from None


def fingerprint(layers: nn.Module) -> str:
    """A digest of the weights."""
    digest = hashlib.sha256()
    for value in layers.state_dict().values():
        digest.update((value + 0).cpu().numpy().tobytes())  # -0, which a mean of weights makes 0, is 0
    return digest.hexdigest()


def on_pixels(
    network: nn.Module, image_size: int, device: torch.device
) -> Callable[[np.ndarray], list[np.ndarray]]:
    """A function from uint8 (batch, image_size, image_size, 3) to the outputs of a network.

    On a CPU it uses ONNX Runtime, which ran EfficientNet-Lite2 seven times as fast as PyTorch.
    """
    network = network.to(device).eval()
    if device.type != "cpu":
        return lambda pixels: [stage.cpu().numpy() for stage in network(torch.from_numpy(pixels).to(device))]
    session = pixel_session(network, image_size)
    return lambda pixels: session.run(None, {"pixels": pixels})


class _Segments(nn.Module):
    def __init__(self, encoder: GridEncoder, segments: int) -> None:
        super().__init__()
        self.encoder, self.segments = encoder, segments

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> list[Tensor]:
        outputs = self.encoder.outputs(self.encoder.inputs(pixels), 0, self.segments)
        return [output.half() for output in outputs]


def pixel_session(module: nn.Module, image_size: int) -> ort.InferenceSession:
    """The module in ONNX Runtime; it takes "pixels", uint8 (batch, image_size, image_size, 3)."""
    pixels = torch.zeros(2, image_size, image_size, 3, dtype=torch.uint8)
    program = torch.onnx.export(
        module,
        (pixels,),
        input_names=["pixels"],
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        verbose=False,
    )
    assert program is not None
    return ort.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])


def trained_outputs(
    encoder: GridEncoder, maps: list[Tensor], frozen_segments: int, tuned_segments: int = 0
) -> list[Tensor]:
    """Outputs of the backbone's segments, (batch, channels, rows, columns) each, from cached maps.

    The run trains all but its `frozen_segments`, the current stage of the run only the last
    `tuned_segments`; what lies between is computed without gradients.
    """
    if frozen_segments == 0:
        maps = encoder.inputs(maps[0])
    # Convolutions are fastest in this layout, above all the backward pass.
    maps = [each.contiguous(memory_format=torch.channels_last) for each in maps]
    still = len(STRIDES) - tuned_segments
    if still > frozen_segments:
        with torch.no_grad():
            maps = encoder.outputs(maps, frozen_segments, still)
    return encoder.outputs(maps, still, len(STRIDES)) if tuned_segments else maps
