"""Every attention in every decoder, as a graph: the same numbers as in PyTorch, step by step."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnxruntime
import pytest
import torch
from support import squares

from captioner.errors import DataError
from captioner.export.graphs import decoder_graph, encoder_graph
from captioner.model.search.choices import StepRequest, choose_among
from captioner.nn.attention import ATTENTIONS
from captioner.nn.decoder import DECODERS
from captioner.nn.model import CaptionModel

IMAGES, BEAMS, WORDS = 3, 4, 12


def make(decoder: str, attention: str, color_levels: int = 0) -> CaptionModel:
    changes = {"decoder": decoder, "attention": attention, "color_levels": color_levels}
    options = dataclasses.replace(squares.options().model, **changes)
    try:
        model = CaptionModel(options, WORDS)
    except DataError as error:
        pytest.skip(str(error))
    torch.nn.init.normal_(model.decoder.embedding.weight)
    return model.eval()


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("decoder", DECODERS)
@torch.inference_mode()
def test_steps_are_those_of_the_network(decoder: str, attention: str) -> None:
    model = make(decoder, attention)
    cells = model.options.grid[0] * model.options.grid[1]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(decoder_graph(model).SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    mask = torch.ones(IMAGES, cells, dtype=torch.bool)
    mask[1, 3:7] = False
    memory, state = model.decoder.prepare(torch.randn(IMAGES, cells, model.options.features), mask)
    blind = memory | {"mask": mask & torch.tensor([True, True, False])[:, None]}
    theirs = {f"state.{name}": value.numpy() for name, value in state.items()}
    parents = torch.zeros(IMAGES, BEAMS, dtype=torch.int64)
    for _ in range(3):
        tokens = torch.randint(3, WORDS, (IMAGES, BEAMS))
        state = {name: value[torch.arange(IMAGES)[:, None], parents] for name, value in state.items()}
        step = model.decoder.step(tokens, memory, state)
        state = step.state
        request = StepRequest(3, np.tile([0, 5, 0], (IMAGES, BEAMS, 1)), np.array([2, 5]))
        asked = {"tokens": tokens.numpy(), "parents": parents.numpy(), **theirs}
        asked |= {"count": np.array([3]), "forbidden": request.forbidden, "asked": request.tracked}
        found, unseen = (
            dict(
                zip(
                    names,
                    session.run(None, asked | {f"memory.{n}": v.numpy() for n, v in kept.items()}),
                    strict=True,
                )
            )
            for kept in (memory, blind)
        )
        np.testing.assert_allclose(found["log_probs"], torch.log_softmax(step.logits, -1), atol=1e-4)
        np.testing.assert_allclose(found["attention"], step.attention, atol=1e-5)
        assert (found["attention"][1, :, 3:7] == 0).all()
        best = choose_among(found["log_probs"], request)
        for ours, theirs_ in zip(best, ("top_log_probs", "top_tokens", "asked_log_probs"), strict=True):
            np.testing.assert_array_equal(ours, found[theirs_])
        if model.decoder.heads > 1:
            assert step.heads is not None
            assert step.heads.shape == (IMAGES, BEAMS, model.decoder.heads, cells)
            np.testing.assert_allclose(found["attention_heads"], step.heads, atol=1e-5)
            np.testing.assert_allclose(found["attention_heads"].mean(2), found["attention"], atol=1e-5)
        else:
            assert step.heads is None and "attention_heads" not in found
        # The image with nothing to look at is an error in PyTorch; the others do not notice.
        assert (unseen["attention"][2] == 0).all() and np.isfinite(unseen["log_probs"]).all()
        np.testing.assert_allclose(unseen["log_probs"][:2], found["log_probs"][:2], atol=1e-5)
        with pytest.raises(DataError, match="image 3 of the batch has no cell to look at"):
            model.decoder.step(tokens, blind, state)
        theirs = {name.replace("next.", "state."): value for name, value in found.items() if "next." in name}
        parents = torch.randint(0, BEAMS, (IMAGES, BEAMS))


@pytest.mark.parametrize("attention", ["general", "scaled_dot_product", "attention_on_attention", "none"])
@torch.inference_mode()
def test_what_is_kept_of_images_is_that_of_the_network(attention: str) -> None:
    """Those of which no whole bundle is made in the tests; with colours."""
    model = make("two_lstm", attention, color_levels=3)
    assert model.encoder.colors is not None
    torch.nn.init.normal_(model.encoder.colors.projection.weight)
    session = onnxruntime.InferenceSession(encoder_graph(model).SerializeToString())
    pixels = torch.randint(0, 256, (IMAGES, squares.SIZE, squares.SIZE, 3), dtype=torch.uint8)
    memory, state = model.encode(pixels)
    expected = {f"memory.{name}": value for name, value in memory.items()}
    expected |= {f"state.{name}": value for name, value in state.items()}
    names = [output.name for output in session.get_outputs()]
    assert names == list(expected)
    for name, found in zip(names, session.run(None, {"pixels": pixels.numpy()}), strict=True):
        np.testing.assert_allclose(found, expected[name], atol=1e-4, err_msg=name)
