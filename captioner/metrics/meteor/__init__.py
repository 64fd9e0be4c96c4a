"""METEOR 1.5 (Denkowski and Lavie 2014, "Meteor Universal: Language Specific Translation Evaluation for Any
Target Language"), with the parameters for English that the COCO caption evaluation uses."""

from captioner.metrics.meteor.scorer import Meteor, meteor_score

__all__ = ["Meteor", "meteor_score"]
