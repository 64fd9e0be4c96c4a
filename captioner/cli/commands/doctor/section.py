"""A part of the report, which is there however broken what it describes is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from captioner.errors import CaptionerError


class Problem(str):
    """What keeps captions from being made or served."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Facts by name, some of them problems."""

    name: str
    facts: Mapping[str, str]

    @property
    def problems(self) -> list[str]:
        return [fact for fact in self.facts.values() if isinstance(fact, Problem)]


def attempt(name: str, describe: Callable[[], Mapping[str, str]]) -> Section:
    """What `describe` returns. An error, whatever it is, is a problem."""
    try:
        facts = describe()
    except CaptionerError as error:
        facts = {"problem": Problem(error)}
    except Exception as error:  # a damaged package raises anything
        first = str(error).strip().partition("\n")[0]
        facts = {"problem": Problem(f"{type(error).__name__}: {first}" if first else type(error).__name__)}
    return Section(name, {what: type(fact)(_without_home(fact)) for what, fact in facts.items()})


def _without_home(text: str) -> str:
    """The home folder, and with it the user's name, is nobody's business."""
    try:
        home = str(Path.home())
    except RuntimeError:  # the system does not know it
        return text
    return text.replace(home, "~") if len(home) > 1 else text
