"""The cost of repeating a word in a caption, based on how often people repeat it.

The model learns names of things from labels, and then repeats them ("a toilet on top of a white toilet").
People repeat "a" and "in", sometimes "dog" ("a brown dog plays with a white dog"), and hardly any other word.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.training.data.examples import Example

FREE = 0.1
"""Words that this share of the captions with them repeats cost nothing."""
_USUAL, _CAPTIONS = 0.005, 20
"""The share that is assumed of a word without captions, as if it had been seen in so many captions."""


def repetition_costs(examples: Sequence[Example], vocabulary: Vocabulary) -> Tensor:
    """Cost in nats of each word once it has been said, float (vocabulary,): log(`FREE` / s), at least 0.

    s is the share of the captions with the word that repeat it; the cost is 3 for a word that no caption has.
    Raises `DataError` if there are no captions.
    """
    having: Counter[int] = Counter()
    repeating: Counter[int] = Counter()
    for example in examples:
        for caption in example.image.captions:
            for word, times in Counter(vocabulary.encode(caption)).items():
                having[word] += 1
                repeating[word] += times > 1
    if not having:
        raise DataError("repetition_cost needs captions")
    costs = torch.zeros(len(vocabulary))
    for word in range(len(SPECIAL), len(vocabulary)):
        share = (repeating[word] + _CAPTIONS * _USUAL) / (having[word] + _CAPTIONS)
        costs[word] = max(0.0, math.log(FREE / share))
    return costs
