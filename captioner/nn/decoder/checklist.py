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

from captioner.model.vocabulary import SPECIAL
from captioner.nn.decoder.base import Step, Tensors

STATE = "checklist"
"""Where a decoder's state has the gains."""
MARGIN = 6.0
"""In nats: a word gains nothing that is less than exp(-6), one in 400, of what is detected."""


def write(detected: Tensor, weight: float) -> Tensor:
    """The gains before the first word, float32 (batch, 1, vocabulary), from logits (batch, vocabulary) of the
    words that the image calls for. No gradient goes back: rewards should not teach what to detect."""
    log_probs = torch.log_softmax(detected.detach().float(), dim=-1)[:, len(SPECIAL) :]
    return F.pad(weight * F.relu(log_probs + MARGIN), (len(SPECIAL), 0)).unsqueeze(1)


def add_to_step(step: Step, tokens: Tensor, before: Tensors) -> Step:
    """A step that read the words int64 (batch, beams) in the state `before`, with the gains left after them.
    Where the state has no checklist, the step as it is."""
    if STATE not in before:
        return step
    gains = before[STATE].scatter(-1, tokens.unsqueeze(-1), 0.0)
    return step._replace(logits=step.logits + gains, state=step.state | {STATE: gains})


def add_to_all(logits: Tensor, tokens: Tensor, first: Tensors) -> Tensor:
    """The same for all steps of known captions at once: `logits` (batch, captions, length, vocabulary) that
    `Decoder.forward` gave for `tokens` (batch, captions, length) and the state `first`, with the gains."""
    if STATE not in first:
        return logits
    said = F.one_hot(tokens, logits.shape[-1]).cumsum(dim=2) > 0
    return logits + first[STATE].unsqueeze(1).masked_fill(said, 0.0)
