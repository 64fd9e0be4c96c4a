"""The models of this machine by name: the embedded one, those of packages, and those that were taught.

A package offers a model by an entry point of the group `captioner.models`: its name is the model's, its value
PACKAGE:FOLDER, where the bundle is in the package. No code of such a package runs.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path

from captioner.errors import BundleError, OutputError, clip, did_you_mean, reason_of
from captioner.files.destination import replacing
from captioner.files.whole_folder import folder_aside
from captioner.model.bundle_files import DEFAULT, DEFAULT_NAME, MANIFEST

GROUP = "captioner.models"
_LOG = logging.getLogger(__name__)


def taught_folder() -> Path:
    """Where `captioner teach` keeps models: a folder of the user, or `$CAPTIONER_HOME`/models. Raises
    `OutputError` for a user without a home."""
    return _home() / "models"


def provided_models() -> dict[str, Path]:
    """The folders of the models that packages bring, by name, the embedded one first. Entries that are not as
    described above are left out."""
    found = {DEFAULT_NAME: DEFAULT}
    for entry in _entries():
        package, _, folder = entry.value.partition(":")
        top, *inside = package.strip().split(".")
        # Looking for a package in another would run the code of that.
        spec = importlib.util.find_spec(top) if top and folder else None
        for place in (spec and spec.submodule_search_locations) or ():
            found.setdefault(entry.name, Path(place, *inside, folder.strip()))
    return found


def installed_models() -> dict[str, Path]:
    """The folder of each model by its name: those that packages bring, and then those that were taught."""
    found = provided_models()
    with suppress(OutputError, OSError):  # no such folder, or one that this user may not read
        for folder in sorted(taught_folder().iterdir()):
            if os.path.isfile(folder / MANIFEST):  # noqa: PTH113 (False also where it may not be reached)
                found.setdefault(folder.name, folder)
    return found


def model_folder(name: str, models: Mapping[str, Path] | None = None) -> Path:
    """The folder of the bundle that `name` means: an installed model, or else a path, in which ~ is the home
    folder.

    Raises `BundleError` for what is neither."""
    models = installed_models() if models is None else models
    if name in models or is_path(name):
        return models.get(name) or Path(os.path.expanduser(name))  # noqa: PTH111 (as it is without a home)
    said = clip(name) or "''"
    raise BundleError(f"there is no model {said}; {instead_of(name, models)}")


def instead_of(name: str, models: Mapping[str, Path]) -> str:
    """Which models there are, and which of them a misspelt `name` may mean."""
    return f"installed are {', '.join(models)} (captioner model list){did_you_mean(name, models)}"


def is_path(name: str) -> bool:
    """Whether `name` can be meant as a path: it has parts, or is there."""
    return has_parts(name) or os.path.exists(name)  # noqa: PTH110 (names that are no paths are False)


def has_parts(name: str) -> bool:
    """Whether `name` can only be a path, whatever is there."""
    return Path(name).name != name


def used_model(name: str | None) -> Path | None:
    """The folder of the model that `name` means, or where it is None, that of the one that the user has
    chosen with `choose`; None for the embedded one.

    Raises `BundleError` if it is not there."""
    return chosen() if name is None else model_folder(name)


def chosen() -> Path | None:
    """The folder of the model that the user has chosen with `choose`; None for the embedded one.

    Raises `BundleError` if that is not there any more."""
    if (name := _chosen_name()) is None:
        return None
    folder = installed_models().get(name, Path(name))
    if not (folder / MANIFEST).is_file():
        said = clip(name) or "''"
        raise BundleError(
            f"the model {said}, chosen with captioner model use, is gone; choose another, such as default"
        )
    return folder


def choose(name: str) -> None:
    """Use the model `name`, an installed one or a folder, wherever no other is given.

    Raises `BundleError` if there is none, and `OutputError` if the choice cannot be kept."""
    models = installed_models()
    folder = model_folder(name, models)
    try:
        if name == DEFAULT_NAME:
            _choice().unlink(missing_ok=True)
        else:
            _choice().parent.mkdir(parents=True, exist_ok=True)
            with replacing(_choice()) as file:
                file.write(os.fsencode(name if name in models else folder.resolve()) + b"\n")
    except OSError as error:
        raise OutputError(f"cannot write {_choice()}: {reason_of(error)}") from None


def remove(name: str) -> bool:
    """Delete the model `name`, which was taught. Returns whether it was the chosen one, in whose place the
    embedded one is then used.

    Raises `BundleError` for any other model, and `OutputError` if it cannot be deleted."""
    folder = model_folder(name)
    if folder == DEFAULT:
        raise BundleError(f"{name} is the embedded model, which cannot be removed")
    if name in provided_models():
        raise BundleError(f"{name} is the model of a package: pip uninstall {_package(name)}")
    if folder.parent != taught_folder():
        kind = "folder" if folder.is_dir() else "file"
        raise BundleError(f"{name} is a {kind}, not the name of a model that was taught: delete it yourself")
    was_chosen = (_chosen_name() or DEFAULT_NAME) in (name, str(folder.resolve()))
    if was_chosen:
        choose(DEFAULT_NAME)
    try:
        with folder_aside(folder.parent) as aside:  # a kill leaves no half of it in the list of models
            folder.rename(aside / folder.name)
    except OSError as error:
        if was_chosen:
            choose(name)  # as before
        raise OutputError(f"cannot delete {folder}: {reason_of(error)}") from None
    return was_chosen


def _entries() -> Iterator[EntryPoint]:
    """What packages offer. One whose list cannot be read offers nothing, which is logged once."""
    try:
        yield from importlib.metadata.entry_points(group=GROUP)
        return
    except Exception:  # Python parses what any package has written
        pass
    for package in importlib.metadata.distributions():
        try:
            yield from package.entry_points.select(group=GROUP)
        except Exception as error:
            reason = "not in UTF-8" if isinstance(error, UnicodeDecodeError) else "malformed"
            _warn(_name_of(package), reason)


def _name_of(package: importlib.metadata.Distribution) -> str:
    try:
        return package.name
    except Exception:  # nor can this be read
        return "without a name"


@cache
def _warn(package: str, reason: str) -> None:
    _LOG.warning("the package %s offers no models: its entry_points.txt is %s", package, reason)


def _package(name: str) -> str:
    """The package that brings a model."""
    first = next(entry for entry in _entries() if entry.name == name)
    return first.dist.name if first.dist else first.module


def _chosen_name() -> str | None:
    """The chosen model as `choose` noted it; None for the embedded one. Users of services, who chose none,
    may have no home, /dev/null, or that of another user, which they may not enter."""
    try:
        choice = _choice()
        if not os.path.exists(choice):  # noqa: PTH110 (False also where it may not be reached)
            return None
        return os.fsdecode(choice.read_bytes().rstrip(b"\0")).removesuffix("\n")
    except OutputError:
        return None
    except OSError as error:
        raise BundleError(f"cannot read {choice}: {reason_of(error)}") from None


def _choice() -> Path:
    """The file that names the chosen model. Raises `OutputError` for a user without a home."""
    return _home() / "model"


def _home() -> Path:
    """The user's folder for captioner, as the system has it. Raises `OutputError` for a user without a
    home."""
    try:
        if given := os.environ.get("CAPTIONER_HOME"):  # no shell may have seen a ~ in it
            return Path(given).expanduser()
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "captioner"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Application Support" / "captioner"
        data = Path(os.environ.get("XDG_DATA_HOME", ""))
        return (data if data.is_absolute() else Path.home() / ".local" / "share") / "captioner"
    except RuntimeError:
        raise OutputError("this user has no home: name a folder for models in CAPTIONER_HOME") from None
