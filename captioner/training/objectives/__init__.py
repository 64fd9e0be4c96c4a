"""What training minimises. A new objective is one file and one line in `OBJECTIVES`."""

from __future__ import annotations

from typing import Any

from captioner.training.config.train_options import OBJECTIVE_OPTIONS
from captioner.training.objectives.attention_entropy import AttentionEntropy
from captioner.training.objectives.bag_of_words import BagOfWords
from captioner.training.objectives.base import Objective
from captioner.training.objectives.caption_retention import CaptionRetention
from captioner.training.objectives.class_retention import ClassRetention
from captioner.training.objectives.cross_entropy import CrossEntropy
from captioner.training.objectives.distillation import Distillation
from captioner.training.objectives.doubly_stochastic import DoublyStochastic
from captioner.training.objectives.feature_distillation import FeatureDistillation
from captioner.training.objectives.hard_attention import HardAttention
from captioner.training.objectives.label_likelihood import LabelLikelihood
from captioner.training.objectives.pointing import Pointing
from captioner.training.objectives.self_critical import SelfCritical

OBJECTIVES: dict[str, type[Objective[Any]]] = {
    "cross_entropy": CrossEntropy,
    "distillation": Distillation,
    "doubly_stochastic": DoublyStochastic,
    "attention_entropy": AttentionEntropy,
    "pointing": Pointing,
    "bag_of_words": BagOfWords,
    "feature_distillation": FeatureDistillation,
    "class_retention": ClassRetention,
    "caption_retention": CaptionRetention,
    "hard_attention": HardAttention,
    "self_critical": SelfCritical,
    "label_likelihood": LabelLikelihood,
}
OBJECTIVE_OPTIONS.update({name: objective.Options for name, objective in OBJECTIVES.items()})
