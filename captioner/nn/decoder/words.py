"""Words into vectors and vectors into words, by one matrix."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 (…) -> (…, embedding)"""
        return super().forward(tokens) * self.embedding_dim**0.5

    def logits(self, output: Tensor) -> Tensor:
        """(…, embedding) -> (…, vocabulary)"""
        return F.linear(output, self.weight, self.bias)
