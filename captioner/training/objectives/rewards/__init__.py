"""What self-critical training rewards. A new reward is one file and one line in `REWARDS`."""

from __future__ import annotations

from captioner.training.objectives.rewards.absent_objects import AbsentObjects
from captioner.training.objectives.rewards.base import Reward
from captioner.training.objectives.rewards.cider import Cider
from captioner.training.objectives.rewards.contrast import Contrast
from captioner.training.objectives.rewards.naming import Naming
from captioner.training.objectives.rewards.shared_words import SharedWords

REWARDS: dict[str, type[Reward]] = {
    "cider": Cider,
    "contrast": Contrast,
    "objects": AbsentObjects,
    "words": SharedWords,
    "naming": Naming,
}
