"""English function words, which name nothing in a photo.

They are drawn smaller, are no keywords, and their maps say little.
"""

from __future__ import annotations

FUNCTION_WORDS = frozenset(
    """a an the this that these those some any each every another other both all no its it his him he her
    hers she they them their my your our who which what there here and or but nor while as because
    if so than with without of from to at for in into inside on onto off over under above below by
    near next beside besides between among behind before after around across along against through
    throughout toward towards up down out outside upon within about during beneath underneath is are
    was were be been being am has have having had do does doing did can could will would may might
    not very too also just only such""".split()  # noqa: SIM905
)
"""Function words: determiners, pronouns, conjunctions, prepositions, auxiliaries."""


def is_function_word(word: str) -> bool:
    """Whether it is one, in capitals or not."""
    return word.lower() in FUNCTION_WORDS
