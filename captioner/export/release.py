"""The scores and the confidence that a bundle states, measured with the bundle as it is shipped."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from captioner.captioner import Captioner
from captioner.errors import CaptionerError, DataError
from captioner.images.preparation import Pixels
from captioner.metrics import Scores, evaluate_captions
from captioner.metrics.naming import NamingScores, score_naming
from captioner.metrics.tables import markdown_table
from captioner.options import CaptionOptions
from captioner.training.config.train_options import SourceOptions
from captioner.training.data.examples import Example, load_examples
from captioner.training.data.left_out import LeftOut
from captioner.training.loop.calibrate import Said, calibrate

_LOG = logging.getLogger(__name__)
BATCH = 32


@dataclass(frozen=True, slots=True)
class Release:
    """What a bundle states of its quality."""

    scores: Mapping[str, Mapping[str, float]]
    """By the name of the data set; shares times 100."""
    confidence: Mapping[str, Any] | None
    """The calibration; None if there are too few images."""
    table: str
    """The scores with their confidence intervals, in Markdown."""


def measure(captioner: Captioner, data: Sequence[SourceOptions], root: Path) -> Release:
    """Caption the validation images of the data sets, whose paths are relative to `root`, and score them.

    Those that cannot be read are left out, as in training, with a warning. Raises `DataError` if there are no
    others.
    """
    examples = load_examples(data, root, "val")
    if not examples:
        raise DataError("there are no validation images to evaluate the bundle on")
    examples, captions = say_all(captioner, examples)
    texts = {example.key: said.text for example, said in zip(examples, captions, strict=True)}
    scores = {
        source: _score([example for example in examples if example.source == source], texts)
        for source in dict.fromkeys(example.source for example in examples)
    }
    return Release(
        {name: values.to_dict() for name, values in scores.items()},
        calibrate(examples, captions),
        markdown_table(scores),
    )


def say_all(captioner: Captioner, examples: Sequence[Example]) -> tuple[list[Example], list[Said]]:
    """The examples whose images can be read, with their captions. Raises `DataError` if none can."""
    readable: list[Example] = []
    captions: list[Said] = []
    faults: list[str] = []
    for start in range(0, len(examples), BATCH):
        pixels = []
        for example in examples[start : start + BATCH]:
            try:
                pixels.append(captioner.preprocess(example.files.read(example.image.name)))
                readable.append(example)
            except CaptionerError as error:
                faults.append(f"{example.key}: {error}")
        captions += _say(captioner, pixels) if pixels else []
    if not readable:
        raise DataError(f"no validation image can be read, for instance {faults[0]}")
    LeftOut(len(examples), 1.0, _LOG.warning).add(faults)
    return readable, captions


def _say(captioner: Captioner, pixels: Sequence[Pixels]) -> list[Said]:
    together = np.stack(pixels)
    encoded = captioner.encode(together)
    captions = captioner.caption_pixels(together, CaptionOptions(attention=False), encoded)
    return [
        Said(one.text, one.log_prob, certainty)
        for one, certainty in zip(captions, encoded.certainty, strict=True)
    ]


def _score(examples: Sequence[Example], captions: Mapping[str, str]) -> Scores | NamingScores:
    if not any(example.image.captions for example in examples):
        return score_naming(captions, {example.key: example.image.words for example in examples})
    objects = {example.key: example.image.objects for example in examples}
    return evaluate_captions(
        captions,
        {example.key: example.image.captions for example in examples},
        objects=objects if any(objects.values()) else None,
    )
