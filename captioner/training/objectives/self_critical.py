"""Self-critical training: sample captions, score them as wholes, reward the better ones.

Rennie et al. 2017 (arXiv:1612.00563), with the mean reward of the image's other samples as the baseline
(Luo 2020, arXiv:2003.09971) in place of the greedy caption.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.model.vocabulary import END, Vocabulary
from captioner.printable import counted
from captioner.training.config.tables import table
from captioner.training.config.train_options import ObjectiveOptions
from captioner.training.data.batches import NAMED, PHOTOS, Group, make_sampled_groups
from captioner.training.objectives.attention_entropy import attention_entropy
from captioner.training.objectives.base import Objective
from captioner.training.objectives.likelihood import log_probs_of, mean_of_words
from captioner.training.objectives.rewards import REWARDS
from captioner.training.objectives.rewards.base import RewardData, WeightedRewards
from captioner.training.objectives.rewards.processes import on_many_cores
from captioner.training.objectives.sampling import logits_of, sample, without_dropout
from captioner.training.run import Run, Step


def _read_rewards(values: Any, path: str) -> dict[str, float]:
    """Weights by name, with that of `cider`. Raises `DataError`."""
    found = {"cider": 1.0}
    for name, weight in table(values, path).items():
        if name not in REWARDS:
            raise DataError(f"{path}.{name}: unknown reward; there is {', '.join(REWARDS)}")
        if not isinstance(weight, int | float) or not weight >= 0:  # also for NaN
            raise DataError(f"{path}.{name}: must be at least 0, got {weight!r}")
        found[name] = float(weight)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCriticalOptions(ObjectiveOptions):
    samples: int = 5
    """Captions sampled per image."""
    temperature: float = 1.0
    """The sampled policy is softmax(logits / temperature). Label smoothing leaves a tenth of the probability
    on random words: at 1 most samples contain one of them, and training would only learn to avoid them."""
    min_references: int = 1
    """Images with fewer captions are left out: their reward is mostly noise."""
    rewards: Mapping[str, float] = field(default_factory=dict, metadata={"read": _read_rewards})
    """Weights of what samples are rewarded for, by the names in `captioner.training.objectives.rewards`;
    `cider` has weight 1 unless it is set. Kinds of photos for which no reward has a weight are left out."""
    attention_entropy: float = 0.0
    """Weight of the mean entropy of the samples' maps: rewards alone blur them."""
    entropy_above: float = 0.0
    """Entropy, in nats, from which it is penalised (`AttentionEntropyOptions.above`)."""

    def __post_init__(self) -> None:
        ObjectiveOptions.__post_init__(self)
        object.__setattr__(self, "rewards", _read_rewards(self.rewards, "rewards"))
        self.at_least(0, "attention_entropy", "entropy_above")
        self.at_least(0.01, "temperature")
        self.at_least(1, "min_references")
        self.at_least(2, "samples")

    def sampled(self, captions: int, labelled: bool) -> int:
        kinds = self.kinds
        times = (PHOTOS in kinds and captions >= self.min_references) + (NAMED in kinds and labelled)
        return self.samples * times

    @property
    def kinds(self) -> set[str]:
        """The kinds of images that have a reward."""
        return {REWARDS[name].kind for name, weight in self.rewards.items() if weight}


class SelfCritical(Objective[SelfCriticalOptions]):
    """REINFORCE on sampled captions; each kind of batch has its reward."""

    Options = SelfCriticalOptions
    batches = frozenset({PHOTOS, NAMED})

    def __init__(self, options: SelfCriticalOptions, run: Run) -> None:
        super().__init__(options, run)
        self.vocabulary, self.max_words = run.vocabulary, run.options.max_words
        data = RewardData(run.examples)
        built = [(weight, REWARDS[name](data)) for name, weight in options.rewards.items() if weight]
        weighted = {
            kind: WeightedRewards([one for one in built if one[1].kind == kind]) for kind in options.kinds
        }
        self.rewards = {kind: on_many_cores(rewards, run.device) for kind, rewards in weighted.items()}
        self._groups = {
            kind: make_sampled_groups(run.examples, kind, options.samples, options.min_references)
            for kind in (PHOTOS, NAMED)
            if kind in self.rewards
        }
        if not self._groups.get(PHOTOS, True):
            least = counted(options.min_references, "caption")
            raise DataError(f"stage {run.stage.name}: no image has {least}")

    def groups(self, random: np.random.Generator) -> list[Group]:
        return [group for groups in self._groups.values() for group in groups]

    def applies_to(self, kind: str) -> bool:
        return bool(self._groups.get(kind))

    def loss(self, step: Step) -> Tensor:
        decoder, options = step.model.decoder, self.options
        # Without dropout, so that the gradient is that of the policy that the captions were sampled from.
        with without_dropout(decoder):
            sampled = sample(
                decoder, step.memory, step.state, options.samples, self.max_words, options.temperature
            )
            logits, attention = logits_of(decoder, sampled, step.memory, step.state)
        rewards = self._rewards(step, sampled).to(sampled.device)
        targets = sampled[:, :, 1:]
        loss = policy_gradient(logits / options.temperature, targets, advantages(rewards))
        if options.attention_entropy:
            entropy = attention_entropy(attention, targets, options.entropy_above)
            loss = loss + options.attention_entropy * entropy
        return loss

    def _rewards(self, step: Step, sampled: Tensor) -> Tensor:
        """float32 (batch, samples)"""
        said = [
            [*self.vocabulary.decode(ids), *([END] if Vocabulary.end_id in ids else [])]
            for ids in sampled[:, :, 1:].flatten(0, 1).tolist()
        ]
        images = step.batch.images.repeat_interleave(self.options.samples).tolist()
        scores = self.rewards[step.batch.kind].scores(images, said)
        return torch.tensor(scores, dtype=torch.float32).view(len(step.batch.images), -1)


def advantages(rewards: Tensor) -> Tensor:
    """Each sample's reward minus the mean of the image's other samples; (batch, samples)."""
    count = rewards.shape[1]
    others = (rewards.sum(dim=1, keepdim=True) - rewards) / (count - 1)
    return rewards - others


def policy_gradient(logits: Tensor, targets: Tensor, advantages: Tensor) -> Tensor:
    """REINFORCE: -advantage * log p(word), a mean over words (Rennie et al. 2017, arXiv:1612.00563).

    `targets` are sampled captions (batch, samples, length), `advantages` (batch, samples).
    """
    return mean_of_words(-advantages.unsqueeze(-1) * log_probs_of(logits, targets), targets)
