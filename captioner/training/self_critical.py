"""Self-critical training: sample captions, score them as wholes, reward the better ones.

Rennie et al. 2017 (arXiv:1612.00563), with the mean reward of the image's other samples as the baseline
(Luo 2020, arXiv:2003.09971) in place of the greedy caption.
"""

from __future__ import annotations

import torch
from torch import Tensor

from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder import Decoder, Tensors, expand_beams


@torch.no_grad()
def sample(
    decoder: Decoder, memory: Tensors, state: Tensors, samples: int, max_words: int, temperature: float = 1.0
) -> Tensor:
    """Captions drawn word by word from the model: int64 (batch, samples, length + 1), start token first,
    padded behind the end token. One that reaches `max_words` has no end token."""
    batch = next(iter(memory.values())).shape[0]
    state = expand_beams(state, samples)
    device = next(iter(memory.values())).device
    tokens = torch.full((batch, samples), Vocabulary.start_id, device=device)
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    sequence = [tokens]
    for words in range(max_words + 1):
        step = decoder.step(tokens, memory, state)
        logits = step.logits.float() / temperature
        logits[..., [Vocabulary.pad_id, Vocabulary.start_id, Vocabulary.unknown_id]] = -torch.inf
        drawn = torch.multinomial(torch.softmax(logits, dim=-1).flatten(0, 1), 1).view(batch, samples)
        tokens = drawn.masked_fill(ended, Vocabulary.pad_id)
        if words == max_words:  # there may come an end, but no word
            tokens = tokens.masked_fill(tokens != Vocabulary.end_id, Vocabulary.pad_id)
        sequence.append(tokens)
        ended |= tokens == Vocabulary.end_id
        state = step.state
        if bool(ended.all()):
            break
    return torch.stack(sequence, dim=-1)


def advantages(rewards: Tensor) -> Tensor:
    """Each sample's reward minus the mean of the image's other samples; (batch, samples)."""
    count = rewards.shape[1]
    others = (rewards.sum(dim=1, keepdim=True) - rewards) / (count - 1)
    return rewards - others
