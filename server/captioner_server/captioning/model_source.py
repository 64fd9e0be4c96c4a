"""The models to serve, with their names and bundles: `--model NAME=BUNDLE`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from captioner.configuration import below
from captioner.errors import OptionsError
from captioner.model.installed import installed_models, model_folder
from captioner.protocol import PixelModel

DEFAULT = "default"
"""The embedded model, and its name."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model to serve under a name; every call of `load` reads it again."""

    name: str
    load: Callable[[], PixelModel]
    folder: Path | None = None
    """Its bundle; None if its files do not change."""


def parse_models(given: Sequence[str]) -> dict[str, str]:
    """BUNDLE by name; by default the embedded model.

    Each text is NAME=BUNDLE, or BUNDLE, named like its folder. Raises `OptionsError` for a name that is
    invalid or used twice."""
    found: dict[str, str] = {}
    for text in given or (DEFAULT,):
        name, bundle = _split(text)
        if not _NAME.fullmatch(name):
            raise OptionsError(f"model: {name!r} is not a name; write NAME=BUNDLE", "model")
        if name in found:
            raise OptionsError(f"model: two models are called {name}; write NAME=BUNDLE", "model")
        found[name] = bundle
    return found


def find_models(given: Mapping[str, str]) -> dict[str, Path | None]:
    """The folders of what `parse_models` gave: each BUNDLE is a folder or the name of an installed model.
    None for the embedded one. Raises `BundleError` for what is neither."""
    installed = installed_models()
    return {
        name: None if bundle == DEFAULT else model_folder(bundle, installed) for name, bundle in given.items()
    }


def relative_to(folder: Path, text: str) -> str:
    """The same model, its path relative to a folder instead of the working directory."""
    name, bundle = _split(text)
    installed = installed_models()
    if bundle in installed:
        return text
    path = str(below(folder, bundle))  # without the ./ of a folder that is called as an installed model
    return f"{name}={f'./{path}' if path in installed else path}"


def _split(text: str) -> tuple[str, str]:
    name, equals, bundle = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        return Path(text).name or Path(text).resolve().name, text
    return name, bundle
