"""A PyTorch decoder as the search sees it."""

from __future__ import annotations

import numpy as np
import torch

from captioner.model.search import Floats, Ints
from captioner.nn.decoder import Decoder, Tensors, expand_beams


class TorchStepper:
    """A decoder with the memory of a batch of images; a `captioner.model.search.Stepper`."""

    def __init__(self, decoder: Decoder, memory: Tensors, state: Tensors) -> None:
        """`memory` and `state` as `Decoder.prepare` returns them."""
        self.decoder, self.memory, self.state = decoder, memory, state
        self.device = next(iter(memory.values())).device

    def start(self, beams: int) -> Tensors:
        return expand_beams(self.state, beams)

    @torch.inference_mode()
    def step(self, tokens: Ints, state: Tensors) -> tuple[Floats, Floats, Tensors]:
        step = self.decoder.step(torch.from_numpy(tokens).to(self.device), self.memory, state)
        log_probs = torch.log_softmax(step.logits.float(), dim=-1)
        return log_probs.cpu().numpy(), step.attention.float().cpu().numpy(), step.state

    def reorder(self, state: Tensors, parents: Ints) -> Tensors:
        rows = torch.arange(len(parents), device=self.device).unsqueeze(1)
        beams = torch.from_numpy(np.ascontiguousarray(parents)).to(self.device)
        return {name: value[rows, beams] for name, value in state.items()}
