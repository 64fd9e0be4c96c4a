"""Checkpoints: a configuration plus state, written whole or not at all, never unpickled.

`last.pt` has everything that resuming needs. `best.pt` has the weights of the best epoch, rounded to half
precision as in a bundle, so that the validated weights are the shipped ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.errors import DataError, OutputError, reason_of
from captioner.files.destination import replacing
from captioner.model.bundle import CHECKPOINTS
from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import CaptionModel
from captioner.nn.weights import current_name, read_tensors
from captioner.training.config.train_options import TrainOptions

FORMAT = 1
_WEIGHTS = ("model", "ema", "soup")
"""Entries with weights by name."""


def save(path: Path, contents: Mapping[str, Any]) -> None:
    """Write beside `path`, flush to the disk, rename: a kill at any moment leaves the old or the new file.

    Raises `OutputError` where it cannot be written, and then leaves the old one too.
    """
    try:
        with replacing(path) as file:
            torch.save({"format": FORMAT, **contents}, file)
    except RuntimeError as error:
        # If a write fails, PyTorch reports a fault of its own file format.
        if not isinstance(error.__context__, OSError):
            raise
        raise OutputError(f"cannot write {path}: {reason_of(error.__context__)}") from None


def halved(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights in half precision, as in a bundle. Integers, such as ids of words, stay exact."""
    return {name: value.half() if value.is_floating_point() else value for name, value in values.items()}


def load(path: Path, device: str | torch.device = "cpu") -> dict[str, Any]:
    """The contents of a checkpoint. Raises `DataError` for anything else, and never runs code from it."""
    if found := next((path / name for name in CHECKPOINTS if (path / name).is_file()), None):
        raise DataError(f"{path} is the folder of a run; its checkpoint is {found}")
    contents = read_tensors(path, device)
    if contents.get("format") != FORMAT:
        raise DataError(f"{path} is not a captioner checkpoint of format {FORMAT}")
    return {**contents, **{name: _renamed(contents[name]) for name in _WEIGHTS if name in contents}}


def _renamed(values: Any) -> Any:
    """Tables of weights, at any depth, with the names that weights have today."""
    if not isinstance(values, dict):
        return values
    return {current_name(name): _renamed(value) for name, value in values.items()}


def load_model(path: Path) -> tuple[CaptionModel, Vocabulary, TrainOptions, dict[str, Any]]:
    """The model of a checkpoint, ready for inference, and the checkpoint's other contents.
    Raises `DataError` for a file that is no checkpoint, or contradicts itself."""
    contents = load(path)
    try:
        options = TrainOptions.from_dict(contents["options"])
        vocabulary = Vocabulary(contents["vocabulary"])
        model = CaptionModel(options.model, len(vocabulary))
        # The average covers what is trained; statistics of batch normalisation come with the model.
        average = contents.get("ema", {}) if options.ema_decay else {}
        state = {**contents["model"], **average}
        model.load_state_dict({name: value.float() for name, value in state.items()})
    except (KeyError, RuntimeError, ValueError, AttributeError, TypeError) as error:
        # The second line of PyTorch's message names the weight; the rest lists all others.
        reason = " ".join(line.strip() for line in str(error).splitlines()[:2])
        raise DataError(f"cannot load the checkpoint {path}: {reason[:200]}") from None
    return model.eval(), vocabulary, options, contents
