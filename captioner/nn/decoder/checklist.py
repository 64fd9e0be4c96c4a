"""Words that the whole image calls for, ticked off as they are said.

The likeliest caption leaves out what is particular of a photo: to name it costs probability. Fang et al. 2015
(arXiv:1411.4952) detect words first, and their language model prefers those that it has not said yet; Kiddon
et al. 2016 (doi:10.18653/v1/D16-1032) have a neural one tick off such a list. Here a detected word gains

    weight * max(0, log p(word | image) + MARGIN)

in the logits of every step until it is said. That changes what is searched for, not what likelihood teaches:
taught with these gains, a model would learn to undo them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from captioner.vocabulary import SPECIAL

MARGIN = 6.0
"""In nats: a word gains nothing that is less than exp(-6), one in 400, of what is detected."""


def write(detected: Tensor, weight: float) -> Tensor:
    """The gains before the first word, float32 (batch, 1, vocabulary), from logits (batch, vocabulary) of the
    words that the image calls for. No gradient goes back: rewards should not teach what to detect."""
    log_probs = torch.log_softmax(detected.detach().float(), dim=-1)[:, len(SPECIAL) :]
    return F.pad(weight * F.relu(log_probs + MARGIN), (len(SPECIAL), 0)).unsqueeze(1)


def tick(gains: Tensor, tokens: Tensor) -> Tensor:
    """The gains (batch, beams, vocabulary) after the words int64 (batch, beams) were said."""
    words = torch.arange(gains.shape[-1], device=gains.device)
    return gains.masked_fill(words == tokens.unsqueeze(-1), 0.0)


def tick_all(gains: Tensor, tokens: Tensor) -> Tensor:
    """The gains at every step of known captions, int64 (batch, captions, length) from the start token, that
    begin with `gains` (batch, 1, vocabulary): (batch, captions, length, vocabulary)."""
    said = F.one_hot(tokens, gains.shape[-1]).cumsum(dim=2) > 0
    return gains.unsqueeze(1).masked_fill(said, 0.0)
