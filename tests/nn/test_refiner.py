"""The refiner of the grid, against PyTorch's own encoder layers."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnxruntime
import pytest
import torch
from support import squares
from torch import Tensor, nn

from captioner.errors import DataError
from captioner.export.graphs import encoder_graph
from captioner.nn.encoder import GridRefiner
from captioner.nn.encoder.refiner import grid_positions
from captioner.nn.model import CaptionModel

BATCH, ROWS, COLUMNS, FEATURES, HEADS = 2, 3, 4, 12, 3
CELLS = ROWS * COLUMNS


def make(layers: int = 2) -> GridRefiner:
    made = GridRefiner(FEATURES, layers, HEADS, 0.5)
    for parameter in made.parameters():
        if parameter.dim() == 1:  # norms and biases that do nothing prove nothing
            nn.init.normal_(parameter)
    return made.double().eval()


def grid() -> Tensor:
    return torch.randn(BATCH, CELLS, FEATURES, dtype=torch.float64)


def half_mask() -> Tensor:
    mask = torch.ones(BATCH, CELLS, dtype=torch.bool)
    mask[0, [1, 7]] = mask[1, 8:] = False
    return mask


def pytorch_layer(layer: nn.Module) -> nn.TransformerEncoderLayer:
    theirs = nn.TransformerEncoderLayer(FEATURES, HEADS, 2 * FEATURES, 0.0, norm_first=True, batch_first=True)
    parts = {
        "norm1": layer.norm,
        "norm2": layer.inner_norm,
        "linear1": layer.inner[0],
        "linear2": layer.inner[3],
        "self_attn.out_proj": layer.output,
    }
    state = {f"{name}.{n}": p for name, part in parts.items() for n, p in part.named_parameters()}
    state |= {"self_attn.in_proj_weight": layer.inputs.weight, "self_attn.in_proj_bias": layer.inputs.bias}
    theirs = theirs.double().eval()
    theirs.load_state_dict(state)
    return theirs


@pytest.mark.parametrize("mask", [None, half_mask()], ids=["all cells", "some cells"])
def test_layers_are_those_of_pytorch(mask: Tensor | None) -> None:
    refiner, cells = make(), grid()
    x = cells + grid_positions(ROWS, COLUMNS, FEATURES, cells.device)
    for layer in refiner.layers:
        x = pytorch_layer(layer)(x, src_key_padding_mask=None if mask is None else ~mask)
    found, expected = refiner(cells, ROWS, COLUMNS, mask), refiner.norm(x)
    seen = torch.ones(BATCH, CELLS, dtype=torch.bool) if mask is None else mask
    torch.testing.assert_close(found[seen], expected[seen])


@pytest.mark.parametrize("features", [4, 7, 12])
def test_every_place_has_a_position_of_its_own(features: int) -> None:
    found = grid_positions(14, 14, features, torch.device("cpu"))
    assert found.shape == (196, features) and torch.pdist(found).min() > 1e-3
    row, column = found.view(14, 14, features).split([(features + 1) // 2, features // 2], dim=-1)
    assert torch.equal(row, row[:, :1].expand_as(row)) and torch.equal(column, column[:1].expand_as(column))


def test_where_a_cell_lies_matters() -> None:
    refiner = make()
    cells = grid()
    turned = cells.view(BATCH, ROWS, COLUMNS, FEATURES).flip(2).flatten(1, 2)
    back = refiner(turned, ROWS, COLUMNS).view(BATCH, ROWS, COLUMNS, FEATURES).flip(2).flatten(1, 2)
    assert (back - refiner(cells, ROWS, COLUMNS)).abs().max() > 1e-3


def test_a_masked_cell_changes_nothing() -> None:
    """To the bit, and no gradient comes to it or from it."""
    refiner, mask = make(), half_mask()
    cells = grid()
    other = torch.where(mask.unsqueeze(-1), cells, 50.0)
    found = []
    for shown in (cells, other):
        shown = shown.clone().requires_grad_()
        refined = refiner(shown, ROWS, COLUMNS, mask)[mask]
        gradients = torch.autograd.grad(refined.square().sum(), [shown, *refiner.parameters()])
        found.append([refined, *gradients])
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)
    assert not found[0][1][~mask].any() and found[0][1][mask].any()
    [alone] = refiner(cells[1:, :8], 2, COLUMNS)  # its third row is masked
    torch.testing.assert_close(refiner(cells, ROWS, COLUMNS, mask)[1, :8], alone)


def test_an_image_without_cells_spoils_no_other() -> None:
    refiner, cells, mask = make(), grid(), half_mask()
    mask[0] = False
    found = refiner(cells, ROWS, COLUMNS, mask)
    assert torch.isfinite(found).all()
    assert torch.equal(found[1], refiner(cells, ROWS, COLUMNS, half_mask())[1])


def test_gradients_are_those_of_finite_differences() -> None:
    refiner, mask = make(1), half_mask()
    parameters = list(refiner.parameters())
    assert torch.autograd.gradcheck(
        lambda cells, *_: refiner(cells, ROWS, COLUMNS, mask)[mask],
        (grid().requires_grad_(), *parameters),
        fast_mode=True,
    )


@pytest.mark.parametrize("resize", ["squash", "letterbox"])
@torch.inference_mode()
def test_the_graph_of_the_encoder_has_it(resize: str) -> None:
    options = dataclasses.replace(squares.options().model, refiner_layers=2, resize=resize)
    model = CaptionModel(options, 9).eval()
    shown = [torch.randint(0, 256, (3, squares.SIZE, squares.SIZE, 3), dtype=torch.uint8)]
    mask = torch.ones(3, options.grid[0] * options.grid[1], dtype=torch.bool)
    if resize == "letterbox":
        mask[0, :4] = mask[1, ::4] = False
        shown.append(mask)
    session = onnxruntime.InferenceSession(encoder_graph(model).SerializeToString())
    names = [output.name for output in session.get_outputs()]
    given = {value.name: part.numpy() for value, part in zip(session.get_inputs(), shown, strict=True)}
    found = dict(zip(names, session.run(None, given), strict=True))["memory.values"]
    np.testing.assert_allclose(found, model.encode(*shown)[0]["values"], atol=1e-5)
    model.encoder.refiner = None
    assert np.abs(found - model.encode(*shown)[0]["values"].numpy()).max() > 1e-2


def test_heads_that_do_not_divide_the_features_are_refused() -> None:
    with pytest.raises(DataError, match="features must be a multiple of attention_heads, got 12 and 5"):
        GridRefiner(12, 1, 5, 0.0)
