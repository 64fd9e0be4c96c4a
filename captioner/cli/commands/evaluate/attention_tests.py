"""`captioner evaluate --faithfulness` and `--boxes`: tests of attention maps, and their output."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.cli.table import print_table
from captioner.errors import OptionsError
from captioner.printable import counted

if TYPE_CHECKING:
    from captioner.metrics.attention.faithfulness import Probe, ProbeOptions
    from captioner.metrics.attention.measured import Measured
    from captioner.protocol import ImageCaptioner
    from captioner.references import CaptionedImage
    from captioner.results import Caption

BATCH = 64
"""Captions probed at a time."""
_FAITHFULNESS = {
    "fall_top": ("top cells", ".2f"),
    "fall_random": ("random cells", ".2f"),
    "fall_shuffled": ("another word's", ".2f"),
    "fall_uniform": ("all cells equal", ".2f"),
    "top_to_random": ("top / random", "ratio"),
    "top_to_shuffled": ("top / another's", "ratio"),
    "hidden": ("share hidden", ".2f"),
    "perplexity": ("cells of a map", ".0f"),
    "sentinel": ("on the sentinel", ".2f"),
}
_BETWEEN = {
    "divergence": ("divergence", ".2f"),
    "correlation": ("correlation", ".2f"),
}
_POINTING = {
    "pointing": ("top cell in a box", ".1%"),
    "pointing_by_chance": ("any cell in a box", ".1%"),
    "correctness": ("attention in the boxes", ".3f"),
    "correctness_of_uniform": ("of uniform maps", ".3f"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    maps = parser.add_argument_group("attention")
    maps.add_argument(
        "--faithfulness",
        action="store_true",
        help="hide the cells that each word attended to most, and measure the drop of its log-probability",
    )
    maps.add_argument(
        "--hidden-share",
        type=float,
        metavar="S",
        help="hide the cells that hold this share of a word's attention (default: 0.5)",
    )
    maps.add_argument(
        "--hidden-cells",
        type=float,
        metavar="S",
        help="at most this share of all cells (default: 0.25)",
    )
    maps.add_argument(
        "--boxes",
        type=Path,
        metavar="INSTANCES",
        help="COCO instances JSON: test whether maps fall into the boxes of the objects that words name",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTestRequest:
    """The tests that flags ask for."""

    hiding: ProbeOptions | None
    """How to hide cells for the test of faithfulness; None leaves it out."""
    boxes: Path | None

    @classmethod
    def read(cls, args: argparse.Namespace) -> AttentionTestRequest:
        """Raises `OptionsError` for flags that conflict or are out of range."""
        from captioner.metrics.attention.faithfulness import ProbeOptions

        if args.faithfulness and args.server is not None:
            raise OptionsError("--faithfulness tests a model here, not one on a --server")
        given = {"share": args.hidden_share, "most": args.hidden_cells}
        given = {name: value for name, value in given.items() if value is not None}
        if given and not args.faithfulness:
            raise OptionsError("--hidden-share and --hidden-cells go with --faithfulness")
        return cls(hiding=ProbeOptions(**given) if args.faithfulness else None, boxes=args.boxes)

    @property
    def need_maps(self) -> bool:
        return self.hiding is not None or self.boxes is not None


class AttentionTests:
    """Tests over a data set."""

    def __init__(self, request: AttentionTestRequest, images: Sequence[CaptionedImage]) -> None:
        """Raises `DataError` for unusable boxes."""
        from captioner.metrics.attention.pointing import read_boxes

        self._hiding = request.hiding
        self._boxes = read_boxes(request.boxes, images) if request.boxes else None
        self._probe: Probe | None = None
        self._captions: dict[str, Caption] = {}
        self._unprobed: list[Caption] = []

    def start(self, captioner: ImageCaptioner) -> None:
        """Raises `BundleError` for a model that does not support the tests."""
        from captioner.captioner import Captioner
        from captioner.metrics.attention.faithfulness import Probe, check_memory

        if self._hiding is not None:
            assert isinstance(captioner, Captioner)
            check_memory(captioner)
            self._captioner = captioner
            self._probe = Probe(captioner.bundle.vocabulary, self._hiding)

    def add(self, image: CaptionedImage, caption: Caption) -> None:
        """Add one captioned image; the caption still has its source."""
        if self._boxes is not None:
            self._captions[image.key] = caption.of(None)
        if self._probe is not None:
            self._unprobed.append(caption)
            if len(self._unprobed) == BATCH:
                self._probe_batch(self._probe)

    def _probe_batch(self, probe: Probe) -> None:
        import numpy as np

        captions, self._unprobed = self._unprobed, []
        pixels = np.stack([self._captioner.preprocess(caption.source) for caption in captions])
        said = [[word.token for word in caption.words] for caption in captions]
        probe.add(self._captioner.encode(pixels), said)

    def results(self) -> dict[str, Measured]:
        """Results by name, as in the JSON of `captioner evaluate`."""
        from captioner.metrics.attention.pointing import point

        found = {}
        if self._probe is not None:
            if self._unprobed:
                self._probe_batch(self._probe)
            found["faithfulness"] = self._probe.result()
        if self._boxes is not None:
            found["pointing"] = point(self._captions, self._boxes)
        return found


def print_results(results: Mapping[str, Measured]) -> None:
    """Print a table per test to stdout."""
    if "faithfulness" in results:
        found = results["faithfulness"]
        rows = [
            [label, *(_cell(found, group + name, form) for group in ("", "content_", "function_"))]
            for name, (label, form) in _FAITHFULNESS.items()
        ]
        between = [[label, _cell(found, name, form), "", ""] for name, (label, form) in _BETWEEN.items()]
        print_table(["fall of log p", "all words", "content", "function"], rows, between)
    if "pointing" in results:
        found = results["pointing"]
        rows = [[label, _cell(found, name, form)] for name, (label, form) in _POINTING.items()]
        print_table([f"{counted(found.words, 'word')} with boxes", "(95% interval)"], rows)


def _cell(found: Measured, name: str, form: str) -> str:
    if not math.isfinite(found.values[name]):
        return "-"
    value, low, high = (_format(number, form) for number in (found.values[name], *found.intervals[name]))
    return f"{value} ({low}–{high})"


def _format(number: float, form: str) -> str:
    if form == "ratio":
        form = ".0f" if number >= 10 else ".1f"
    return format(number, form)
