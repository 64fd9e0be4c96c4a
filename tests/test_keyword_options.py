"""Keywords of photos as options."""

from __future__ import annotations

from captioner.captioner import Captioner
from captioner.keyword_options import MAX_UNKNOWN, KeywordOptions


def test_what_is_kept_of_unknown_keywords_is_bounded(tiny_captioner: Captioner) -> None:
    options = KeywordOptions(tiny_captioner)
    for number in range(2 * MAX_UNKNOWN):
        options.of(["Golden Gate", f"rare {number}", "x" * 10_000])
    assert len(options.unknown) <= MAX_UNKNOWN
    assert max(map(len, options.unknown)) < 300
    [first, second] = options.unknown.most_common(2)
    assert first == ("golden gate", 2 * MAX_UNKNOWN) and second[1] == 2 * MAX_UNKNOWN
