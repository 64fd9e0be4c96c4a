"""Encoder and decoder put together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from captioner.errors import DataError
from captioner.images.letterbox import Letterbox
from captioner.nn.attention import ATTENTIONS
from captioner.nn.decoder import DECODERS, Decoder, DecoderSizes, Tensors
from captioner.nn.decoder.bonus import Bonuses, BonusOptions
from captioner.nn.decoder.bonus.evidence import ClassSizes, WordEvidence
from captioner.nn.decoder.bonus.names import NameHelp, Names
from captioner.nn.encoder import STRIDES, GridEncoder, GridRefiner, build_backbone, pretrained_classifier
from captioner.nn.within_memory import within_memory

RESIZES = ("squash", "letterbox")
MOST_LAYERS = 100
"""Most layers of the refiner and of the transformer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """The architecture. Saved with every checkpoint and in every bundle. Raises `DataError`."""

    encoder: str = "efficientnet_lite2"
    image_size: int = 224
    """Side of the square the photo is resized to, in pixels; a multiple of 32."""
    resize: str = "squash"
    """squash: the photo fills the square, distorted; letterbox: it keeps its shape, and cells of the grid
    without a photo are masked (see `captioner.images.letterbox`)."""
    stride: int = 16
    """Pixels between cells of the grid: 8, 16 or 32; 16 at 224 pixels gives 14 x 14 cells."""
    features: int = 512
    color_levels: int = 0
    """Levels of red, green and blue in the histogram of each cell's colours that is added to the grid: 4 give
    64 bins; 0 for no histogram."""
    refiner_layers: int = 0
    """Self-attention layers over the grid, before the decoder; 0 for none."""
    taught: int = 0
    """Corrected photos that the model has learnt, or keys that many of them share
    (`captioner.nn.encoder.taught`); `captioner teach` counts them."""
    attention: str = "additive"
    attention_hidden: int = 256
    attention_heads: int = 8
    """Heads of attentions with several, of the transformer and of the refiner. Divides `attention_hidden`,
    `hidden` and `features` respectively."""
    decoder: str = "lstm"
    layers: int = 2
    """Layers of the transformer; an LSTM has one."""
    hidden: int = 512
    embedding: int = 512
    dropout: float = 0.5
    mean_weight: float = 1.0
    """Factor of the photo's mean in the input of the LSTM, at least 0. Below 1, words depend more on the
    cells they attend to; the same words are detected. For the decoders `lstm` and `two_lstm`."""
    bonus: BonusOptions = field(default_factory=BonusOptions)
    """What is added to the scores of words. For the decoders `lstm` and `two_lstm`."""

    def __post_init__(self) -> None:
        for name, registry in (("attention", ATTENTIONS), ("decoder", DECODERS)):
            if getattr(self, name) not in registry:
                raise DataError(f"unknown {name} {getattr(self, name)!r}; there is {', '.join(registry)}")
        if self.resize not in RESIZES:
            raise DataError(f"unknown resize {self.resize!r}; there is {', '.join(RESIZES)}")
        if self.stride not in STRIDES:
            raise DataError(f"stride must be one of {STRIDES}, got {self.stride}")
        if self.image_size < 32 or self.image_size % 32:
            raise DataError(f"image_size must be a multiple of 32, got {self.image_size}")
        for name in ("features", "attention_hidden", "attention_heads", "layers", "hidden", "embedding"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.color_levels < 0 or self.color_levels == 1:
            raise DataError(f"color_levels must be 0 or at least 2, got {self.color_levels}")
        for name in ("refiner_layers", "taught"):
            if getattr(self, name) < 0:
                raise DataError(f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("refiner_layers", "layers"):
            if getattr(self, name) > MOST_LAYERS:
                raise DataError(f"{name} must be at most {MOST_LAYERS}, got {getattr(self, name)}")
        if not 0 <= self.mean_weight < math.inf:  # also false for NaN
            raise DataError(f"mean_weight must be at least 0 and finite, got {self.mean_weight}")
        if not DECODERS[self.decoder].detects and (self.mean_weight != 1 or self.bonus.wanted):
            name = "mean_weight" if self.mean_weight != 1 else "bonus"
            raise DataError(f"{name} needs the decoder lstm or two_lstm")
        if not 0 <= self.dropout < 1:
            raise DataError(f"dropout must be at least 0 and below 1, got {self.dropout}")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the square."""
        side = self.image_size // self.stride
        return side, side


class CaptionModel(nn.Module):
    """Pixels in, words and attention out."""

    encoder: GridEncoder
    decoder: Decoder

    @within_memory()
    def __init__(self, options: ModelOptions, vocabulary: int, weights: str | None = None) -> None:
        """`vocabulary` is the number of words; `weights` are the backbone's (see `build_backbone`). Raises
        `DataError` for a model that does not fit into memory."""
        super().__init__()
        self.options = options
        refiner = None
        if options.refiner_layers:
            refiner = GridRefiner(
                options.features, options.refiner_layers, options.attention_heads, options.dropout
            )
        self.encoder = GridEncoder(
            build_backbone(options.encoder, weights),
            options.stride,
            options.features,
            refiner,
            options.color_levels,
            options.taught,
        )
        attention = ATTENTIONS[options.attention](
            options.hidden, options.features, options.attention_hidden, options.attention_heads
        )
        sizes = DecoderSizes(
            vocabulary=vocabulary,
            features=options.features,
            hidden=options.hidden,
            embedding=options.embedding,
            dropout=options.dropout,
            layers=options.layers,
            heads=options.attention_heads,
            mean_weight=options.mean_weight,
        )
        self.decoder = DECODERS[options.decoder](attention, sizes)
        if options.bonus.wanted:
            self.decoder.bonus = self._bonuses()

    def _bonuses(self) -> Bonuses:
        options = self.options
        classes = ClassSizes(
            self.encoder.backbone.channels[-1],
            options.hidden + options.features,
            options.grid,
            STRIDES[-1] // options.stride,
        )
        return Bonuses(options.bonus, self.decoder.embedding.num_embeddings, classes)

    @property
    def evidence(self) -> WordEvidence | None:
        """The class evidence, if the model has classes."""
        return None if self.decoder.bonus is None else self.decoder.bonus.evidence

    @property
    def names(self) -> NameHelp | None:
        """The help with names, if the model has it."""
        return None if self.decoder.bonus is None else self.decoder.bonus.names

    @property
    def repetition(self) -> Tensor | None:
        """The costs of words that have been said, float (vocabulary,) in nats, if there are any."""
        return None if self.decoder.bonus is None else self.decoder.bonus.repetition

    @property
    def related(self) -> Tensor | None:
        """The other names of what each word names, int64 (vocabulary, `RELATED`), if they cost something."""
        return None if self.decoder.bonus is None else self.decoder.bonus.related

    def change_bonus(self, options: BonusOptions) -> None:
        """Use the bonuses otherwise, without new weights: with another checklist, or without parts."""
        before, self.options = self.decoder.bonus, dataclasses.replace(self.options, bonus=options)
        self.decoder.bonus = None
        if options.wanted:
            self.decoder.bonus = self._bonuses()
            self.decoder.bonus.load_state_dict(before.state_dict() if before else {}, strict=False)

    @torch.no_grad()
    def name_classes(self, membership: Tensor, column: Tensor) -> None:
        """Set which words name which classes: `membership` float (classes, named words) and `column` int64
        (vocabulary), as in `WordEvidence.name`. For models with `BonusOptions.classes`."""
        assert self.evidence is not None
        self.evidence.name(membership, column)

    @torch.no_grad()
    def score_pretrained_classes(self) -> None:
        """Score the classes of `BonusOptions.classes` as the encoder's pretrained classifier does. Raises
        `DataError` for an encoder without one, and if `BonusOptions.class_rank` leaves no room for it."""
        evidence = self.evidence
        assert evidence is not None
        if self.options.bonus.class_rank:
            raise DataError("class_rank: the pretrained classifier needs all features; leave it out")
        weight, bias = pretrained_classifier(self.options.encoder)
        evidence.classes.weight[: len(weight)] = weight
        evidence.classes.bias[: len(bias)] = bias

    def help_with_names(self, names: Names) -> None:
        """Set which words follow each other in names, and which names to propose, with the gains of
        `BonusOptions.name_continuation` and `name_proposal`, one of which must be above 0."""
        assert self.names is not None
        self.names.set(names, self.options.bonus.name_continuation, self.options.bonus.name_proposal)

    @torch.no_grad()
    def price_repetition(self, costs: Tensor) -> None:
        """Set what each word costs once it has been said: `costs` float (vocabulary,), in nats, times
        `BonusOptions.repetition_cost`, which must be above 0."""
        assert self.repetition is not None
        self.repetition.copy_(self.options.bonus.repetition_cost * costs)

    def relate_names(self, others: Tensor) -> None:
        """Set the other names of what each word names: `others` int64 (vocabulary, `RELATED`). For models
        with `BonusOptions.related_cost`."""
        assert self.related is not None
        self.related.copy_(others)

    @torch.no_grad()
    def strengthen_evidence(self, gain: float) -> None:
        """Multiply the class evidence of all words by `gain`."""
        if self.evidence is not None:
            self.evidence.scale.mul_(gain)

    @property
    def letterbox(self) -> Letterbox | None:
        """How photos are fitted into the square, padded with the mean that the backbone subtracts; None if
        they are squashed."""
        if self.options.resize == "squash":
            return None
        red, green, blue = (round(value) for value in self.encoder.backbone.mean.flatten().tolist())
        return Letterbox(self.options.stride, (red, green, blue))

    def certainty(self, outputs: Sequence[Tensor]) -> Tensor | None:
        """How sure the model is of what photos show, from the output of the backbone: minus the entropy of
        their classes in nats, (batch,); None for models without classes."""
        if self.evidence is None:
            return None
        scores = self.evidence.class_logits(outputs[-1].mean(dim=(2, 3), keepdim=True)).squeeze(1)
        return -torch.distributions.Categorical(logits=scores).entropy()

    def encode(self, pixels: Tensor, mask: Tensor | None = None) -> tuple[Tensors, Tensors]:
        """uint8 (batch, height, width, 3) and bool (batch, rows * columns), the cells of the photos, or None
        for all -> memory and initial state, as `Decoder.prepare`.

        No word attends to a masked cell, and means ignore it. Cells near the edge of a photo do depend on the
        padding: convolutions, and the upsampling of deep outputs, reach over the edge.
        """
        return self.prepare(self.encoder.outputs(self.encoder.inputs(pixels), 0, len(STRIDES)), mask)

    def prepare(self, outputs: Sequence[Tensor], mask: Tensor | None = None) -> tuple[Tensors, Tensors]:
        """As `encode`, from the outputs of the backbone's segments, (batch, channels, rows, columns) each."""
        memory, state = self.decoder.prepare(
            self.encoder.fuse(outputs, mask), mask, self.encoder.evidence_input(outputs)
        )
        if self.encoder.taught is not None and self.decoder.embedding.rare is not None:
            memory["rare"] = self.encoder.taught(outputs[-1]).rare
        return memory, state
