"""How a run is distributed over a cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass

from captioner.errors import OptionsError


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOptions:
    """How work is distributed. Raises `OptionsError` for resources that Ray cannot give an actor."""

    actors: int = 2
    """Models that run in parallel."""
    cpus_per_actor: float = 1.0
    gpus_per_actor: float = 0.0
    """A fraction lets actors share a GPU."""
    images_a_shard: int = 10_000
    """Images captioned again, at most, when an actor dies."""
    batch_size: int = 32

    def __post_init__(self) -> None:
        if not 0 < self.cpus_per_actor < math.inf:
            cpus = f"{self.cpus_per_actor:g}"
            raise OptionsError(f"--cpus-per-actor must be above 0, got {cpus}", "cpus_per_actor")
        gpus = self.gpus_per_actor
        if not 0 <= gpus < math.inf or (gpus > 1 and gpus % 1):
            raise OptionsError(
                f"--gpus-per-actor must be 0 to 1 or a whole number, got {gpus:g}", "gpus_per_actor"
            )
