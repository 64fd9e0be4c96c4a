"""Installed packages that conflict with each other, by their records alone."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement


def conflicts(names: Iterable[str]) -> dict[tuple[str, str], str]:
    """What to do about each of these packages and each that it requires in another version than is there.

    Empty without `packaging`, which ONNX Runtime brings.
    """
    if find_spec("packaging") is None:
        return {}
    found = {}
    for name in names:
        for needed in _required(name):
            version, there = _version(name), _version(needed.name)
            if version and there and not needed.specifier.contains(there, prereleases=True):
                wanted = f"{needed.name}{needed.specifier}"
                found[name, needed.name] = (
                    f"{name} {version} requires {wanted}, but {there} is there: pip install '{wanted}', or a"
                    f" version of {name} that accepts {needed.name} {there}"
                )
    return found


def _required(name: str) -> Iterator[Requirement]:
    """What an installed package requires on this machine, without its extras."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        texts = importlib.metadata.requires(name) or ()
    except importlib.metadata.PackageNotFoundError:
        return
    for text in texts:
        try:
            needed = Requirement(text)
        except InvalidRequirement:
            continue
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield needed


def _version(name: str) -> str | None:
    """That is installed; None if there is none, or one that is no version."""
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(importlib.metadata.version(name)))
    except (importlib.metadata.PackageNotFoundError, KeyError, TypeError, InvalidVersion):
        return None
