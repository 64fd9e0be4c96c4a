"""Words into vectors and vectors into words, by one matrix."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RareWords(nn.Module):
    """Words of the vocabulary that corrections have and the model hardly ever says: what is added to their
    scores, n (D o + c) for an output o, in photos that are as near as n to one whose correction has them."""

    words: Tensor
    """int64 (rows,). A word that several lessons have has several rows."""

    def __init__(self, words: Sequence[int], embedding: int) -> None:
        super().__init__()
        self.register_buffer("words", torch.tensor(words, dtype=torch.int64))
        self.weight = nn.Parameter(torch.zeros(len(words), embedding))
        self.bias = nn.Parameter(torch.zeros(len(words)))

    def add(self, logits: Tensor, output: Tensor, near: Tensor) -> Tensor:
        """(batch, …, vocabulary), (batch, …, embedding) and (batch, rows) -> (batch, …, vocabulary)"""
        scores = F.linear(output, self.weight, self.bias)
        near = near.view(len(near), *(1,) * (scores.ndim - 2), -1)
        return logits.index_add(-1, self.words, near * scores)


class TiedEmbedding(nn.Embedding):
    """One matrix E (vocabulary, embedding) embeds words and predicts them (Press and Wolf 2017,
    arXiv:1608.05859).

    As the last layer of a classifier, E is initialized with a standard deviation of embedding^-0.5. The
    input of a network should have one of 1, or words hardly influence it early in training. So the input is
    sqrt(embedding) E y (Vaswani et al. 2017, arXiv:1706.03762, section 3.4), and the output E x + b.
    """

    def __init__(self, vocabulary: int, embedding: int) -> None:
        super().__init__(vocabulary, embedding)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.weight, std=embedding**-0.5)
        self.rare: RareWords | None = None
        """Set by corrections only."""

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 (…) -> (…, embedding)"""
        return super().forward(tokens) * self.embedding_dim**0.5

    def logits(self, output: Tensor, rare: Tensor | None = None) -> Tensor:
        """(…, embedding) -> (…, vocabulary); `rare` (batch, rows) is how near the photo is to those whose
        corrections have the rare words."""
        logits = F.linear(output, self.weight, self.bias)
        return logits if self.rare is None or rare is None else self.rare.add(logits, output, rare)

    @torch.no_grad()
    def add_rare(self, words: Sequence[int]) -> RareWords:
        """Add rows of zeros for rare words, after those that are there."""
        before = self.rare
        known = [] if before is None else before.words.tolist()
        self.rare = RareWords([*known, *words], self.embedding_dim).to(self.weight.device)
        if before is not None:
            self.rare.weight[: len(known)] = before.weight
            self.rare.bias[: len(known)] = before.bias
        return self.rare
