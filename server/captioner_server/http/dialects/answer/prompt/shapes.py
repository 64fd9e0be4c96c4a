"""The shape of the JSON that a prompt asks for: an example, a schema, or the names of keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_MOST_SHAPES = 8
"""Beginnings of JSON in a prompt that are tried."""
_MOST_DEPTH = 16
_MOST_KEYS = 64
_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*)*(?:([{}\[\],:;])|"([^"\n]*)"|'([^'\n]*)'|`([^`\n]*)`|(\.\.\.|…)|([^\s{}\[\],:;"'`]+))"""
)
_COMMENTS_ABOVE = re.compile(r"[ \t\r]*+(?://[^\n]*+)?+((?:\n\s*+//[^\n]*+)++)")
_COMMENT_BESIDE = re.compile(r"[ \t]*+,?+[ \t]*+//([^\n]*+)")
_QUOTED = r"""(?:"[A-Za-z][\w -]{0,40}"|`[A-Za-z][\w -]{0,40}`|(?<!\w)'[A-Za-z][\w-]{0,40}'(?!\w))"""
_UNQUOTED = r"^[ \t]*+(?:[-*•]|\d{1,2}[.)])?+[ \t]*+(?:\*\*)?([a-z]\w{0,40}+)(?![^\n]*(?i:json))"
_LED = re.compile(
    rf"(?:({_QUOTED})|{_UNQUOTED})(?:\*\*)?\s*(?:\([^()\n]{{0,60}}\)\s*)?:(?=([^\n\"'`]*))", re.MULTILINE
)
"""A key, and behind its colon what it is for, as in a list of keys. A key without quotes begins a line and is
in lower case: "Note:" is none."""
_CALLED = re.compile(r"\b(?:keys?|fields?|propert(?:y|ies)|attributes?)\b", re.IGNORECASE)
_LISTED = re.compile(
    r"\b(?:keys|fields|properties|attributes)\b(?: are| called| named)?[ :]+"
    r"([A-Za-z]\w*(?:(?:, and |, | and | & )[A-Za-z]\w*){1,12})",
    re.IGNORECASE,
)


def shape_in(prompt: str) -> Any:
    """The largest JSON object or list in a prompt, which is an example of the answer or its schema; None if
    there is none. Objects may be written as people write them: {title: string, tags: string[]}."""
    best, longest, after = None, 2, 0
    for _ in range(_MOST_SHAPES):
        begin = re.compile(r"[{\[]").search(prompt, after)
        if begin is None:
            break
        found, after = _shape_at(prompt, begin.start())
        if found is not None and after - begin.start() > longest:
            best, longest = found, after - begin.start()
    return best


def keys_in(prompt: str) -> dict[str, str]:
    """The keys that a prompt names in words, as in "with the keys 'caption' and 'tags'", and what it says of
    each."""
    said = "".join(_around_shapes(prompt))
    led = {_unquoted(match[1] or match[2]): match[3] for match in _LED.finditer(said)}
    names = list(led)
    for sentence in re.split(r"[.;!?\n]", said):
        if _CALLED.search(sentence):
            names += re.findall(_QUOTED, sentence)
            for match in _LISTED.finditer(sentence):
                names += re.split(r"\W+(?:and )?", match[1])
    names = list(dict.fromkeys(map(_unquoted, names)))[:_MOST_KEYS]
    return {name: led.get(name, "") for name in names}


def _unquoted(name: str) -> str:
    return name.strip("\"'`")


def _around_shapes(prompt: str) -> Iterator[str]:
    after = 0
    while (begin := prompt.find("{", after)) >= 0:
        yield prompt[after:begin]
        after = _end_of(prompt, begin)
    yield prompt[after:]


def _shape_at(text: str, start: int) -> tuple[Any, int]:
    """What begins here, or None, and where it ends. Nothing within what cannot be read counts as a shape."""
    with suppress(ValueError, RecursionError):
        return json.JSONDecoder().raw_decode(text, start)
    if text.startswith("{{", start):  # braces of a template that were doubled, all of them
        end = _end_of(text, start)
        with suppress(ValueError, RecursionError):
            return json.loads(text[start:end].replace("{{", "{").replace("}}", "}")), end
    if text[start] == "{":
        with suppress(ValueError):
            loose = _Loose(text, start)
            return loose.value(), loose.place
    return None, _end_of(text, start)


def _end_of(text: str, start: int) -> int:
    """Where the bracket at `start` is closed; the end of the text if it is not."""
    depth = 0
    for bracket in re.compile(r"[{}\[\]]").finditer(text, start):
        depth += 1 if bracket[0] in "{[" else -1
        if depth == 0:
            return bracket.end()
    return len(text)


class _Loose:
    """Reads what people write for JSON: keys without quotes, types for values, dots for more of the same."""

    def __init__(self, text: str, start: int) -> None:
        self.place = start
        self._text = text

    def _next(self) -> tuple[str, str, bool]:
        """A bracket or mark, a word, and whether it is in quotes. Raises `ValueError`."""
        token = _TOKEN.match(self._text, self.place)
        if token is None:
            raise ValueError
        self.place = token.end()
        mark, double, single, tick, dots, bare = token.groups()
        quoted = next((one for one in (double, single, tick) if one is not None), None)
        mark = "," if mark == ";" else mark or ""
        return mark, quoted if quoted is not None else (dots or bare or ""), quoted is not None

    def value(self, depth: int = 0) -> Any:
        """Raises `ValueError`."""
        mark, word, quoted = self._next()
        if depth > _MOST_DEPTH or (mark and mark not in "{["):
            raise ValueError
        if mark == "{":
            return dict(self._fields(depth))
        if mark == "[":
            return list(self._items(depth))
        return word if quoted else self._type(word)

    def _fields(self, depth: int) -> Iterator[tuple[str, Any]]:
        while True:
            above = _COMMENTS_ABOVE.match(self._text, self.place)
            mark, name, quoted = self._next()
            if mark == "}":
                return
            if name in ("...", "…") and not quoted:
                mark = self._next()[0]
            elif mark or self._next()[0] != ":":
                raise ValueError
            else:
                value = self.value(depth + 1)
                beside = _COMMENT_BESIDE.match(self._text, self.place)
                if isinstance(value, str):  # which describes the field, as its comments do
                    value = " ".join((value, *(found[1] for found in (above, beside) if found)))
                yield name.rstrip("?"), value
                mark = self._rest()
            if mark == "}":
                return
            if mark != ",":
                raise ValueError

    def _items(self, depth: int) -> Iterator[Any]:
        while True:
            place = self.place
            mark, word, quoted = self._next()
            if mark == "]":
                return
            if word in ("...", "…") and not quoted:
                mark = self._next()[0]
            else:
                self.place = place
                yield self.value(depth + 1)
                mark = self._rest()
            if mark == "]":
                return
            if mark != ",":
                raise ValueError

    def _rest(self) -> str:
        """The mark after a value, behind more words of it: `"a" | "b"`."""
        while not (mark := self._next()[0]):
            pass
        return mark

    def _type(self, word: str) -> Any:
        """An example of a value that is described by a word: string[], <title>, number."""
        kind = word.strip("<>").lower()
        if self._text.startswith("[]", self.place):
            self.place += 2
            return [self._type(word)]
        if re.match(r"(?:array|list)\b", kind):
            return [""]
        if re.match(r"(?:number|float|int|integer|\d)", kind):
            return 0.0
        return {"true": True, "false": True, "boolean": True, "bool": True, "null": None}.get(kind, word)
