"""Rewards on many cores. A GPU samples faster than one core can score, and has no use for the others."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import numpy.typing as npt
import torch

from captioner.cores import available_cores
from captioner.training.objectives.rewards.base import WeightedRewards

LEAST = 32
"""Captions that are worth sending to another process."""
_PR_SET_PDEATHSIG = 1

_rewards: WeightedRewards


class ParallelRewards:
    """The scores of other rewards, from processes that are copies of this one and end with it."""

    def __init__(self, rewards: WeightedRewards, processes: int) -> None:
        self._processes = processes
        context = multiprocessing.get_context("fork")  # what is compared with need not be sent
        self._pool = ProcessPoolExecutor(processes, context, _begin, (rewards,))

    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        """As `WeightedRewards.scores`."""
        size = max(LEAST, -(-len(images) // self._processes))
        starts = range(0, len(images), size)
        parts = [images[start : start + size] for start in starts]
        return np.concatenate(
            list(self._pool.map(_score, parts, [captions[start : start + size] for start in starts]))
        )


def on_many_cores(rewards: WeightedRewards, device: torch.device) -> WeightedRewards | ParallelRewards:
    """The same rewards, on all cores where a GPU trains; a CPU trains with all of them itself."""
    cores = available_cores()
    if device.type == "cpu" or cores == 1 or not hasattr(os, "fork"):
        return rewards
    return ParallelRewards(rewards, cores)


def _begin(rewards: WeightedRewards) -> None:
    global _rewards
    _rewards = rewards
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process hears it too, and ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(libc := ctypes.CDLL(None), "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _score(images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
    return _rewards.scores(images, captions)
