"""Words into vectors and vectors into words, by one matrix."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TiedEmbedding(nn.Embedding):
    """One matrix E (vocabulary, embedding) reads words and says them (Press and Wolf 2017, arXiv:1608.05859).

    As the last layer of a classifier, E starts with a standard deviation of embedding^-0.5; what enters a
    network should have one of 1, or the network hardly hears the words while it is young. So words are read
    as sqrt(embedding) E y (Vaswani et al. 2017, arXiv:1706.03762, section 3.4), and E x + b says them.
    """

    def __init__(self, vocabulary: int, embedding: int) -> None:
        super().__init__(vocabulary, embedding)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.weight, std=embedding**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 (…) -> (…, embedding)"""
        return super().forward(tokens) * self.embedding_dim**0.5

    def logits(self, said: Tensor) -> Tensor:
        """(…, embedding) -> (…, vocabulary)"""
        return F.linear(said, self.weight, self.bias)
