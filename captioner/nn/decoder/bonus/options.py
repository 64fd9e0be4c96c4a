"""Which bonuses a decoder gets."""

from __future__ import annotations

import math
from dataclasses import dataclass

from captioner.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class BonusOptions:
    """The table `[model.bonus]`: what is added to the scores of words, besides what the decoder predicts. For
    the decoders `lstm` and `two_lstm`. Raises `DataError`."""

    checklist_weight: float = 0.0
    """Bonus added to detected words until they appear in the caption; 0 disables
    (`captioner.nn.decoder.bonus.checklist`). Trained with the objective `bag_of_words`."""
    checklist_power: float = 1.0
    """Exponent of that bonus, above 0 and up to 1. Below 1, certain words gain little more than likely
    ones."""
    repetition_cost: float = 0.0
    """Factor of the cost of words that have been said (`captioner.training.names.repetition`); 0 for none.
    Needs a checklist."""
    related_cost: float = 0.0
    """Cost in nats of other names of a thing, once one has been said (`captioner.training.names.related`); 0
    for none. Needs a checklist."""
    attended_detection: float = 0.0
    """Factor of the bonus for words that are detected in the attended cells, but not in the photo as a whole;
    at least 0. Words then depend more on their maps. Trained with the objective `bag_of_words`."""
    classes: int = 0
    """Classes scored at each cell of the encoder's deepest output (`captioner.nn.decoder.bonus.evidence`); 0
    for none."""
    label_classes: tuple[str, ...] = ()
    """Words of labels with a class of their own, which is scored beside those of `classes`; `captioner train`
    chooses them (`captioner.training.names.label_classes`). Needs classes."""
    class_rank: int = 0
    """Features between those of the deepest output and the classes; 0 for none."""
    named_words: int = 0
    """Number of vocabulary words that name classes; `captioner train` counts them."""
    single_words: int = 0
    """How many of them name one class only; `captioner train` counts them."""
    name_continuation: float = 0.0
    """Factor of the bonus for the next word of a name of several words, by the class evidence
    (`captioner.nn.decoder.bonus.names`); 0 for none. Needs classes."""
    name_proposal: float = 0.0
    """Bonus in nats, in the checklist, for the name of what the photo certainly shows; 0 for none. Needs
    classes and a checklist."""
    following_words: int = 0
    """Number of words that go on with a name, and one for none; `captioner train` counts them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label_classes", tuple(self.label_classes))  # JSON has lists
        for name in (
            "checklist_weight",
            "repetition_cost",
            "related_cost",
            "attended_detection",
            "name_continuation",
            "name_proposal",
        ):
            value = getattr(self, name)
            if not 0 <= value < math.inf:  # also false for NaN
                raise DataError(f"{name} must be at least 0 and finite, got {value}")
        if not 0 < self.checklist_power <= 1:
            raise DataError(f"checklist_power must be above 0 and up to 1, got {self.checklist_power}")
        for name in ("repetition_cost", "related_cost"):
            if getattr(self, name) and not self.checklist_weight:
                raise DataError(f"{name} needs a checklist_weight above 0")
        if min(self.classes, self.named_words, self.class_rank) < 0:
            raise DataError("classes, class_rank and named_words must be at least 0")
        if (self.named_words or self.class_rank) and not self.classes:
            raise DataError("class_rank and named_words need classes")
        if not 0 <= self.single_words <= self.named_words:
            raise DataError(f"single_words must be from 0 to named_words, got {self.single_words}")
        if self.label_classes and not self.classes:
            raise DataError("label_classes need classes")
        if self.helps_with_names and not self.classes:
            raise DataError("name_continuation and name_proposal need classes")
        if self.name_proposal and not self.checklist_weight:
            raise DataError("name_proposal needs a checklist_weight above 0")

    @property
    def helps_with_names(self) -> bool:
        return bool(self.name_continuation or self.name_proposal)

    @property
    def scored_classes(self) -> int:
        """The number of classes that are scored at each cell."""
        return self.classes + len(self.label_classes)

    @property
    def wanted(self) -> bool:
        """Whether there is any bonus."""
        return bool(self.checklist_weight or self.attended_detection or self.classes)
