"""The searches that one model does for callers, within the limits of the server."""

from __future__ import annotations

import dataclasses

from captioner.errors import OptionsError
from captioner.options import CaptionOptions
from captioner.protocol import PixelModel
from captioner_server.options import ServerOptions

_LEAST_COST = 0.25  # the share of the encoder, which does not depend on the search


class SearchLimits:
    """The options of a model's searches: their defaults, their limits, and what they cost."""

    def __init__(self, model: PixelModel, options: ServerOptions) -> None:
        self.defaults = dataclasses.replace(
            model.defaults,
            beam_size=min(model.defaults.beam_size or 1, options.max_beam_size),
            max_words=min(model.defaults.max_words or 1, options.max_words),
        )
        """The default options of the model, reduced to the limits of the server."""
        self._model, self._options = model, options

    def resolve(self, options: CaptionOptions) -> CaptionOptions:
        """The options with `defaults` filled in. Raises `OptionsError` for values beyond the limits and for a
        head that the model does not have."""
        most = self._options.max_beam_size
        resolved = options.resolve(self.defaults, most)
        if resolved.alternatives >= most > 1 or resolved.hypotheses > 4 * most:
            field = "include" if resolved.include else "alternatives"
            raise OptionsError(f"{field} would take more hypotheses than this server allows", field)
        limits = {"beam_size": most, "max_words": self._options.max_words}
        for name, limit in limits.items():
            if getattr(resolved, name) > limit:
                raise OptionsError(f"this server allows a {name} of at most {limit}", name)
        resolved.check_head(self._model.heads)
        self._model.check_include(resolved.include)
        return resolved

    def cost(self, options: CaptionOptions) -> float:
        """Cost of a search with these resolved options, in units of the default search."""
        return max(_LEAST_COST, _hypotheses(options) / _hypotheses(self.defaults))


def _hypotheses(options: CaptionOptions) -> int:
    """Upper bound of the hypotheses that the searches for an image compute, over all steps."""
    beams = options.beam_size or 1
    if options.alternatives >= beams:
        beams += options.alternatives + 1
    return beams * 2 ** len(options.include) * (options.max_words or 1)
