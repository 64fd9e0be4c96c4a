"""How the captions of a batch are worded, filtered and corrected before they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from captioner.cli.commands.batch.outputs import OutputRequest

if TYPE_CHECKING:
    from captioner.folder.corrections import Corrections
    from captioner.model.calibration import Calibration


def make_transform(
    request: OutputRequest,
    calibration: Calibration | None,
    corrections: Corrections | None = None,
    *,
    is_recorded: bool = False,
) -> Callable[[Any], Any]:
    """The function that turns a record into the one to write. Records of an earlier run have their
    confidence and need no calibration."""
    from captioner.folder.confidence import ConfidenceFilter
    from captioner.folder.outputs.options import unchanged
    from captioner.folder.text import TextOptions

    reword = unchanged if request.text == TextOptions() else request.text.transform
    believe = unchanged
    if request.min_confidence is not None:
        make = ConfidenceFilter if is_recorded else ConfidenceFilter.of
        believe = make(calibration, request.min_confidence).transform
    if corrections is not None:  # they are neither filtered nor reworded
        return lambda record: corrections.decide(record, reword) or reword(believe(record))
    if believe is unchanged:
        return reword
    return lambda record: reword(believe(record))
