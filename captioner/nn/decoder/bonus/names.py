"""Help with names of classes that hardly any caption has.

The class evidence of a word (`captioner.nn.decoder.bonus.evidence`) says that it names what its map covers.
Captions teach two other things, but only for frequent words:

- **How a name of several words goes on.** After "guinea", the word "pig" gets a bonus from the class scores
  of the cells that it attends to:

      logit[t, w] += g[y[t-1]] sum_i a[t, i] max(0, log sum_c p[i, c] [w goes on a name of c] + MARGIN)

  for each word w that follows y[t-1] in a name.
- **That the name should be said at all.** If the whole photo certainly shows class c, the most exact name of
  the class gets a bonus in the checklist, from the second word of the caption until it is said:

      g[c] max(0, p[c] - SURE) / (1 - SURE)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.bonus.evidence import evidence_of

FOLLOWERS = 9
"""Words that may follow one word in names; "water" has the most."""
SURE = 0.3
"""Probability of a class, above which its name is proposed."""


class Names(NamedTuple):
    """Which words follow each other in names, and which name to propose for a class."""

    membership: Tensor
    """float (classes, following words): 1 where a name of the class goes on with the word. The last column
    stands for no word and is empty."""
    following: Tensor
    """int64 (vocabulary, `FOLLOWERS`): the following words of each token, as columns of `membership`; filled
    up with the last."""
    following_token: Tensor
    """int64 (vocabulary, `FOLLOWERS`): the tokens of these words, filled up with padding."""
    following_gain: Tensor
    """float (vocabulary,): factor of the bonus of the words that follow a token."""
    proposed: Tensor
    """int64 (classes,): the first token of the most exact name of each class; padding if it has none."""
    proposed_gain: Tensor
    """float (classes,): bonus in nats of that token, in a photo that is certainly of the class."""


class NameHelp(nn.Module):
    """The buffers of `Names`, and what they add to a step."""

    membership: Tensor
    following: Tensor
    following_token: Tensor
    following_gain: Tensor
    proposed: Tensor
    proposed_gain: Tensor
    proposes: bool
    """Whether there are proposals."""

    def __init__(self, classes: int, following: int, vocabulary: int) -> None:
        """Without any names yet. `following`: the number of following words, with the empty one."""
        super().__init__()
        self.proposes = True
        self.register_buffer("membership", torch.zeros(classes, following))
        self.register_buffer("following", torch.full((vocabulary, FOLLOWERS), following - 1))
        self.register_buffer("following_token", torch.full((vocabulary, FOLLOWERS), Vocabulary.pad_id))
        self.register_buffer("following_gain", torch.zeros(vocabulary))
        self.register_buffer("proposed", torch.zeros(classes, dtype=torch.int64))
        self.register_buffer("proposed_gain", torch.zeros(classes))

    @torch.no_grad()
    def set(self, names: Names, continuation: float, proposal: float) -> None:
        """Take these names. Their gains are multiplied by `continuation` and `proposal`."""
        for name, values in names._asdict().items():
            getattr(self, name).copy_(values)
        self.following_gain.mul_(continuation)
        self.proposed_gain.mul_(proposal)

    def forward(self, scores: Tensor) -> dict[str, Tensor]:
        """Class scores of cells (batch, cells, classes) -> entries of the memory.

        "parts" (batch, cells, following words): the evidence of the classes whose names go on with each word.
        "proposals" (batch, 1, vocabulary), if the model `proposes` names: bonuses that the checklist
        gets after the first word.
        """
        parts = evidence_of(torch.softmax(scores, dim=-1) @ self.membership)
        if not self.proposes:
            return {"parts": parts}
        whole = torch.softmax(scores.mean(dim=1), dim=-1)
        gains = self.proposed_gain * F.relu(whole - SURE) / (1 - SURE)
        batch = gains.shape[0]  # not len(), a fixed number for the exporter
        blank = gains.new_zeros(batch, len(self.following))
        proposals = blank.scatter_add(1, self.proposed.expand(batch, -1), gains)
        return {"parts": parts, "proposals": proposals.unsqueeze(1)}

    def go_on(self, logits: Tensor, tokens: Tensor, seen: Tensor, parts: Tensor) -> Tensor:
        """Add the bonus of the words that go on with a name to `logits` (batch, queries, vocabulary).

        `tokens` int64 (batch, queries), the words before; `seen` (batch, queries, cells), the map of each;
        `parts` as from `forward`.
        """
        evidence = (seen @ parts).gather(-1, F.embedding(tokens, self.following))
        gains = F.embedding(tokens, self.following_gain.unsqueeze(-1)) * evidence
        return logits.scatter_add(-1, F.embedding(tokens, self.following_token), gains.to(logits.dtype))
