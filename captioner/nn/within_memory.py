"""Refuses a network that is too large for the machine before it takes the memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.modules import module as registry

from captioner.errors import DataError
from captioner.memory import available_memory

SHARE = 0.5
"""The part of the available memory that the weights of a network may take."""


@contextmanager
def within_memory() -> Iterator[None]:
    """Raise `DataError` where networks are built whose weights would take more memory than there is.

    PyTorch reserves the memory of a weight, registers the weight, and only then fills it. The options of a
    checkpoint or a bundle can ask for more than it holds.
    """
    left = SHARE * (available_memory() or math.inf)

    def count(_module: nn.Module, _name: str, weight: Tensor | None) -> None:
        nonlocal left
        left -= 0 if weight is None else weight.nbytes
        if left < 0:
            raise MemoryError

    hooks = (
        registry.register_module_parameter_registration_hook(count),
        registry.register_module_buffer_registration_hook(count),
    )
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if "alloc" not in str(error) and not isinstance(error, MemoryError):
            raise
        raise DataError("a model of this size does not fit into the memory of this machine") from error
    finally:
        for hook in hooks:
            hook.remove()
