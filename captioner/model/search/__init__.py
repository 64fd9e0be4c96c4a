"""Search for captions over a step function: greedy and beam search, words that captions must contain."""

from captioner.model.search.beam import Stepper, search, search_each, stream

__all__ = ["Stepper", "search", "search_each", "stream"]
