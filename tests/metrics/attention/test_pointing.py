"""The pointing game and attention correctness, with numbers that geometry gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioner import Captioner
from captioner.errors import DataError
from captioner.metrics.attention.pointing import covered, point, read_boxes
from captioner.metrics.chair import find_mentions
from captioner.references import CaptionedImage
from captioner.results import Caption, Word

IMAGES = [
    CaptionedImage("COCO_val2014_000000000042.jpg", ("a dog",), ""),
    CaptionedImage("photos/plain.jpg", ("a dog",), ""),
    CaptionedImage("other.jpg", ("a dog",), ""),
]


def instances(*annotations: tuple[int, int, list[float]], **changes: Any) -> dict[str, Any]:
    return {
        "images": [
            # 42 is found by its number, whatever its file is called now; 7 by its name.
            {"id": 42, "file_name": "was_called_so.jpg", "width": 400, "height": 200},
            {"id": 7, "file_name": "plain.png", "width": 100, "height": 100},
            {"id": 8, "file_name": "unknown.jpg", "width": 0, "height": 0},
        ],
        "categories": [{"id": 1, "name": "dog"}, {"id": 5, "name": "hot dog"}],
        "annotations": [
            {"image_id": image, "category_id": category, "bbox": box} for image, category, box in annotations
        ],
        **changes,
    }


def written(folder: Path, document: Any) -> Path:
    path = folder / "instances.json"
    path.write_text(json.dumps(document))
    return path


def saying(text: str, **maps: np.ndarray) -> Caption:
    blank = np.full((4, 4), 1 / 16, dtype=np.float32)
    return Caption(text, -1.0, tuple(Word(word, -1.0, maps.get(word, blank)) for word in text.split()))


def looking_at(row: int, column: int, share: float = 1.0) -> np.ndarray:
    weights = np.zeros((4, 4), dtype=np.float32)
    weights[row, column] = share
    return weights


def test_boxes_are_fractions_of_the_photo_as_given(tmp_path: Path) -> None:
    path = written(
        tmp_path, instances((42, 1, [100, 50, 200, 100]), (42, 1, [0, 0, 40, 20]), (7, 5, [0, 0, 9, 9]))
    )
    boxes = read_boxes(path, IMAGES)
    assert boxes.keys() == {"COCO_val2014_000000000042", "plain"}
    np.testing.assert_allclose(
        boxes["COCO_val2014_000000000042"]["dog"], [[0.25, 0.25, 0.75, 0.75], [0, 0, 0.1, 0.1]]
    )
    np.testing.assert_allclose(boxes["plain"]["hot dog"], [[0, 0, 0.09, 0.09]])


def test_what_a_cell_shares_with_boxes() -> None:
    # Two rows, four columns: a box over the right half of the second column and beyond, in the upper row.
    np.testing.assert_allclose(
        covered(np.array([[0.375, 0, 0.75, 0.5]]), (2, 4)), [[0, 0.5, 1, 0], [0, 0, 0, 0]]
    )
    # What two boxes share counts once; what hangs over the photo not at all.
    both = np.array([[-1, 0.25, 0.5, 2], [0, 0.25, 0.25, 0.75]])
    np.testing.assert_allclose(covered(both, (2, 2)), [[0.5, 0], [1, 0]])


def test_a_map_on_the_thing_and_one_beside_it(tmp_path: Path) -> None:
    boxes = read_boxes(
        written(tmp_path, instances((42, 1, [100, 0, 200, 100]), (7, 1, [0, 0, 50, 50]))), IMAGES
    )
    captions = {
        # The box of the dog covers rows 0 and 1, columns 1 and 2, of 4 x 4. The sentinel takes no part.
        "COCO_val2014_000000000042": saying("a dog", dog=looking_at(1, 2, 0.2), a=looking_at(3, 3)),
        "plain": saying("two dogs on grass", dogs=looking_at(3, 0)),
        "other": saying("a dog", dog=looking_at(0, 0)),
    }
    found = point(captions, boxes)
    assert (found.images, found.words) == (2, 2)
    assert found.values == {
        "pointing": 0.5,
        "pointing_by_chance": 0.25,
        "correctness": 0.5,
        "correctness_of_uniform": pytest.approx(0.25),
    }
    assert found.intervals["pointing"] == (0, 1)


def test_a_phrase_is_found_where_its_last_word_looked(tmp_path: Path) -> None:
    boxes = read_boxes(written(tmp_path, instances((7, 5, [0, 0, 25, 25]), (7, 1, [50, 50, 50, 50]))), IMAGES)
    found = point({"plain": saying("a hot dog", hot=looking_at(3, 3), dog=looking_at(0, 0))}, boxes)
    assert found.words == 1
    assert found.values["pointing"] == found.values["correctness"] == 1


def test_nothing_to_measure_is_null(tmp_path: Path) -> None:
    boxes = read_boxes(written(tmp_path, instances((42, 1, [0, 0, 9, 9]))), IMAGES)
    record = point({"plain": saying("a dog")}, boxes).to_dict()
    assert record["words"] == 0 and record["pointing"] is None


def test_a_bright_spot_is_pointed_at_in_a_photo_of_any_shape(tmp_path: Path, tiny_bundle: Path) -> None:
    """From pixels to boxes: the model of the tests looks at what is bright."""
    photo = np.full((160, 320, 3), 60, dtype=np.uint8)
    photo[40:80, 240:320] = 255  # second row, fourth column of 4 x 4
    [caption] = Captioner.load(tiny_bundle, device="cpu").caption([Image.fromarray(photo)])
    categories = [mention.category for mention in find_mentions([word.text for word in caption.words])]
    document = instances(*((7, number, [240, 40, 80, 40]) for number in range(len(categories))))
    document["categories"] = [{"id": number, "name": name} for number, name in enumerate(categories)]
    document["images"][1] |= {"width": 320, "height": 160}
    found = point({"plain": caption}, read_boxes(written(tmp_path, document), IMAGES))
    assert found.words == len(categories) > 0
    assert found.values["pointing"] == 1
    assert found.values["correctness"] > 4 * found.values["correctness_of_uniform"]
    assert found.values["correctness_of_uniform"] == pytest.approx(1 / 16)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("text", "not a COCO instances file"),
        ([], "not a COCO instances file"),
        ({"images": []}, "lacks 'categories'"),
        (instances(images=[]), "has none of the images"),
        (instances((7, 9, [0, 0, 1, 1])), "lacks 9"),
        (instances((7, 1, [0, 0, 1])), "a value is of the wrong type"),
        (instances((7, 1, [0, 0, 1, "wide"])), "a value is of the wrong type"),
        (instances(images=[{"id": 42, "width": 0, "height": 3}]), "image 42 has no width or height"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_boxes(written(tmp_path, document), IMAGES)


def test_a_file_name_counts_more_than_a_number_at_its_end(tmp_path: Path) -> None:
    """A data set of one's own may number its images in another order."""
    images = [CaptionedImage(f"photo{number}.jpg", ("a dog",), "") for number in (1, 2)]
    entries = [
        {"id": 1, "file_name": "photo2.jpg", "width": 10, "height": 10},
        {"id": 2, "file_name": "photo1.jpg", "width": 10, "height": 10},
    ]
    path = written(tmp_path, instances((1, 1, [0, 0, 5, 5]), (2, 5, [0, 0, 5, 5]), images=entries))
    boxes = read_boxes(path, images)
    assert (set(boxes["photo1"]), set(boxes["photo2"])) == ({"hot dog"}, {"dog"})
    with pytest.raises(DataError, match="two images are called photo1"):
        read_boxes(path, [*images, CaptionedImage("more/photo1.jpg", ("a dog",), "")])
