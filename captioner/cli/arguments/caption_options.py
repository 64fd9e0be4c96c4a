"""The flags of caption options, made from their specifications."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Collection
from typing import Any

from captioner.errors import OptionsError
from captioner.options import OPTION_SPECS, CaptionOptions, OptionSpec

_PAGE_ALTERNATIVES = 2
"""Alternatives shown on a page unless --alternatives is given."""


def add_search_arguments(
    parser: argparse.ArgumentParser,
    defaults: str = "those of the model",
    names: Collection[str] = tuple(OPTION_SPECS),
) -> None:
    """Add flags for the options with these names, for `caption_options` to read."""
    search = parser.add_argument_group(f"search (defaults: {defaults})")
    for name, spec in OPTION_SPECS.items():
        if spec.flag and name in names:
            search.add_argument(
                spec.flag,
                dest=name,
                action="extend" if spec.kind is str else "store",
                type=_parser(spec),
                metavar=spec.metavar,
                help=spec.help,
            )


def caption_options(args: argparse.Namespace, **chosen: Any) -> CaptionOptions:
    """The caption options that the flags specify, and those that the command has `chosen`. Raises
    `OptionsError` that names the flag."""
    names = [name for name, spec in OPTION_SPECS.items() if spec.flag]
    given = {name: value for name in names if (value := getattr(args, name, None)) is not None}
    try:
        return CaptionOptions(**{**given, **chosen})
    except OptionsError as error:
        raise OptionsError(f"{OPTION_SPECS[error.field].flag}: {error}", error.field) from error


def _parser(spec: OptionSpec) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return spec.parse(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected {_EXPECTED[spec.kind]}, got {text!r}") from None

    return parse


_EXPECTED = {
    int: "a whole number",
    float: "a number",
    str: "one or more words",
    tuple: "ROWSxCOLUMNS, such as 14x14",
}


def with_alternatives(options: CaptionOptions) -> CaptionOptions:
    """The options, with some alternatives for a page to show."""
    return dataclasses.replace(options, alternatives=options.alternatives or _PAGE_ALTERNATIVES)
