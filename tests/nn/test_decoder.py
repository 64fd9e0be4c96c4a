"""The step contract, kept by every registered decoder."""

from __future__ import annotations

import pytest
import torch

from captioner.model.search import search
from captioner.nn.attention import AdditiveAttention
from captioner.nn.decoder import DECODERS, Decoder, DecoderSizes, expand_beams
from captioner.nn.stepper import TorchStepper
from captioner.options import CaptionOptions

BATCH, CAPTIONS, LENGTH, CELLS, FEATURES, HIDDEN, EMBEDDING, WORDS = 2, 3, 5, 6, 8, 10, 7, 12


@pytest.fixture(params=sorted(DECODERS))
def decoder(request: pytest.FixtureRequest) -> Decoder:
    made = DECODERS[request.param](
        AdditiveAttention(HIDDEN, FEATURES, 5),
        DecoderSizes(WORDS, FEATURES, HIDDEN, EMBEDDING, 0.5, 2, 2),
    )
    torch.nn.init.normal_(made.embedding.bias)
    return made.eval()


def grid() -> torch.Tensor:
    return torch.randn(BATCH, CELLS, FEATURES)


def captions() -> torch.Tensor:
    return torch.randint(1, WORDS, (BATCH, CAPTIONS, LENGTH))


def test_step_by_step_is_teacher_forcing(decoder: Decoder) -> None:
    memory, state = decoder.prepare(grid())
    known = captions()
    logits, attention = decoder(known, memory, state)
    assert logits.shape == (BATCH, CAPTIONS, LENGTH, WORDS)
    assert attention.shape == (BATCH, CAPTIONS, LENGTH, CELLS)
    # The base class takes the steps one after the other.
    stepped, stepped_attention = Decoder.forward(decoder, known, memory, state)
    torch.testing.assert_close(logits, stepped, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(attention, stepped_attention, rtol=1e-4, atol=1e-6)


def test_maps_are_shares_and_differ_between_words(decoder: Decoder) -> None:
    _, attention = decoder(captions(), *decoder.prepare(grid()))
    assert (attention >= 0).all()
    torch.testing.assert_close(attention.sum(-1), torch.ones(BATCH, CAPTIONS, LENGTH))
    assert (attention[:, :, 0] - attention[:, :, 1]).abs().max() > 1e-4


def test_padding_behind_a_caption_changes_nothing_before_it(decoder: Decoder) -> None:
    memory, state = decoder.prepare(grid())
    known = captions()
    padded = known.clone()
    padded[:, :, 3:] = 0
    for found, expected in zip(decoder(padded, memory, state), decoder(known, memory, state), strict=True):
        torch.testing.assert_close(found[:, :, :3], expected[:, :, :3])


def test_hypotheses_of_an_image_share_its_memory(decoder: Decoder) -> None:
    memory, state = decoder.prepare(grid())
    assert {len(value) for value in memory.values()} == {BATCH}
    assert {value.shape[:2] for value in state.values()} == {(BATCH, 1)}
    tokens = torch.randint(1, WORDS, (BATCH, 4))
    together = decoder.step(tokens, memory, expand_beams(state, 4))
    assert together.logits.shape == (BATCH, 4, WORDS) and together.attention.shape == (BATCH, 4, CELLS)
    for beam in range(4):
        alone = decoder.step(tokens[:, beam : beam + 1], memory, state)
        torch.testing.assert_close(together.logits[:, beam], alone.logits[:, 0])
        torch.testing.assert_close(together.attention[:, beam], alone.attention[:, 0])
        for name, value in alone.state.items():
            torch.testing.assert_close(together.state[name][:, beam], value[:, 0])


def test_the_image_and_the_words_before_matter(decoder: Decoder) -> None:
    known = captions()
    memory, state = decoder.prepare(grid())
    logits, _ = decoder(known, memory, state)
    assert (logits - decoder(known, *decoder.prepare(grid()))[0]).abs().max() > 1e-3
    changed = known.clone()
    changed[:, :, 0] = (known[:, :, 0] % (WORDS - 1)) + 1
    assert (logits - decoder(changed, memory, state)[0])[:, :, -1].abs().max() > 1e-4


def test_a_masked_cell_changes_nothing(decoder: Decoder) -> None:
    known, cells = captions(), grid()
    mask = torch.ones(BATCH, CELLS, dtype=torch.bool)
    mask[0, 2:4] = False
    found = []
    for shown in (cells, torch.where(mask.unsqueeze(-1), cells, 50.0)):
        shown = shown.clone().requires_grad_()
        logits, attention = decoder(known, *decoder.prepare(shown, mask))
        loss = logits.square().mean() + attention.square().mean()
        gradients = torch.autograd.grad(loss, [shown, *decoder.parameters()])
        found.append([logits, attention, *gradients])
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)  # to the bit
    logits, attention, gradient, *_ = found[0]
    assert not attention[0, :, :, 2:4].any() and not gradient[0, 2:4].any()
    kept = cells[:1, mask[0]]
    without = decoder(known[:1], *decoder.prepare(kept))[0]
    torch.testing.assert_close(without, logits[:1], rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_finite_differences(decoder: Decoder) -> None:
    decoder.double()
    known, cells = captions(), grid().double().requires_grad_()

    def say(cells: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return decoder(known, *decoder.prepare(cells))

    assert torch.autograd.gradcheck(say, (cells, *decoder.parameters()), fast_mode=True)


def test_words_go_in_and_come_out_by_the_same_embedding(decoder: Decoder) -> None:
    assert not any(
        p.shape == (WORDS, EMBEDDING) for n, p in decoder.named_parameters() if n != "embedding.weight"
    )
    memory, state = decoder.prepare(grid())
    tokens = torch.randint(1, 6, (BATCH, 1))
    before = decoder.step(tokens, memory, state).logits
    with torch.no_grad():
        decoder.embedding.weight[9] += 1.0  # a word that was not read
    after = decoder.step(tokens, memory, state).logits
    others = [word for word in range(WORDS) if word != 9]
    torch.testing.assert_close(after[..., others], before[..., others])
    assert (after[..., 9] - before[..., 9]).abs().min() > 1e-4


def test_all_parameters_learn(decoder: Decoder) -> None:
    logits, _ = decoder.train()(captions(), *decoder.prepare(grid()))
    logits.square().mean().backward()
    still = [n for n, p in decoder.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert still == []


def test_the_search_moves_states_with_their_beams(decoder: Decoder) -> None:
    """Each hypothesis of a beam search is scored again by teacher forcing."""
    with torch.inference_mode():
        memory, state = decoder.prepare(grid())
        options = CaptionOptions(beam_size=4, alternatives=3, max_words=6, length_normalization=0.0)
        for image, found in enumerate(search(TorchStepper(decoder, memory, state), BATCH, options)):
            one = {name: value[image : image + 1] for name, value in memory.items()}
            first = {name: value[image : image + 1] for name, value in state.items()}
            for hypothesis in found:
                said = torch.tensor([[[1, *hypothesis.tokens]]])
                logits, attention = decoder(said, one, first)
                expected = torch.log_softmax(logits[0, 0], -1)
                target = torch.tensor([*hypothesis.tokens, 2])
                expected = expected.gather(1, target[:, None])[:, 0]
                torch.testing.assert_close(torch.tensor(hypothesis.log_probs), expected, rtol=1e-4, atol=1e-4)
                for position, looked in enumerate(hypothesis.attention):
                    torch.testing.assert_close(
                        torch.from_numpy(looked), attention[0, 0, position], rtol=1e-4, atol=1e-5
                    )
