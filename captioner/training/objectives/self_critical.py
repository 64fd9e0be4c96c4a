"""Self-critical training: sample captions, score them as wholes, reward the better ones.

Rennie et al. 2017 (arXiv:1612.00563), with the mean reward of the image's other samples as the baseline
(Luo 2020, arXiv:2003.09971) in place of the greedy caption.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from captioner.model.vocabulary import END, Vocabulary
from captioner.training.data import NAMED, PHOTOS, Group
from captioner.training.likelihood import log_probs_of, mean_of_words
from captioner.training.objectives.attention_entropy import attention_entropy
from captioner.training.objectives.base import Objective, Run
from captioner.training.options import ObjectiveOptions
from captioner.training.rewards import Cider, Naming, Reward
from captioner.training.sampling import logits_of, sample, without_dropout
from captioner.training.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCriticalOptions(ObjectiveOptions):
    samples: int = 5
    """Captions sampled per image."""
    temperature: float = 1.0
    """The sampled policy is softmax(logits / temperature). Label smoothing leaves a tenth of the probability
    on random words: at 1 most samples contain one of them, and training would only learn to avoid them."""
    min_references: int = 1
    """Images with fewer captions are left out: their reward is mostly noise."""
    contrast: float = 0.0
    """Factor of a sample's mean CIDEr as a caption of any image, which is subtracted from its reward:
    captions that suit many photos get less, so that captions become specific."""
    objects: float = 0.0
    """Subtracted from the reward for each object of COCO that a sample names and the photo does not have,
    where the data list the objects (Rohrbach et al. 2018, arXiv:1809.02156)."""
    words: float = 0.0
    """Factor of the words that a sample shares with the closest human caption, 0 to 1 (`shared_words`), which
    is added to its reward: captions say more of what people say."""
    naming: float = 0.0
    """Factor of the reward that samples for labelled photos get for naming what is there; at 0 these photos
    are left out."""
    attention_entropy: float = 0.0
    """Weight of the mean entropy of the samples' maps: rewards alone blur them."""
    entropy_above: float = 0.0
    """Entropy, in nats, from which it is penalised (`AttentionEntropyOptions.above`)."""

    def __post_init__(self) -> None:
        ObjectiveOptions.__post_init__(self)
        self.at_least(0, "contrast", "objects", "words", "naming", "attention_entropy", "entropy_above")
        self.at_least(0.01, "temperature")
        self.at_least(1, "min_references")
        self.at_least(2, "samples")

    def sampled(self, captions: int, labelled: bool) -> int:
        times = (captions >= self.min_references) + (labelled and self.naming > 0)
        return self.samples * times


class SelfCritical(Objective[SelfCriticalOptions]):
    """REINFORCE on sampled captions; each kind of batch has its reward."""

    Options = SelfCriticalOptions
    batches = frozenset({PHOTOS, NAMED})

    def __init__(self, options: SelfCriticalOptions, run: Run) -> None:
        super().__init__(options, run)
        self.vocabulary, self.max_words = run.vocabulary, run.options.max_words
        self.rewards: dict[str, Reward] = {
            PHOTOS: Cider(
                run.examples,
                options.min_references,
                options.samples,
                stage=run.stage.name,
                contrast=options.contrast,
                objects=options.objects,
                words=options.words,
            ),
            NAMED: Naming(run.examples, options.naming, options.samples),
        }

    def groups(self, random: np.random.Generator) -> list[Group]:
        return [group for reward in self.rewards.values() for group in reward.groups]

    def applies_to(self, kind: str) -> bool:
        return kind in self.rewards and bool(self.rewards[kind].groups)

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
