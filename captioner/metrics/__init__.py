"""Scores of captions against human references, each after its paper, in Python and numpy.

`evaluate_captions` computes those that need only captions and references, `compare_captions` those of two
sets of captions. `naming` scores words against labels; `attention` holds tests of attention maps.
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
