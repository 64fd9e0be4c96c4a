"""One model from several: the mean of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from captioner.errors import DataError
from captioner.training import checkpoint


@torch.no_grad()
def average_checkpoints(paths: Sequence[Path], out: Path) -> None:
    """Write the mean of the weights of `paths` as the checkpoint `out`; a path given twice counts twice.

    Runs that start from the same weights end in one basin of the loss: their mean is better than each of
    them, at no extra cost (Wortsman et al. 2022, "Model soups", arXiv:2203.05482). The rest of `out`,
    such as its options and the ids of words, comes from the first. Raises `DataError` for models with
    different shapes or vocabularies.
    """
    total: dict[str, torch.Tensor] = {}
    first, vocabulary, options, contents = checkpoint.load_model(paths[0])
    for path in paths:
        model, words, *_ = checkpoint.load_model(path)
        if model.options != first.options or words.words != vocabulary.words:
            raise DataError(f"{path} cannot be averaged with {paths[0]}: its architecture or words differ")
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                total[name] = total.get(name, 0) + value / len(paths)
            else:
                total.setdefault(name, value)
    checkpoint.save(
        out,
        {
            "options": options.to_dict(),
            "vocabulary": list(vocabulary.words),
            "confidence": contents.get("confidence"),
            "model": checkpoint.halved(total),
            "history": contents.get("history", []),
        },
    )
