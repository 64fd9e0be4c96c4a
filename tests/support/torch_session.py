"""PyTorch in the place of ONNX Runtime, which takes seconds to export to."""

from __future__ import annotations

import numpy as np
import torch


class TorchSession:
    """Runs the frozen part of a network on pixels, with the interface of an ONNX Runtime session."""

    def __init__(self, frozen: torch.nn.Module) -> None:
        self.frozen = frozen

    def run(self, _: None, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [stage.numpy() for stage in self.frozen(torch.from_numpy(inputs["pixels"]))]
