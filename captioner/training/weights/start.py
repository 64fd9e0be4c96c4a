"""Weights to start from: those of a checkpoint, or of a bundle, so that a model can be taught more."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.configuration import below
from captioner.errors import BundleError, DataError, clip
from captioner.model.bundle import Bundle
from captioner.model.installed import installed_models, instead_of
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.decoder.bonus.evidence import UNFITTED
from captioner.nn.encoder import Backbone, build_backbone
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.options import FALLBACK, CaptionOptions
from captioner.training.config.train_options import read_model
from captioner.training.names.class_words import learnt_from
from captioner.training.weights.checkpoint import load_model
from captioner.training.weights.stored import ADDED, RARE, stored_weights

ADDABLE = ("color_levels",)
ADDABLE_BONUSES = ("classes", "repetition_cost", "related_cost", "name_continuation", "name_proposal")
"""Parts that a model may get; one that it has stays as it is."""
CHANGEABLE = (*ADDABLE, "encoder", "mean_weight", "attention", "attention_hidden")
CHANGEABLE_BONUSES = (*ADDABLE_BONUSES, "checklist_weight", "checklist_power", "attended_detection")
"""What a run may set otherwise than the model that it starts from. A new attention learns from nothing;
a new encoder has its published weights, and what reads it learns from nothing."""


@dataclass(frozen=True, slots=True)
class Start:
    """A trained model; its weights have the names that `CaptionModel` gives them."""

    vocabulary: Vocabulary
    model: ModelOptions
    weights: dict[str, Tensor]
    confidence: Mapping[str, Any] | None = None
    """The calibration of a bundle (`captioner.model.calibration`), which holds roughly for a model that is
    taught a little more."""
    search: CaptionOptions = FALLBACK
    """How the model searches for captions; resolved."""
    taught_words: int = 0
    """The last words of the vocabulary, which came with corrections: only their embeddings are known."""
    lacks_corrections: bool = False
    """Whether captions of the model were corrected, and this is the model before that."""

    @classmethod
    def read(cls, name: str, root: Path, *, taught: bool = False) -> Start:
        """`name` is a bundle or a checkpoint below `root`, or an installed model: "default" is the embedded
        one.

        The model is as it was before its captions were corrected (`captioner.export.taught`): what was added
        then does not belong to weights that are trained. With `taught`, it is as it is now.

        Raises `DataError` or `BundleError` when there is nothing to start from.
        """
        start = cls._read(name, root)
        bias = start.weights.get("decoder.bonus.evidence.classes.bias")
        if bias is not None and (bias[start.model.bonus.classes :] < UNFITTED / 2).any():
            raise DataError(f"{name} was saved before its label classes were fitted")
        return start if taught else start._untaught()

    @classmethod
    def _read(cls, name: str, root: Path) -> Start:
        path = below(root, name)
        if path.is_file():
            model, vocabulary, run, contents = load_model(path)
            search = run.search.resolve()
            return cls(
                vocabulary, model.options, dict(model.state_dict()), contents.get("confidence"), search
            )
        return cls.of(Bundle.load(path if path.exists() else _installed(name, path)), name)

    @classmethod
    def of(cls, bundle: Bundle, name: str) -> Start:
        """The model of a bundle, which errors call `name`, with all that it was taught. Raises `DataError`
        if it does not say how it is built."""
        try:
            options = read_model(bundle.manifest["training"]["model"])
        except (KeyError, TypeError, DataError):
            raise DataError(f"the bundle {name} does not say how its model is built") from None
        weights = {**stored_weights(bundle.encoder), **stored_weights(bundle.decoder)}
        added = {name: weights.pop(name) for name in list(weights) if name.endswith(ADDED)}
        taught = max(map(len, added.values()), default=0)
        for name, rows in added.items():
            known = name.removesuffix(ADDED)
            weights[known] = torch.cat([weights[known], rows])
        if named := options.bonus.named_words:  # at export they became the last of the vocabulary, in order
            others = torch.full((len(bundle.vocabulary) - taught - named,), named)
            weights["decoder.bonus.evidence.column"] = torch.cat([others, torch.arange(named)])
        confidence = bundle.manifest.get("confidence")
        return cls(bundle.vocabulary, options, weights, confidence, bundle.decoding, taught)

    def _untaught(self) -> Start:
        if not self.model.taught:
            return self
        known = len(self.vocabulary) - self.taught_words
        taught = ("encoder.taught.", RARE)
        weights = {name: w for name, w in self.weights.items() if not name.startswith(taught)}
        for name in ("weight", "bias"):
            weights[f"decoder.embedding.{name}"] = weights[f"decoder.embedding.{name}"][:known]
        return dataclasses.replace(
            self,
            vocabulary=Vocabulary(self.vocabulary.words[:known]),
            model=dataclasses.replace(self.model, taught=0),
            weights=weights,
            taught_words=0,
            lacks_corrections=True,
        )

    def architecture(self, wanted: ModelOptions, named: Container[str] = ()) -> ModelOptions:
        """The architecture of a run that continues from here: the model's own, with what `wanted` sets of
        `CHANGEABLE` and `CHANGEABLE_BONUSES`: what is not the default, and what is `named`.

        `wanted` may leave all else out. Raises `DataError` if it is of another architecture."""
        changes = _set(wanted, CHANGEABLE, named)
        bonuses = _set(wanted.bonus, CHANGEABLE_BONUSES, named)
        bonus = dataclasses.replace(self.model.bonus, **bonuses)
        own = dataclasses.replace(self.model, **changes, bonus=bonus)
        kept = _keeps(own, self.model, ADDABLE) and _keeps(bonus, self.model.bonus, ADDABLE_BONUSES)
        if wanted not in (own, ModelOptions(**changes, bonus=BonusOptions(**bonuses))) or not kept:
            raise DataError("[model] does not match the model to start from; leave the table [model] out")
        return own

    def extended(self, learnt: Vocabulary) -> Vocabulary:
        """The words of the start, then those of `learnt` that it lacks."""
        known = set(self.vocabulary.words)
        return Vocabulary([*self.vocabulary.words, *(w for w in learnt.words if w not in known)])

    def build(self) -> CaptionModel:
        """The model itself, on the CPU. Raises `DataError` as `give` does."""
        model = CaptionModel(self.model, len(self.vocabulary))
        self.give(model, self.vocabulary)
        return model

    @torch.no_grad()
    def give(
        self, model: CaptionModel, vocabulary: Vocabulary, related: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Copy the weights into `model`, whose `vocabulary` is that of the start, extended. New colours keep
        their zeros. A new word gets a tenth of its random embedding and the mean embedding of the known words
        that it is `related` to, so that it is usable before any caption had it. If it has none: of those that
        any new word is related to, of all names of classes, or of all words. Raises `DataError` if a weight
        is missing or of another shape."""
        if (rare := self.weights.get(f"{RARE}words")) is not None:
            model.decoder.embedding.add_rare(rare.long().tolist())
            assert model.encoder.taught is not None
            model.encoder.taught.rare = torch.zeros(model.options.taught, len(rare))
        fresh = tuple(self._new_parts(model.options))
        relatives = self._relatives(vocabulary.words[len(self.vocabulary) :], related or {})
        old = len(self.vocabulary)
        for name, value in model.state_dict().items():
            if name.endswith("num_batches_tracked") or name.startswith(fresh) or not value.numel():
                continue
            given = self.weights.get(name)
            if name == "decoder.bonus.evidence.column":
                value.fill_(model.options.bonus.named_words)  # a new word names none of the classes
            if given is None:
                raise DataError(f"the model to start from does not hold {name}")
            given, value = torch.atleast_1d(given, value)  # a scale may have no axis
            lengths = len(given), len(value)
            # In a graph, a vector over words may be a column.
            by_word = lengths[0] in (old, old - self.taught_words) and lengths[1] == len(vocabulary)
            by_word = by_word and given[0].numel() == value[0].numel()
            grown = name.startswith(("decoder.bonus.evidence.classes.", "encoder.taught."))
            rows = slice(len(given)) if by_word or grown else slice(None)
            if value[rows].numel() != given.numel():
                raise DataError(f"the model to start from holds {name} of another shape")
            value[rows] = given.view_as(value[rows])
            if by_word and value.is_floating_point():
                for row, known in enumerate(relatives, old):
                    value[row] = 0.1 * value[row] + value[known].mean(dim=0)
        if self._gets_classes(model.options.bonus):
            self._give_scales(model)
        if model.options.encoder != self.model.encoder and model.evidence is not None:
            bias = model.evidence.classes.bias
            bias[bias < UNFITTED / 2] = 0.0  # all classes are learnt anew

    def needs_names(self, bonus: BonusOptions) -> bool:
        """Whether a model that continues from here has names to get that the start does not have."""
        own = (self.model.bonus.name_continuation, self.model.bonus.name_proposal)
        new = own != (bonus.name_continuation, bonus.name_proposal) or self._gets_classes(bonus)
        return bonus.helps_with_names and new

    def needs_related(self, bonus: BonusOptions) -> bool:
        """Whether a model that continues from here has to get the related names of its words."""
        return bool(bonus.related_cost) and (not self.model.bonus.related_cost or self._gets_classes(bonus))

    def caption_counts(self, vocabulary: Vocabulary) -> Tensor:
        """The number of captions with each word that the model has learnt from, float (vocabulary), of which
        the start's is the beginning. 0 if the model does not tell: only its help with names does."""
        counts = torch.zeros(len(vocabulary))
        gains = self.weights.get("decoder.bonus.names.following_gain")
        if gains is not None and self.model.bonus.name_continuation:
            counts[: len(gains)] = learnt_from(gains.flatten() / self.model.bonus.name_continuation)
        return counts

    def _gets_classes(self, bonus: BonusOptions) -> bool:
        """Whether there are label classes that the start, which has other classes, lacks."""
        return bool(self.model.bonus.classes) and bonus.label_classes != self.model.bonus.label_classes

    def _give_scales(self, model: CaptionModel) -> None:
        """The strength of each named word's evidence; words that are named now get the median."""
        evidence = model.evidence
        assert evidence is not None
        scale, column = (self.weights[f"decoder.bonus.evidence.{name}"] for name in ("scale", "column"))
        evidence.scale.fill_(scale.median())
        # If the list of ImageNet's names has changed, a word may no longer name a class.
        ours = evidence.column[: len(column)].to(column.device)
        both = (column < len(scale)) & (ours < len(evidence.scale))
        evidence.scale[ours[both]] = scale[column[both]].to(evidence.scale.device)

    def _new_parts(self, model: ModelOptions) -> Iterator[str]:
        """Beginnings of the names of weights of `model` that the start does not have."""
        if model.encoder != self.model.encoder:
            yield from ("encoder.backbone.", "encoder.projections.")
            yield from (f"decoder.bonus.evidence.{name}." for name in ("classes", "shared"))
        if not self.model.color_levels:
            yield "encoder.colors."
        if not self.model.taught:
            yield "encoder.taught."
        for name in ("encoder.taught.quiet", "encoder.taught.brings"):
            if name not in self.weights:  # of a model that was taught before there were any
                yield name
        if not self.model.bonus.classes:
            yield "decoder.bonus.evidence."
        if self._gets_classes(model.bonus):
            yield from (
                f"decoder.bonus.evidence.{name}" for name in ("only", "membership", "column", "scale")
            )
        if self.needs_names(model.bonus):
            yield "decoder.bonus.names."
        if not self.model.bonus.repetition_cost:
            yield "decoder.bonus.repetition"
        if self.needs_related(model.bonus):
            yield "decoder.bonus.related"
        if (model.attention, model.attention_hidden) != (self.model.attention, self.model.attention_hidden):
            yield "decoder.attention."

    def _relatives(self, new: Sequence[str], related: Mapping[str, Sequence[str]]) -> list[list[int]]:
        """For each new word, the ids of the known words whose mean embedding it starts with."""
        ids = self.vocabulary.ids
        found = [[ids[word] for word in related.get(one, ()) if word in ids] for one in new]
        every = [token for one in found for token in one] or self._names()
        return [one or every for one in found]

    def _names(self) -> list[int]:
        """The words that name classes, where the start has classes; else all words."""
        column = self.weights.get("decoder.bonus.evidence.column")
        if column is None:
            return list(range(len(SPECIAL), len(self.vocabulary)))
        return torch.nonzero(column < self.model.bonus.named_words).flatten().tolist()


def _installed(name: str, path: Path) -> Path:
    """The folder of an installed model, as there is nothing at `path`. Raises `BundleError`."""
    models = installed_models()
    if name not in models:
        there = instead_of(name, models)
        raise BundleError(f"there is no model {clip(name)}, and {path} does not exist; {there}")
    return models[name]


@torch.no_grad()
def mix_backbone(backbone: Backbone, name: str, share: float) -> None:
    """Take this share of the pretrained backbone of that name, and what is left of `backbone`'s own weights.

    Raises `DataError` or `RuntimeMissingError` as `build_backbone` does.
    """
    pretrained = build_backbone(name).state_dict()
    for key, value in backbone.state_dict().items():
        if value.is_floating_point():
            value.lerp_(pretrained[key].to(value.device), share)


def _set(options: Any, names: Iterable[str], named: Container[str]) -> dict[str, Any]:
    """Those of the options with these names that are not the default, or are `named`."""
    default = type(options)()
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if name in named or value != getattr(default, name)}


def _keeps(ours: Any, before: Any, names: Iterable[str]) -> bool:
    """Whether options with these names that were set before are the same."""
    return all(getattr(ours, name) == getattr(before, name) for name in names if getattr(before, name))
