"""Builds dataclasses from the plain tables of a TOML file or a checkpoint.

No library does this in less code: msgspec accepts unknown fields of dataclasses, and cattrs converts "3" to 3
and needs hooks for each message and for numbers that stand for tables (the weights of objectives).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from captioner.configuration import MOST_DEEP, parse_toml
from captioner.errors import DataError, clip, did_you_mean

T = TypeVar("T")
_KINDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


class UnknownOptionError(DataError):
    """An option that its table does not have."""

    def __init__(self, path: str, name: str, known: Iterable[str]) -> None:
        self.path, self.name = path, name
        super().__init__(f"{path}: unknown option{did_you_mean(name, known)}")


def build(cls: type[T], values: Any, path: str = "") -> T:
    """A dataclass, its parts included, from plain tables; `path` locates them in error messages.

    A field with `metadata={"read": function}` is read by `function(value, path)`. Raises `DataError` for
    unknown and missing options, and for values of another type.
    """
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    built: dict[str, Any] = {}
    for name, value in table(values, path or "configuration").items():
        inside = f"{path}.{name}" if path else name
        if name not in fields:
            raise UnknownOptionError(inside, name, fields)
        read = fields[name].metadata.get("read")
        built[name] = read(value, inside) if read else _value(hints[name], value, inside)
    missing = [
        name
        for name, field in fields.items()
        if field.default is field.default_factory is dataclasses.MISSING and name not in built
    ]
    try:
        if missing:
            raise DataError(f"missing {', '.join(missing)}")
        return cls(**built)
    except DataError as error:
        raise DataError(f"{path}: {error}" if path else str(error)) from None


def _value(hint: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return build(hint, value, path)  # type: ignore[arg-type]
    if get_origin(hint) is tuple:
        if isinstance(value, Mapping):
            raise DataError(f"{path}: there may be several; write [[{path}]]")
        if not isinstance(value, (list, tuple)):
            raise DataError(f"{path}: expected a list, got {value!r}")
        return tuple(_value(get_args(hint)[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if hint is float and type(value) is int:
        with suppress(OverflowError):
            return float(value)
    if type(value) is not hint:
        raise DataError(f"{path}: expected {_KINDS[hint]}, got {value!r}")
    return value


def table(values: Any, path: str) -> Mapping[str, Any]:
    """`values` itself. Raises `DataError` if it is no table."""
    if not isinstance(values, Mapping):
        raise DataError(f"{path}: expected a table, got {values!r}")
    return values


def change(values: dict[str, Any], name: str, text: str) -> None:
    """Set one value by its dotted name ("stages.0.epochs"), written as in TOML; a bare word is a string.

    Raises `DataError` if there is no such place.
    """
    try:
        value = parse_toml(f"value = {text}")["value"]
    except ValueError:
        value = text
    *path, last = name.split(".")
    if len(path) > MOST_DEEP:
        raise DataError(f"there is no option {clip(name)}")
    place: Any = values
    try:
        for part in path:
            place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
        place[int(last) if isinstance(place, list) else last] = value
    except (AttributeError, IndexError, ValueError, TypeError):
        raise DataError(f"there is no option {name}") from None
