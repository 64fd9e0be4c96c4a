"""Where a value is put while a schema is filled, and why none can be."""

from __future__ import annotations

from typing import NamedTuple

from captioner_server.http.dialects.answer.facts import Keyword
from captioner_server.http.dialects.answer.schema.field_names import Words, is_whole, words_of

_LONGEST_NAME = 100
"""Characters of a field's name in errors."""


class Unmet(Exception):
    """A field that cannot be filled; the text says which and why."""


class Place(NamedTuple):
    """A field, or an entry of a list, that gets a value."""

    path: str = ""
    """For errors; "" is the answer itself."""
    words: Words = ()
    """Those of its name, or of the list that it is an entry of."""
    keyword: Keyword | None = None
    """What the entry of a list that it is in is for."""
    is_entry: bool = False
    """Whether it is such an entry itself."""
    depth: int = 0

    @property
    def shown(self) -> str:
        return self.path or "it"

    def field(self, name: str) -> Place:
        """That of a field of an object here."""
        shown = name[:_LONGEST_NAME]
        words = words_of(name) if is_whole(self.words) else ("?",)
        path = f"{self.path}.{shown}" if self.path else shown
        return Place(path, words, self.keyword, depth=self.depth + 1)

    def entry(self, keyword: Keyword | None) -> Place:
        """That of an entry of a list here."""
        return Place(f"{self.path}[]", self.words, keyword, keyword is not None, self.depth + 1)

    def deeper(self) -> Place:
        return self._replace(depth=self.depth + 1)
