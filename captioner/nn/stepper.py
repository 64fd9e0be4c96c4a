"""A PyTorch decoder as the search sees it."""

from __future__ import annotations

import numpy as np
import torch

from captioner.model.search.choices import Choices, Floats, Ints, StepRequest, choose_among
from captioner.nn.decoder import Decoder, Tensors, expand_beams


class TorchStepper:
    """A decoder with the memory of a batch of images; a `captioner.model.search.Stepper`."""

    def __init__(
        self, decoder: Decoder, memory: Tensors, state: Tensors, bias: torch.Tensor | None = None
    ) -> None:
        """`memory` and `state` as `Decoder.prepare` returns them. `bias` (vocabulary,) is added to the
        logits of every step."""
        self.decoder, self.memory, self.state, self.bias = decoder, memory, state, bias
        self.device = next(iter(memory.values())).device

    def start(self, beams: int) -> Tensors:
        return expand_beams(self.state, beams)

    def choose(self, tokens: Ints, state: Tensors, request: StepRequest) -> tuple[Choices, Floats, Tensors]:
        if self.device.type == "cpu":
            log_probs, attention, state = self.step(tokens, state)
            return choose_among(log_probs, request), attention, state
        scores, weights, state = self._step(tokens, state)
        return choose_there(scores, request), _fetched(weights), state

    def select(self, images: Ints) -> TorchStepper:
        index = torch.from_numpy(images).to(self.device)
        memory = {name: value[index] for name, value in self.memory.items()}
        state = {name: value[index] for name, value in self.state.items()}
        return TorchStepper(self.decoder, memory, state, self.bias)

    def keep(self, state: Tensors, images: Ints) -> tuple[TorchStepper, Tensors]:
        index = torch.from_numpy(images).to(self.device)
        return self.select(images), {name: value[index] for name, value in state.items()}

    def step(self, tokens: Ints, state: Tensors) -> tuple[Floats, Floats, Tensors]:
        """Read the last tokens, (images, beams): the log-probabilities of all next ones (images, beams,
        vocabulary), the attention (images, beams, cells), and the new state."""
        log_probs, attention, state = self._step(tokens, state)
        return _fetched(log_probs), _fetched(attention), state

    @torch.inference_mode()
    def _step(self, tokens: Ints, state: Tensors) -> tuple[torch.Tensor, torch.Tensor, Tensors]:
        """As `step`, on the device."""
        step = self.decoder.step(torch.from_numpy(tokens).to(self.device), self.memory, state)
        logits = step.logits.float() if self.bias is None else step.logits.float() + self.bias
        return torch.log_softmax(logits, dim=-1), step.attention.float(), step.state

    def reorder(self, state: Tensors, parents: Ints) -> Tensors:
        rows = torch.arange(len(parents), device=self.device).unsqueeze(1)
        beams = torch.from_numpy(np.ascontiguousarray(parents)).to(self.device)
        return {name: value[rows, beams] for name, value in state.items()}


@torch.inference_mode()
def choose_there(log_probs: torch.Tensor, request: StepRequest) -> Choices:
    """As `choose_among`, but on the device, from which only the choices are fetched. Of equal ones, which
    comes first is not defined."""
    forbidden, tracked = (torch.from_numpy(part).to(log_probs.device) for part in request[1:])
    forbidden = forbidden.expand(*log_probs.shape[:2], -1)
    allowed = log_probs.scatter(-1, forbidden, -torch.inf)
    best, tokens = allowed.topk(min(request.best, allowed.shape[-1]), dim=-1)
    return Choices(_fetched(best), tokens.cpu().numpy(), _fetched(log_probs[..., tracked]))


def _fetched(values: torch.Tensor) -> Floats:
    fetched: Floats = values.cpu().numpy()
    return fetched
