"""What is added to the scores of words, besides what a decoder predicts.

A decoder that `detects` words takes these bonuses as one part, built once for it:

- **checklist**: detected words, until they appear in the caption; words that have been said cost something,
  and so do other names of the same thing;
- **attended detection**: words that are detected in the attended cells, but not in the photo as a whole;
- **evidence**: words that name the classes of the attended cells;
- **names**: how names of several words go on, and names that should be said at all.

The last three are parts of what is learnt by teacher forcing. The checklist changes the search only: a model
trained with it would learn to undo it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioner.model.vocabulary import Vocabulary
from captioner.nn.blocks import masked_mean
from captioner.nn.decoder.bonus import checklist
from captioner.nn.decoder.bonus.evidence import ClassSizes, WordEvidence
from captioner.nn.decoder.bonus.names import NameHelp
from captioner.nn.decoder.bonus.options import BonusOptions as BonusOptions

Tensors = dict[str, Tensor]


class Spoken(NamedTuple):
    """What a decoder computes for a word, before it scores the vocabulary; (batch, queries, …), a query being
    a hypothesis or a position of a known caption."""

    output: Tensor
    """What the words are compared with, (…, embedding)."""
    query: Tensor
    """State and context, (…, hidden + features)."""
    context: Tensor
    """What was seen, before its gate, (…, features)."""
    gate: Tensor
    """Of the context, from 0 to 1, (…, features)."""
    attention: Tensor
    """(…, cells)"""


class Bonuses(nn.Module):
    """The bonuses of one decoder."""

    repetition: Tensor | None
    """Cost of each word once it has been said, float (vocabulary,) in nats; None for no costs."""
    related: Tensor | None
    """Other names of what each word names, int64 (vocabulary, `checklist.RELATED`), filled up with padding;
    None if they cost nothing."""

    def __init__(self, options: BonusOptions, vocabulary: int, classes: ClassSizes | None = None) -> None:
        """`vocabulary` is the number of words; `classes` are needed with `BonusOptions.classes`."""
        super().__init__()
        self.options = options
        self.register_buffer("repetition", torch.zeros(vocabulary) if options.repetition_cost else None)
        others = torch.full((vocabulary, checklist.RELATED), Vocabulary.pad_id)
        self.register_buffer("related", others if options.related_cost else None)
        self.evidence: WordEvidence | None = None
        """Class scores of cells; None in models without classes."""
        self.names: NameHelp | None = None
        """Help with names that hardly any caption has; None for none."""
        if options.classes:
            assert classes is not None
            self.evidence = WordEvidence(options, vocabulary, classes)
            self.evidence.leave_open(options.classes)
        if options.helps_with_names:
            self.names = NameHelp(options.scored_classes, options.following_words, vocabulary)
            self.names.proposes = options.name_proposal > 0

    @property
    def _costs(self) -> checklist.Costs:
        return checklist.Costs(self.repetition, self.related, self.options.related_cost)

    def remember(self, values: Tensor, mask: Tensor, deepest: Tensor | None) -> Tensors:
        """Entries of the memory: `values` (batch, cells, features) are the attention's, `mask` bool (batch,
        cells) says where, and `deepest` (batch, channels, rows, columns) is the encoder's deepest output."""
        memory = {}
        if self.options.attended_detection:
            memory["everywhere"] = masked_mean(values, mask)
        if self.evidence is not None and deepest is not None:
            scores = self.evidence.class_logits(deepest)
            memory["evidence"] = self.evidence(scores)
            if self.names is not None:
                memory |= self.names(scores)
        return memory

    def begin(self, detected: Tensor) -> Tensors:
        """Entries of the state before the first word, from the logits of detected words, (batch,
        vocabulary)."""
        weight, power = self.options.checklist_weight, self.options.checklist_power
        return {checklist.STATE: checklist.write(detected, weight, power)} if weight else {}

    def attended(self, spoken: Spoken, detector: Tensor, memory: Tensors) -> Tensor:
        """The output of a word, with what the attended cells show beyond the photo as a whole; `detector`
        (embedding, features) detects words in means of the grid."""
        if not self.options.attended_detection:
            return spoken.output
        detail = spoken.gate * (spoken.context - memory["everywhere"].unsqueeze(1))
        return spoken.output + self.options.attended_detection * F.linear(detail, detector)

    def named(self, logits: Tensor, tokens: Tensor, spoken: Spoken, memory: Tensors) -> Tensor:
        """`logits` (batch, queries, vocabulary) with the bonuses of names; `tokens` int64 (batch, queries)
        are the words before."""
        if self.evidence is None:
            return logits
        seen = self.evidence.seen(spoken.attention)
        logits = self.evidence.add(logits, tokens, spoken.query, seen, memory["evidence"])
        return logits if self.names is None else self.names.go_on(logits, tokens, seen, memory["parts"])

    def searched(
        self, logits: Tensor, tokens: Tensor, memory: Tensors, before: Tensors
    ) -> tuple[Tensor, Tensors]:
        """The logits of a step of the search, and the entries of its new state: `tokens` int64 (batch, beams)
        were read in the state `before`."""
        return checklist.add_to_step(logits, tokens, before, self._costs, memory.get("proposals"))

    def searched_all(self, logits: Tensor, tokens: Tensor, memory: Tensors, first: Tensors) -> Tensor:
        """As the logits of `searched`, for all steps of known captions at once: `logits` (batch, captions,
        length, vocabulary) from teacher forcing with `tokens` int64 (batch, captions, length) from the state
        `first`."""
        return checklist.add_to_all(logits, tokens, first, self._costs, memory.get("proposals"))
