"""The settings of `captioner serve`: one list, from which flags, variables and file keys derive."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioner.errors import OptionsError
from captioner_server.configuration.process_options import ProcessOptions
from captioner_server.options import ServerOptions

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a path"}
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, independent of its source."""

    name: str
    kind: type
    """int, float, bool, str or Path; of each item if it takes `many`."""
    many: bool
    default: Any
    help: str
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        return f"CAPTIONER_{self.name.upper()}"

    def from_text(self, text: str, where: str) -> Any:
        """The value of a variable; commas separate the items of a setting with many. `where` names the source
        in errors. Raises `OptionsError`."""
        if self.many:
            return tuple(self._item(item.strip(), where) for item in text.split(",") if item.strip())
        return self._item(text, where)

    def from_toml(self, value: Any, where: str) -> Any:
        """The checked value of a key. Raises `OptionsError`."""
        if self.many:
            items = value if isinstance(value, list) else [value]
            return tuple(self._checked(item, where) for item in items)
        return self._checked(value, where)

    def _item(self, text: str, where: str) -> Any:
        try:
            value = _BOOLEANS[text.lower()] if self.kind is bool else self.kind(text)
        except (KeyError, ValueError):
            raise self._wrong(where, text) from None
        return self._checked(value, where)

    def _checked(self, value: Any, where: str) -> Any:
        if self.kind is float and type(value) is int:
            with suppress(OverflowError):
                value = float(value)
        if self.kind is Path and isinstance(value, str):
            value = Path(value)
        if not isinstance(value, self.kind) or (isinstance(value, bool) and self.kind is not bool):
            raise self._wrong(where, value)
        if self.choices and value not in self.choices:
            raise OptionsError(f"{where}: must be one of {', '.join(self.choices)}, got {value!r}", self.name)
        return value

    def _wrong(self, where: str, value: Any) -> OptionsError:
        return OptionsError(f"{where}: must be {_KINDS[self.kind]}, got {value!r}", self.name)


def settings_of(options: type) -> tuple[Setting, ...]:
    """The settings for the fields of a dataclass."""
    hints = typing.get_type_hints(options)
    return tuple(_setting(field, hints[field.name]) for field in dataclasses.fields(options))


def _setting(field: dataclasses.Field[Any], hint: Any) -> Setting:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    choices = arguments if origin is typing.Literal else ()
    # The type of X | None, and of tuple[X, ...], is X.
    types = [kind for kind in arguments if isinstance(kind, type) and kind is not type(None)]
    kind = str if choices else (types or [hint])[0]
    return Setting(field.name, kind, origin is tuple, field.default, field.metadata["help"], choices)


GROUPS: dict[str, Sequence[Setting]] = {
    "model": settings_of(ProcessOptions),
    "server": settings_of(ServerOptions),
}
SETTINGS = {setting.name: setting for group in GROUPS.values() for setting in group}
