"""Scores of captions against references that people wrote, each with its paper, in Python and numpy.

`evaluate_captions` gives them all; the modules give them one by one.
"""

from captioner.metrics.evaluation import Comparison, Difference, Scores, compare_captions, evaluate_captions
from captioner.metrics.meteor import Meteor
from captioner.metrics.tokenizer import tokenize

__all__ = [
    "Comparison",
    "Difference",
    "Meteor",
    "Scores",
    "compare_captions",
    "evaluate_captions",
    "tokenize",
]
