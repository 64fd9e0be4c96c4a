"""Colours of captions, and things that have given their names to colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from captioner.words.english import COLORS

RARE_COLORS = frozenset(
    """aqua azure beige blond blonde burgundy crimson cyan fuchsia indigo khaki magenta maroon mauve navy
    ochre scarlet taupe teal turquoise""".split()  # noqa: SIM905
)
"""Colours beside `COLORS` that name nothing else in photos."""

TINTS = frozenset(
    """amber apricot bronze charcoal chocolate copper coral cream emerald ivory lavender lemon lilac lime mint
    mustard olive orange peach plum rose ruby salmon tangerine violet""".split()  # noqa: SIM905
)
"""Things whose names are colours, too: "an orange" is a thing, "an orange helmet" is not."""

ENDS = frozenset(
    """a an the and or but with on in at by of from for to into onto over under near next beside behind
    between is are was were that which while as sitting laying lying sits lays hanging cut sliced""".split()  # noqa: SIM905
)
"""Words that can follow "orange" as a fruit."""


def is_color(words: Sequence[str], place: int, ends_name: Callable[[str], bool] = ENDS.__contains__) -> bool:
    """Whether a word such as "orange" at `place` is the colour: "an orange shirt", "in orange", "orange and
    white". `ends_name` says of the next word that it does not go on with a name."""
    before = words[place - 1] if place else ""
    behind = list(words[place + 1 : place + 3])
    if before in ("in", "wearing", "dressed", "bright", "light", "dark") or before in COLORS:
        return True
    if before == "and" and place > 1 and words[place - 2] in COLORS:
        return True
    if behind[:1] == ["and"] and len(behind) == 2 and behind[1] in COLORS:
        return True
    return bool(behind) and not ends_name(behind[0])
