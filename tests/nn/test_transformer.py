"""The Transformer decoder, against PyTorch's own layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from captioner.errors import DataError
from captioner.nn.attention import AdditiveAttention, MultiHeadAttention, VisualSentinelAttention
from captioner.nn.blocks import sinusoids
from captioner.nn.decoder import DecoderSizes, TransformerDecoder, expand_beams

BATCH, CAPTIONS, LENGTH, CELLS, FEATURES, HIDDEN, EMBEDDING, WORDS, HEADS = 2, 3, 5, 6, 8, 12, 7, 15, 3


def make(layers: int = 2) -> TransformerDecoder:
    attention = MultiHeadAttention(HIDDEN, FEATURES, HIDDEN, HEADS)
    made = TransformerDecoder(attention, DecoderSizes(WORDS, FEATURES, HIDDEN, EMBEDDING, 0.5, layers, HEADS))
    for parameter in made.parameters():
        if parameter.dim() == 1:  # norms and biases that do nothing prove nothing
            nn.init.normal_(parameter)
    return made.double().eval()


def grid() -> Tensor:
    return torch.randn(BATCH, CELLS, FEATURES, dtype=torch.float64)


def captions() -> Tensor:
    return torch.randint(1, WORDS, (BATCH, CAPTIONS, LENGTH))


def half_mask() -> Tensor:
    mask = torch.ones(BATCH, CELLS, dtype=torch.bool)
    mask[1, [0, 4]] = False
    return mask


def pytorch_layer(layer: nn.Module, image: Tensor) -> nn.TransformerDecoderLayer:
    """The same weights in PyTorch's layer. What stands before the words is its `bias_k` and `bias_v`, which
    are one for the whole batch; PyTorch puts them behind, which makes no difference."""
    theirs = nn.TransformerDecoderLayer(HIDDEN, HEADS, 4 * HIDDEN, 0.0, norm_first=True, batch_first=True)
    theirs.self_attn = nn.MultiheadAttention(HIDDEN, HEADS, add_bias_kv=True, batch_first=True)
    theirs.multihead_attn = nn.MultiheadAttention(
        HIDDEN, HEADS, kdim=FEATURES, vdim=FEATURES, batch_first=True
    )
    theirs = theirs.double().eval()
    look, key, value = layer.attention, *layer.image(image).chunk(2)
    weights = {
        "norm1": layer.word_norm,
        "norm2": layer.attention_norm,
        "norm3": layer.inner_norm,
        "linear1": layer.inner[0],
        "linear2": layer.inner[3],
        "self_attn.out_proj": layer.heard,
    }
    state = {f"{name}.{n}": p for name, module in weights.items() for n, p in module.named_parameters()}
    state |= {
        "self_attn.in_proj_weight": layer.words.weight,
        "self_attn.in_proj_bias": layer.words.bias,
        "self_attn.bias_k": key.view(1, 1, HIDDEN),
        "self_attn.bias_v": value.view(1, 1, HIDDEN),
        "multihead_attn.q_proj_weight": look.query.weight,
        "multihead_attn.k_proj_weight": look.key.weight,
        "multihead_attn.v_proj_weight": look.value.weight,
        "multihead_attn.in_proj_bias": torch.cat([look.query.bias, look.key.bias, look.value.bias]),
        # Two layers in a row without anything between them are one.
        "multihead_attn.out_proj.weight": layer.seen.weight @ look.output.weight,
        "multihead_attn.out_proj.bias": layer.seen.weight @ look.output.bias + layer.seen.bias,
    }
    theirs.load_state_dict(state)
    return theirs


@pytest.mark.parametrize("mask", [None, half_mask()], ids=["all cells", "some cells"])
@torch.no_grad()
def test_layers_are_those_of_pytorch(mask: Tensor | None) -> None:
    decoder, cells, known = make(), grid(), captions()
    logits, attention = decoder(known, *decoder.prepare(cells, mask))
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    for image in range(BATCH):
        shown = cells[image] if mask is None else cells[image, mask[image]]
        seen = shown.expand(CAPTIONS, -1, -1)
        x = decoder.input(decoder.embedding(known[image]))
        x = x + torch.from_numpy(np.stack([position(t, HIDDEN) for t in range(LENGTH)]))
        for layer in decoder.layers:
            theirs = pytorch_layer(layer, shown.mean(dim=0))
            heard = x + theirs.self_attn(*[theirs.norm1(x)] * 3, attn_mask=future)[0]
            _, looked = theirs.multihead_attn(theirs.norm2(heard), seen, seen)
            x = theirs(x, seen, tgt_mask=future)
        expected = decoder.embedding.logits(decoder.output(decoder.norm(x)))
        torch.testing.assert_close(logits[image], expected, rtol=1e-5, atol=1e-6)
        found = attention[image] if mask is None else attention[image][..., mask[image]]
        torch.testing.assert_close(found, looked, rtol=1e-5, atol=1e-6)


def position(t: int, features: int) -> np.ndarray:
    waves = [t / 10000 ** (2 * i / features) for i in range(features // 2)]
    return np.array([np.sin(w) for w in waves] + [np.cos(w) for w in waves])


@pytest.mark.parametrize("features", [2, 6, 7])
def test_positions_differ(features: int) -> None:
    found = sinusoids(torch.arange(65), features)
    assert found.shape == (65, features)
    assert torch.pdist(found).min() > 1e-3
    if features % 2 == 0:
        np.testing.assert_allclose(found[9], position(9, features), atol=1e-6)


def test_the_state_is_longer_by_a_word_with_every_step() -> None:
    decoder, known = make(), captions()
    memory, state = decoder.prepare(grid())
    logits, _ = decoder(known, memory, state)
    state = expand_beams(state, CAPTIONS)
    for t in range(LENGTH):
        assert {value.shape for value in state.values()} == {(BATCH, CAPTIONS, 1 + t, 2 * HIDDEN)}
        step = decoder.step(known[:, :, t], memory, state)
        torch.testing.assert_close(step.logits, logits[:, :, t])
        for name, value in step.state.items():  # what was heard before is kept as it is
            assert torch.equal(value[:, :, : 1 + t], state[name])
        state = step.state


def test_the_image_stands_before_the_words() -> None:
    """Through the self-attention too: with the cross-attention silenced the image still matters."""
    decoder, known = make(), captions()
    with torch.no_grad():
        for layer in decoder.layers:
            layer.seen.weight.zero_()
    logits, _ = decoder(known, *decoder.prepare(grid()))
    others, _ = decoder(known, *decoder.prepare(grid()))
    assert (logits - others).abs().max() > 1e-3


def test_the_order_of_words_matters() -> None:
    decoder, known = make(), captions()
    memory, state = decoder.prepare(grid())
    swapped = known[:, :, [1, 0, *range(2, LENGTH)]]
    last, after = (decoder(words, memory, state)[0][:, :, -1] for words in (known, swapped))
    moved = known[:, :, 0] != known[:, :, 1]
    assert (last - after)[moved].abs().amax(dim=-1).min() > 1e-4


def test_maps_of_heads_are_the_last_layers() -> None:
    decoder = make()
    memory, state = decoder.prepare(grid(), half_mask())
    step = decoder.step(torch.ones(BATCH, 1, dtype=torch.int64), memory, state)
    assert decoder.heads == HEADS and step.heads is not None
    torch.testing.assert_close(step.heads.mean(dim=2), step.attention)


def test_layers_look_with_attentions_of_their_own() -> None:
    decoder = make(3)
    parameters = {id(p) for layer in decoder.layers for p in layer.attention.parameters()}
    assert len(parameters) == 3 * 8


def test_what_a_transformer_cannot_be_is_refused() -> None:
    with pytest.raises(DataError, match="a visual sentinel needs the cell of an LSTM"):
        TransformerDecoder(VisualSentinelAttention(8, 8, 8), DecoderSizes(WORDS, 8, 8, 8, 0.0, 1, 2))
    with pytest.raises(DataError, match="hidden must be a multiple of attention_heads, got 8 and 3"):
        TransformerDecoder(AdditiveAttention(8, 8, 8), DecoderSizes(WORDS, 8, 8, 8, 0.0, 1, 3))
