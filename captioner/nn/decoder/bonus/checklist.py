"""A bonus for detected words until they appear in the caption.

The most likely caption omits the details of a photo, since naming them costs probability. Fang et al. 2015
(arXiv:1411.4952) detect words first, and their language model prefers those that it has not used yet; Kiddon
et al. 2016 (doi:10.18653/v1/D16-1032) use a neural checklist. Here a detected word gets the bonus

    weight * max(0, log p(word | image) + MARGIN) ^ power

in the logits of every step until it appears. A power below 1 helps words that are likely to be in the photo
more than those that certainly are, which need less help. This changes the search, not training by
likelihood: a model trained with the bonus would learn to undo it.

A word that has been said may cost something from then on, as in CTRL (Keskar et al. 2019, arXiv:1909.05858).
The cost depends on the word: people say "a" twice in a caption, but not "toilet"
(`captioner.training.names.repetition`). Other names of the same thing may cost something, too: "a cat on
top of a kitten" names one animal twice (`captioner.training.names.related`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from captioner.model.detection import MARGIN
from captioner.model.vocabulary import SPECIAL, Vocabulary

STATE = "checklist"
"""The entry of a decoder's state with the bonuses."""
RELATED = 12
"""Most other names of what a word names that cost something once it has been said."""


class Costs(NamedTuple):
    """What words cost once a word has been said."""

    repetition: Tensor | None = None
    """Cost of that word itself, float (vocabulary,); None for none."""
    related: Tensor | None = None
    """Other names of what each word names, int64 (vocabulary, `RELATED`), filled up with padding, which never
    follows a word and may cost anything; None for none."""
    related_cost: float = 0.0
    """Cost of these."""


_NONE = Costs()


def write(detected: Tensor, weight: float, power: float = 1.0) -> Tensor:
    """The bonuses before the first word, float32 (batch, 1, vocabulary), from the logits (batch, vocabulary)
    of detected words. Without gradient: rewards should not change what is detected."""
    log_probs = torch.log_softmax(detected.detach().float(), dim=-1)[:, len(SPECIAL) :]
    above = F.relu(log_probs + MARGIN)
    gains = weight * (above if power == 1 else above**power)
    return F.pad(gains, (len(SPECIAL), 0)).unsqueeze(1)


def add_to_step(
    logits: Tensor,
    tokens: Tensor,
    before: dict[str, Tensor],
    costs: Costs = _NONE,
    proposals: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The logits (batch, beams, vocabulary) of a step that read the words int64 (batch, beams) in the state
    `before`, with the bonuses left after them, and the entry of its new state.

    `proposals`, float (batch, 1, vocabulary), are bonuses from the second word on
    (`captioner.nn.decoder.bonus.names`): names do not begin a caption, articles do. Nothing changes if the
    state has no checklist."""
    if STATE not in before:
        return logits, {}
    gains = _left(before[STATE], tokens, costs)
    logits = logits + gains
    if proposals is not None:
        gains = gains + proposals * (tokens == Vocabulary.start_id).unsqueeze(-1)
    return logits, {STATE: gains}


def add_to_all(
    logits: Tensor,
    tokens: Tensor,
    first: dict[str, Tensor],
    costs: Costs = _NONE,
    proposals: Tensor | None = None,
) -> Tensor:
    """The same for all steps of known captions at once: `logits` (batch, captions, length, vocabulary) of
    `Decoder.forward` for `tokens` (batch, captions, length) and the state `first`, with the bonuses."""
    if STATE not in first:
        return logits
    state = {STATE: first[STATE].expand(-1, tokens.shape[1], -1)}
    steps = []
    for one, words in zip(logits.unbind(dim=2), tokens.unbind(dim=2), strict=True):
        one, state = add_to_step(one, words, state, costs, proposals)
        steps.append(one)
    return torch.stack(steps, dim=2)


def _left(gains: Tensor, tokens: Tensor, costs: Costs) -> Tensor:
    """The bonuses (batch, beams, vocabulary) that are left after the words int64 (batch, beams).

    Each word costs what the last word to concern it says. A word's own cost therefore comes after that of its
    relatives."""
    if costs.related is not None:
        gains = gains.scatter(-1, F.embedding(tokens, costs.related), -costs.related_cost)
    if costs.repetition is None:
        return gains.scatter(-1, tokens.unsqueeze(-1), 0.0)
    return gains.scatter(-1, tokens.unsqueeze(-1), -F.embedding(tokens, costs.repetition.unsqueeze(-1)))
