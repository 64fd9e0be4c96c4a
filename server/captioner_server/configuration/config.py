"""Merges the sources of settings: flags over `CAPTIONER_*` variables over a TOML file over defaults."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from captioner.configuration import below, read_toml
from captioner.errors import DataError, OptionsError, did_you_mean
from captioner_server.captioning.model_source import relative_to
from captioner_server.configuration.settings import GROUPS, SETTINGS

Options = TypeVar("Options")
_PREFIX = "CAPTIONER_"
_LINK = re.compile(r"(tcp|udp|sctp)://")
"""Kubernetes sets CAPTIONER_PORT=tcp://10.0.0.1:50051 in the pods beside a service called captioner."""


@dataclass(frozen=True, slots=True)
class Config:
    """The value and the source of every setting."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]

    def make(self, options: type[Options]) -> Options:
        """An instance of the dataclass `options`. Raises `OptionsError` for values out of range."""
        names = [field.name for field in dataclasses.fields(options)]  # type: ignore[arg-type]
        return options(**{name: self.values[name] for name in names})

    def to_toml(self) -> str:
        """The settings as a file for `--config`, each with its source; those without a value are comments."""
        blocks = []
        for group, settings in GROUPS.items():
            lines = [f"# {group}"]
            for setting in settings:
                value, source = self.values[setting.name], self.sources[setting.name]
                empty = value is None or value == ()
                lines.append(
                    f"# {setting.name} =" if empty else f"{setting.name} = {_toml(value)}  # {source}"
                )
            blocks.append("\n".join(lines))
        return "\n\n".join(blocks) + "\n"


def resolve(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None = None) -> Config:
    """Merge the sources. `flags` are those that were given, already checked by the parser.

    Raises `OptionsError` for a file that cannot be read, for a key that is not a setting, and for a value of
    the wrong type. Paths in the file are relative to the file."""
    values = {name: setting.default for name, setting in SETTINGS.items()}
    sources = dict.fromkeys(values, "default")
    given = {
        name: tuple(value) if SETTINGS[name].many else value
        for name, value in flags.items()
        if name in SETTINGS
    }
    layers = [
        (str(file), _from_file(file) if file else {}),
        ("environment", _from_environment(environment)),
        ("flag", given),
    ]
    for source, layer in layers:
        values |= layer
        sources |= dict.fromkeys(layer, source)
    return Config(values, sources)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Warnings about variables that look like misspelled settings. They are not errors: Kubernetes sets
    variables such as CAPTIONER_SERVICE_HOST for a service called captioner."""
    known = {setting.variable for setting in SETTINGS.values()}
    remarks = []
    for name in sorted(environment):
        if name.startswith(_PREFIX) and name not in known and (hint := did_you_mean(name, known, 0.9)):
            remarks.append(f"{name} is not a setting{hint}")
    return remarks


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Variables that are empty count as unset, as Docker Compose sets them; but a file of tokens or
    certificates is named for safety, and must not be missed."""
    for setting in SETTINGS.values():
        if setting.kind is Path and environment.get(setting.variable) == "":
            raise OptionsError(f"{setting.variable} is set and empty: name a file, or unset it", setting.name)
    return {
        name: _relative_to(Path(), setting.from_text(text, setting.variable))  # no shell has seen a ~ in it
        for name, setting in SETTINGS.items()
        if (text := environment.get(setting.variable, "")) and not _LINK.match(text)
    }


def _from_file(file: Path) -> dict[str, Any]:
    try:
        keys = read_toml(file)
    except DataError as error:
        raise OptionsError(str(error), "config") from error
    values: dict[str, Any] = {}
    for key, value in keys.items():
        if key not in SETTINGS:
            hint = did_you_mean(key.replace("-", "_"), SETTINGS)
            raise OptionsError(f"{file}: {key} is not a setting{hint}", "config")
        values[key] = _relative_to(file.parent, SETTINGS[key].from_toml(value, f"{file}: {key}"))
    return values


def _relative_to(folder: Path, value: Any) -> Any:
    if isinstance(value, tuple):  # models
        return tuple(relative_to(folder, item) for item in value)
    return below(folder, value) if isinstance(value, Path) else value


def _toml(value: Any) -> str:
    """A scalar or a list of models; TOML writes these as JSON does. Paths are absolute: those in a file would
    be relative to its folder."""
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(relative_to(Path.cwd(), item)) for item in value)}]"
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return json.dumps(str(value.absolute()) if isinstance(value, Path) else value, ensure_ascii=False)
