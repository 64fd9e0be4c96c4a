"""The models of this machine by name: the embedded one, those of packages, and those that were taught.

A package offers a model by an entry point of the group `captioner.models`: its name is the model's, its value
PACKAGE:FOLDER, where the bundle is in the package. No code of such a package runs.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from captioner.errors import BundleError, OutputError
from captioner.files import replacing
from captioner.model.bundle_files import DEFAULT, DEFAULT_NAME, MANIFEST

GROUP = "captioner.models"


def taught_folder() -> Path:
    """Where `captioner teach` keeps models: a folder of the user, or `$CAPTIONER_HOME`/models."""
    return _home() / "models"


def installed_models() -> dict[str, Path]:
    """The folder of each model by its name, the embedded one first."""
    found = {DEFAULT_NAME: DEFAULT}
    for entry in importlib.metadata.entry_points(group=GROUP):
        spec = importlib.util.find_spec(entry.module)
        for place in (spec and spec.submodule_search_locations) or ():
            found.setdefault(entry.name, Path(place) / entry.attr)
    taught = taught_folder()
    if taught.is_dir():
        for folder in sorted(taught.iterdir()):
            if (folder / MANIFEST).is_file():
                found.setdefault(folder.name, folder)
    return found


def model_folder(name: str, models: Mapping[str, Path] | None = None) -> Path:
    """The folder of the bundle that `name` means: an installed model, or else a path."""
    models = installed_models() if models is None else models
    return models.get(name, Path(name))


def chosen() -> Path | None:
    """The folder of the model that the user has chosen with `choose`; None for the embedded one.

    Raises `BundleError` if that is not there any more."""
    try:
        name = _choice().read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"cannot read {_choice()}: {error}") from None
    folder = model_folder(name)
    if not (folder / MANIFEST).is_file():
        raise BundleError(
            f"the model {name}, chosen with captioner model use, is gone; choose another, such as default"
        )
    return folder


def choose(name: str) -> Path:
    """Use the model `name`, an installed one or a folder, wherever no other is given. Returns its folder.

    Raises `BundleError` if there is none, and `OutputError` if the choice cannot be kept."""
    models = installed_models()
    folder = model_folder(name, models)
    if not (folder / MANIFEST).is_file():
        raise BundleError(f"there is no model {name}; installed are {', '.join(models)}")
    try:
        if name == DEFAULT_NAME:
            _choice().unlink(missing_ok=True)
        else:
            _choice().parent.mkdir(parents=True, exist_ok=True)
            with replacing(_choice()) as file:
                file.write((name if name in models else str(folder.resolve())).encode())
    except OSError as error:
        raise OutputError(f"cannot write {_choice()}: {error.strerror or error}") from None
    return folder


def _choice() -> Path:
    """The file that names the chosen model."""
    return _home() / "model"


def _home() -> Path:
    """The user's folder for captioner, as the system has it."""
    if given := os.environ.get("CAPTIONER_HOME"):
        return Path(given)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "captioner"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "captioner"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "captioner"
