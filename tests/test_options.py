"""The specifications of the caption options, from which every interface derives."""

from __future__ import annotations

import pytest

from captioner.options import BUNDLE_OPTIONS, FALLBACK, OPTION_SPECS, CaptionOptions, OptionSpec


def test_what_a_bundle_may_set_has_a_default_where_it_does_not() -> None:
    assert all(getattr(CaptionOptions(), name) is None for name in BUNDLE_OPTIONS)
    resolved = CaptionOptions(beam_size=5).resolve(CaptionOptions(max_words=7))
    assert (resolved.beam_size, resolved.max_words) == (5, 7)
    assert resolved.length_normalization == OPTION_SPECS["length_normalization"].default
    assert all(getattr(resolved, name) == getattr(resolved.resolve(FALLBACK), name) for name in OPTION_SPECS)
    with pytest.raises(ValueError, match="needs a default"):
        OptionSpec(kind=int, help="anything", in_bundle=True)
