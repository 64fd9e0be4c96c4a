"""Tests whether maps fall into the boxes of the objects that words name.

The pointing game: Zhang et al. 2016, "Top-down Neural Attention by Excitation Backprop", arXiv:1608.00507.
Attention correctness: Liu et al. 2017, "Attention Correctness in Neural Image Captioning", arXiv:1605.09553.
Boxes and maps are compared as fractions of the photo, so that neither the size of the file nor that of the
model input matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from captioner.errors import DataError
from captioner.metrics.attention.maps import normalized
from captioner.metrics.attention.measured import Measured
from captioner.metrics.bootstrap import Array, Statistics
from captioner.metrics.captions import check_keys, keys_by_number
from captioner.metrics.chair import find_mentions
from captioner.references import CaptionedImage, image_key, read_text
from captioner.references.json_text import parse_json
from captioner.results import Caption

NAMES = ("pointing", "pointing_by_chance", "correctness", "correctness_of_uniform")
"""The share of words whose most attended cell has its centre in a box, and that of a random cell; the share
of their attention inside the boxes, and that of a uniform map."""

Boxes = Mapping[str, Array]
"""Boxes of an image by category, (boxes, 4): left, top, right, bottom as fractions of its sides."""


def read_boxes(path: str | Path, images: Sequence[CaptionedImage]) -> dict[str, Boxes]:
    """The boxes of a COCO instances file by `CaptionedImage.key`, for those of `images` that are in it.

    Images are matched by COCO's number in their entry, else by file name, else by COCO's number at the end of
    their name. Raises `DataError` for a file that is malformed or has none of the images, and for images of
    the same file name.
    """
    path = Path(path)
    check_keys(images)
    document = parse_json(read_text(path, wanted="boxes are read from JSON of COCO"), path)
    try:
        names = {entry["id"]: entry["name"] for entry in document["categories"]}
        numbers, known = keys_by_number(images), {image.key for image in images}
        own = {image.image_id: image.key for image in images if image.image_id is not None}
        sides, keys = {}, {}
        for entry in document["images"]:
            key = own.get(entry["id"], image_key(entry.get("file_name", "")))
            if key not in known:
                key = numbers.get(entry["id"], "")
            if key in known:
                keys[entry["id"]] = key
                sides[entry["id"]] = np.array([entry["width"], entry["height"]] * 2, dtype=np.float64)
                if not sides[entry["id"]].min() > 0:
                    raise DataError(f"{path}: image {entry['id']} has no width or height")
        boxes: dict[str, dict[str, list[Array]]] = {key: {} for key in keys.values()}
        for entry in document["annotations"]:
            number = entry["image_id"]
            if number in keys:
                left, top, width, height = entry["bbox"]
                box = np.array([left, top, left + width, top + height]) / sides[number]
                boxes[keys[number]].setdefault(names[entry["category_id"]], []).append(box)
    except KeyError as error:
        raise DataError(f"{path}: not a COCO instances file: it lacks {error}") from None
    except (TypeError, ValueError, AttributeError):
        raise DataError(f"{path}: not a COCO instances file: a value is of the wrong type") from None
    if not boxes:
        raise DataError(f"{path} has none of the images")
    return {key: {name: np.stack(found) for name, found in each.items()} for key, each in boxes.items()}


def point(captions: Mapping[str, Caption], boxes: Mapping[str, Boxes]) -> Measured:
    """`NAMES` of captions with maps, by image; means over the words that name a category of which the image
    has boxes.

    The map of a phrase ("hot dog") is that of its last word. All boxes of the category count together.
    """
    found = [_rows(caption, boxes[image]) for image, caption in captions.items() if image in boxes]
    sums = np.array([[len(rows), *np.sum(rows, axis=0)] for rows in found if rows], dtype=np.float64)
    sums = sums.reshape(-1, 1 + len(NAMES))
    statistics = Statistics(sums, lambda sums: sums[..., 1:] / sums[..., :1])
    return Measured.of(NAMES, statistics, int(sums[:, 0].sum()))


def covered(boxes: Array, grid: tuple[int, int]) -> Array:
    """The share of each cell, (rows, columns), that lies in any of the boxes, (boxes, 4)."""
    rows, columns = grid
    across = np.unique(np.concatenate([np.linspace(0, 1, columns + 1), boxes[:, [0, 2]].clip(0, 1).ravel()]))
    down = np.unique(np.concatenate([np.linspace(0, 1, rows + 1), boxes[:, [1, 3]].clip(0, 1).ravel()]))
    # Coverage is constant between these lines, so the centre of each patch represents it.
    x, y = (across[1:] + across[:-1]) / 2, (down[1:] + down[:-1]) / 2
    area = _inside(boxes, x, y) * np.diff(down)[:, None] * np.diff(across)
    share = np.zeros(grid)
    np.add.at(share, ((y * rows).astype(int)[:, None], (x * columns).astype(int)), area * rows * columns)
    return share


def _inside(boxes: Array, x: Array, y: Array) -> npt.NDArray[np.bool_]:
    """Whether each point of a lattice, (y, x), lies in any of the boxes, (boxes, 4)."""
    inside = np.zeros((len(y), len(x)), dtype=bool)
    for left, top, right, bottom in boxes:
        inside |= ((top <= y) & (y <= bottom))[:, None] & ((left <= x) & (x <= right))
    return inside


def _rows(caption: Caption, boxes: Boxes) -> list[list[float]]:
    """The values of `NAMES` for each word of a caption that names something with boxes."""
    rows = []
    for mention in find_mentions([word.text for word in caption.words]):
        looked = caption.words[mention.end - 1].attention
        if mention.category not in boxes or looked is None:
            continue
        here, grid = boxes[mention.category], (looked.shape[0], looked.shape[1])
        share = covered(here, grid)
        weights = normalized(looked.ravel())
        y, x = ((np.arange(side) + 0.5) / side for side in grid)
        centres = _inside(here, x, y)
        hit = centres.ravel()[weights.argmax()]
        rows.append([float(hit), float(centres.mean()), float(weights @ share.ravel()), float(share.mean())])
    return rows
