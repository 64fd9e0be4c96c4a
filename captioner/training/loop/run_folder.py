"""What a run writes into its folder, and what it finds there when it is started again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from captioner.errors import DataError, clip
from captioner.files.destination import replacing
from captioner.readable_json import dump_json
from captioner.training.config.train_options import TrainOptions
from captioner.training.data.examples import Example
from captioner.training.loop.report import plot_curves
from captioner.training.weights import checkpoint


class RunFolder:
    """`last.pt` (to resume), `best.pt` (to export), `log.jsonl` (a line for each epoch and mean) and
    `curves.png`."""

    def __init__(self, path: Path) -> None:
        """Makes the folder. Raises `OSError`."""
        self.path, self.best, self.state = path, path / "best.pt", path / "last.pt"
        path.mkdir(parents=True, exist_ok=True)

    def write_history(self, history: Sequence[dict[str, Any]]) -> None:
        with replacing(self.path / "log.jsonl") as log:
            log.write("".join(dump_json(record) + "\n" for record in history).encode())
        plot_curves(history, self.path / "curves.png")

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Read from a state. Raises `DataError` where something is missing or is not as it was saved."""
        try:
            yield
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            reason = clip(str(error).partition("\n")[0], 200)
            raise DataError(f"{self.state} cannot be resumed from: {reason}") from error

    def last(
        self,
        options: TrainOptions,
        words: Sequence[str],
        given: Sequence[Sequence[Example]],
        device: torch.device,
    ) -> dict[str, Any] | None:
        """The state of a run with these options, words and photos, `given` in splits; None in a new folder.

        Raises `DataError` for the state of another run, as far as is known before photos are opened;
        `check_data` tells the rest.
        """
        if not self.state.exists():
            return None
        saved = checkpoint.load(self.state, device)
        if "position" not in saved:
            raise DataError(f"{self.state} is not the state of a run; it cannot be resumed from")
        if "objectives" not in saved:
            raise DataError(f"{self.state} was saved by an earlier version; only that version can resume it")
        before = TrainOptions.from_dict(saved["options"])
        if before != options:
            changed = "; ".join(_changes(before.to_dict(), options.to_dict()))
            raise DataError(f"{self.path} holds a run with other options ({clip(changed)}): {self._instead}")
        if saved["vocabulary"] != list(words):
            raise self._other_data()
        if "damaged" in saved:  # not in states of earlier versions
            damaged = set(saved["damaged"])
            self.check_data(
                saved, digest_of(*([e for e in some if e.digest not in damaged] for some in given))
            )
        return saved

    def check_data(self, saved: Mapping[str, Any], data: str) -> None:
        """Raise `DataError` if a state is of a run on data with another `digest_of` what could be used."""
        if saved.get("data", data) != data:  # states of earlier versions do not say it
            raise self._other_data()

    def _other_data(self) -> DataError:
        return DataError(f"{self.path} holds a run on other photos or captions: {self._instead}")

    @property
    def _instead(self) -> str:
        # A run without validation has no best.pt, and a start is relative to the data, not to where we are.
        weights = (self.best if self.best.exists() else self.state).absolute()
        return f'choose another folder; start = "{weights}" goes on from these weights there'


def _changes(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """The options that differ, named as for `--set`."""
    pairs: Mapping[Any, tuple[Any, Any]] = {}
    if isinstance(before, dict) and isinstance(now, dict):
        pairs = {name: (before.get(name), now.get(name)) for name in {**before, **now}}
    elif isinstance(before, list | tuple) and isinstance(now, list | tuple) and len(before) == len(now):
        pairs = dict(enumerate(zip(before, now, strict=True)))
    elif before != now:
        yield f"{path} was {before!r}, now {now!r}"
    for name, pair in pairs.items():
        yield from _changes(*pair, f"{path}.{name}" if path else str(name))


def digest_of(*splits: Sequence[Example]) -> str:
    """Names the photos, with what is said of them."""
    digest = hashlib.sha256()
    for examples in splits:
        for one in examples:
            digest.update(repr((one.key, one.digest, one.image.captions, one.image.words)).encode())
        digest.update(b"\n")
    return digest.hexdigest()
