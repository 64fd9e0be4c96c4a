"""Evidence of named things: class scores of each cell, read through the attention of each word.

A classifier that is linear after average pooling also scores every cell (class activation maps, Zhou et al.
2016, arXiv:1512.04150). A word that names a class gets a bonus from the scores of the cells that its own map
attends to. The map is then the reason for the word (a copy mechanism, as in Neural Baby Talk, Lu et al. 2018,
arXiv:1803.09845):

    p[i] = softmax(W f[i] + b)                    classes at cell i; f: deepest output of the encoder
    e[i, w] = s[w] relu(log sum_c p[i, c] [w names c] + MARGIN)
    logit[t, w] += softplus(g · [h[t]; z[t]]) sum_i a[t, i] e[i, w]

h[t] is the state, z[t] the context and a[t] the map of step t. s scales each word. The gate g detects when
a word names something. The first word of a caption gets no bonus: captions begin with an article, not with a
name ("a nautilus in a bowl").
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.bonus.options import BonusOptions

UNFITTED = -30.0
"""Bias of a class without weights yet: its probability is practically 0."""
MARGIN = 6.0
"""Nats: a word whose classes have less than exp(-6) of the probability at a cell gets no bonus from it."""


class ClassSizes(NamedTuple):
    """What evidence is built for."""

    channels: int
    """Channels of the encoder's deepest output."""
    query: int
    """Features of the gate's input."""
    grid: tuple[int, int]
    """Rows and columns of the attention."""
    shrink: int
    """Cells of the attention, in one direction, on one of the deepest output."""


class WordEvidence(nn.Module):
    """Class scores of cells, and the words that name the classes."""

    only: Tensor
    """int64 (words of one class): the class that each of the first named words names; no other names it."""
    membership: Tensor
    """float (classes, other named words): 1 where the word names the class."""
    column: Tensor
    """int64 (vocabulary): the named word that a token is, or their number if it is none."""
    trailing = False
    """Whether the named words are the last of the vocabulary, in order, as in an exported model."""
    later: Tensor
    """float (vocabulary, 1): 0 for the start token, 1 for words. In an exported graph, looking it up takes
    fewer nodes than comparing tokens."""
    pool: Tensor
    """float (cells of the attention, cells of the deepest output): 1 where the first lies in the second."""

    def __init__(self, options: BonusOptions, vocabulary: int, sizes: ClassSizes) -> None:
        """`vocabulary` is the number of words. The first `options.single_words` of those that name classes
        name one each. `options.class_rank` features make a classifier of many classes smaller."""
        super().__init__()
        classes, rank, channels = options.scored_classes, options.class_rank, sizes.channels
        words, single = options.named_words, options.single_words
        self.shared = nn.Linear(channels, rank, bias=False) if rank else nn.Identity()
        self.classes = nn.Linear(rank or channels, classes)
        self.scale = nn.Parameter(torch.ones(words))
        self.gate = nn.Linear(sizes.query, 1)
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, -1.0)
        self.register_buffer("only", torch.zeros(single, dtype=torch.int64))
        self.register_buffer("membership", torch.zeros(classes, words - single))
        self.register_buffer("column", torch.full((vocabulary,), words))
        later = torch.ones(vocabulary, 1).index_fill(0, torch.tensor(Vocabulary.start_id), 0.0)
        self.register_buffer("later", later, persistent=False)
        self.register_buffer("pool", _pool(sizes.grid, sizes.shrink), persistent=False)

    @torch.no_grad()
    def leave_open(self, first: int) -> None:
        """Give the classes from `first` on no probability, until they are fitted."""
        self.classes.weight[first:] = 0.0
        self.classes.bias[first:] = UNFITTED

    @torch.no_grad()
    def name(self, membership: Tensor, column: Tensor) -> None:
        """Set which words name which classes: `membership` float (classes, named words), words of one class
        first; `column` int64 (vocabulary)."""
        single = len(self.only)
        self.only.copy_(membership[:, :single].argmax(dim=0))
        self.membership.copy_(membership[:, single:])
        self.column.copy_(column)

    def named_before(self, end: int) -> Tensor:
        """Which words name a class before number `end`, bool (named words)."""
        return torch.cat([self.only < end, self.membership[:end].sum(dim=0) > 0])

    def class_logits(self, deepest: Tensor) -> Tensor:
        """(batch, channels, rows, columns) -> (batch, cells, classes). Their mean over cells classifies the
        photo."""
        return self.classes(self.shared(deepest.flatten(2).transpose(1, 2)))

    def shares(self, scores: Tensor) -> Tensor:
        """`class_logits` (batch, cells, classes) -> the probability of what each word names, (batch, cells,
        named words)."""
        classes = torch.softmax(scores, dim=-1)
        shares = classes @ self.membership
        if len(self.only):  # most words name one class: looking them up is faster than multiplying
            shares = torch.cat([classes.index_select(-1, self.only), shares], dim=-1)
        return shares

    def forward(self, scores: Tensor) -> Tensor:
        """`class_logits` (batch, cells, classes) -> evidence (batch, cells, named words)."""
        return evidence_of(self.shares(scores)) * self.scale

    def seen(self, attention: Tensor) -> Tensor:
        """Maps (batch, queries, cells of the attention) -> (batch, queries, cells of the deepest output)."""
        return attention @ self.pool

    def add(self, logits: Tensor, tokens: Tensor, query: Tensor, seen: Tensor, evidence: Tensor) -> Tensor:
        """Add the bonus of named words to `logits` (batch, queries, vocabulary).

        `tokens` int64 (batch, queries), the words before; `query` (batch, queries, query features),
        `seen` as from `seen`, `evidence` as from `forward`.
        """
        gate = F.softplus(self.gate(query)) * F.embedding(tokens, self.later)
        gains = gate * (seen @ evidence)
        if self.trailing:
            return logits + F.pad(gains, (len(self.column) - gains.shape[-1], 0))
        gains = torch.cat([gains, torch.zeros_like(gains[..., :1])], dim=-1)
        return logits + gains.index_select(-1, self.column)


def evidence_of(shares: Tensor) -> Tensor:
    """The distance of log-probabilities from -`MARGIN`, at least 0, from probabilities."""
    return F.relu(torch.log(shares + 1e-6) + MARGIN)


def _pool(grid: tuple[int, int], shrink: int) -> Tensor:
    rows, columns = grid[0] // shrink, grid[1] // shrink
    coarse = torch.eye(rows * columns).view(rows, 1, columns, 1, -1)
    return coarse.expand(-1, shrink, -1, shrink, -1).reshape(grid[0] * grid[1], -1).clone()
