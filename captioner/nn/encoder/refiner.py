"""Self-attention over the grid, before the decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioner.errors import DataError
from captioner.nn.blocks import feed_forward, join_heads, sinusoids, split_heads

EXPANSION = 2
"""Inner features of the feed-forward layers per feature of the grid. Half the usual number, because a batch
has many times more cells than words."""


class GridRefiner(nn.Module):
    """Lets every cell use the features of the others: an encoder of Transformer layers (Vaswani et al. 2017,
    arXiv:1706.03762) with two-dimensional positions (as DETR has them, Carion et al. 2020, arXiv:2005.12872)
    and the norms in front (Xiong et al. 2020, arXiv:2002.04745).

        x[i] = g[i] + [s(row of i); s(column of i)]         s: sinusoids, half of the features each
        in each layer:
            q[i], k[i], v[i] = W norm(x[i])                 W (3 features, features), cut into heads
            a[i] = softmax_j(q[i] · k[j] / sqrt(features / heads))         over the unmasked cells j
            x[i] += O sum_j a[i, j] v[j]                    O (features, features), of all heads
            x[i] += W2 relu(W1 norm(x[i]))                  W1 (2 features, features)
        refined g[i] = norm(x[i])

    g (cells, features). No cell attends to a masked cell, whose own output is meaningless. A refined cell
    depends on all others, so attention to it says less about that place in the photo.
    """

    def __init__(self, features: int, layers: int, heads: int, dropout: float) -> None:
        """Raises `DataError` if `features` is not a multiple of `heads`."""
        super().__init__()
        if features % heads:
            raise DataError(f"features must be a multiple of attention_heads, got {features} and {heads}")
        self.layers = nn.ModuleList(_Layer(features, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(features)

    def forward(self, grid: Tensor, rows: int, columns: int, mask: Tensor | None = None) -> Tensor:
        """(batch, rows * columns, features), mask bool (batch, rows * columns) -> the grid, refined."""
        cells = grid + grid_positions(rows, columns, grid.shape[2], grid.device)
        bias = None
        if mask is not None:
            # The lowest number, not minus infinity: with no cell to look at nothing becomes NaN.
            bias = torch.zeros_like(mask, dtype=grid.dtype).masked_fill(~mask, torch.finfo(grid.dtype).min)
            bias = bias[:, None, None, :]
        for layer in self.layers:
            cells = layer(cells, bias)
        return self.norm(cells)


class _Layer(nn.Module):
    def __init__(self, features: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(features)
        self.inputs = nn.Linear(features, 3 * features)
        self.output = nn.Linear(features, features)
        self.inner_norm = nn.LayerNorm(features)
        self.inner = feed_forward(features, EXPANSION * features, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, cells: Tensor, bias: Tensor | None) -> Tensor:
        query, key, value = (
            split_heads(part, self.heads) for part in self.inputs(self.norm(cells)).chunk(3, dim=-1)
        )
        if bias is not None:
            bias = bias.to(query.dtype)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        cells = cells + self.dropout(self.output(join_heads(seen)))
        return cells + self.dropout(self.inner(self.inner_norm(cells)))


def grid_positions(rows: int, columns: int, features: int, device: torch.device) -> Tensor:
    """float32 (rows * columns, features): the first half encodes the row, the second the column."""
    of_row = sinusoids(torch.arange(rows, device=device), (features + 1) // 2)
    of_column = sinusoids(torch.arange(columns, device=device), features // 2)
    both = [of_row.unsqueeze(1).expand(-1, columns, -1), of_column.unsqueeze(0).expand(rows, -1, -1)]
    return torch.cat(both, dim=-1).flatten(0, 1)
