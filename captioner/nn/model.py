"""Encoder and decoder put together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from captioner.errors import DataError
from captioner.images.letterbox import Letterbox
from captioner.nn.attention import ATTENTIONS
from captioner.nn.decoder import DECODERS, Decoder, DecoderSizes, LSTMDecoder, Tensors
from captioner.nn.decoder.evidence import WordEvidence
from captioner.nn.decoder.names import NameHelp, Names
from captioner.nn.encoder import STRIDES, GridEncoder, GridRefiner, build_backbone, pretrained_classifier

RESIZES = ("squash", "letterbox")


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
    checklist_weight: float = 0.0
    """Bonus added to detected words until they appear in the caption; 0 disables
    (`captioner.nn.decoder.checklist`). For the decoders `lstm` and `two_lstm`, trained with the objective
    `bag_of_words`."""
    checklist_power: float = 1.0
    """Exponent of that bonus, above 0 and up to 1. Below 1, certain words gain little more than likely
    ones."""
    repetition_cost: float = 0.0
    """Factor of the cost of words that have been said (`captioner.training.names.repetition`); 0 for none.
    Needs a checklist."""
    mean_weight: float = 1.0
    """Factor of the photo's mean in the input of the LSTM, at least 0. Below 1, words depend more on the
    cells they attend to; the checklist detects the same words. For the decoders `lstm` and `two_lstm`."""
    attended_detection: float = 0.0
    """Factor of the bonus for words that are detected in the attended cells, but not in the photo as a whole;
    at least 0. Words then depend more on their maps. For the decoders `lstm` and `two_lstm`, trained with the
    objective `bag_of_words`."""
    classes: int = 0
    """Classes scored at each cell of the encoder's deepest stage (`captioner.nn.decoder.evidence`); 0 for
    none. Needs the decoder `lstm` or `two_lstm`."""
    label_classes: tuple[str, ...] = ()
    """Words of labels with a class of their own, which is scored beside those of `classes`; `captioner train`
    chooses them (`captioner.training.names.label_classes`). Needs classes."""
    named_words: int = 0
    """Number of vocabulary words that name classes; `captioner train` counts them."""
    name_continuation: float = 0.0
    """Factor of the bonus for the next word of a name of several words, by the class evidence
    (`captioner.nn.decoder.names`); 0 for none. Needs classes."""
    name_proposal: float = 0.0
    """Bonus in nats, in the checklist, for the name of what the photo certainly shows; 0 for none. Needs
    classes and a checklist."""
    following_words: int = 0
    """Number of words that go on with a name, and one for none; `captioner train` counts them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label_classes", tuple(self.label_classes))  # JSON has lists
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
        if self.refiner_layers < 0:
            raise DataError(f"refiner_layers must be at least 0, got {self.refiner_layers}")
        for name in (
            "checklist_weight",
            "repetition_cost",
            "mean_weight",
            "attended_detection",
            "name_continuation",
            "name_proposal",
        ):
            value = getattr(self, name)
            if not 0 <= value < math.inf:  # also false for NaN
                raise DataError(f"{name} must be at least 0 and finite, got {value}")
        for name, without in (("checklist_weight", 0), ("mean_weight", 1), ("attended_detection", 0)):
            if getattr(self, name) != without and not issubclass(DECODERS[self.decoder], LSTMDecoder):
                raise DataError(f"{name} needs the decoder lstm or two_lstm")
        if not 0 < self.checklist_power <= 1:
            raise DataError(f"checklist_power must be above 0 and up to 1, got {self.checklist_power}")
        if self.repetition_cost and not self.checklist_weight:
            raise DataError("repetition_cost needs a checklist_weight above 0")
        if min(self.classes, self.named_words) < 0 or (self.named_words and not self.classes):
            raise DataError("classes and named_words must be at least 0, and named_words needs classes")
        if self.label_classes and not self.classes:
            raise DataError("label_classes need classes")
        if self.helps_with_names and not self.classes:
            raise DataError("name_continuation and name_proposal need classes")
        if self.name_proposal and not self.checklist_weight:
            raise DataError("name_proposal needs a checklist_weight above 0")
        if self.classes and not issubclass(DECODERS[self.decoder], LSTMDecoder):
            raise DataError("classes need the decoder lstm or two_lstm")
        if not 0 <= self.dropout < 1:
            raise DataError(f"dropout must be at least 0 and below 1, got {self.dropout}")

    @property
    def helps_with_names(self) -> bool:
        return bool(self.name_continuation or self.name_proposal)

    @property
    def scored_classes(self) -> int:
        """The number of classes that are scored at each cell."""
        return self.classes + len(self.label_classes)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the square."""
        side = self.image_size // self.stride
        return side, side


class CaptionModel(nn.Module):
    """Pixels in, words and attention out."""

    encoder: GridEncoder
    decoder: Decoder

    def __init__(self, options: ModelOptions, vocabulary: int, weights: str | None = None) -> None:
        """`vocabulary` is the number of words; `weights` are the backbone's (see `build_backbone`)."""
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
        )
        attention = ATTENTIONS[options.attention](
            options.hidden, options.features, options.attention_hidden, options.attention_heads
        )
        self.decoder = DECODERS[options.decoder](
            attention,
            DecoderSizes(
                vocabulary,
                options.features,
                options.hidden,
                options.embedding,
                options.dropout,
                options.layers,
                options.attention_heads,
            ),
        )
        self.decoder.checklist_weight = options.checklist_weight
        self.decoder.checklist_power = options.checklist_power
        self.decoder.mean_weight = options.mean_weight
        self.decoder.attended_detection = options.attended_detection
        costs = torch.zeros(vocabulary) if options.repetition_cost else None
        self.decoder.register_buffer("repetition", costs)
        self.decoder.evidence = self.decoder.names = None
        if options.classes:
            self.decoder.evidence = WordEvidence(
                self.encoder.backbone.channels[-1],
                options.scored_classes,
                options.named_words,
                vocabulary,
                options.hidden + options.features,
                options.grid,
                STRIDES[-1] // options.stride,
            )
            self.decoder.evidence.leave_open(options.classes)
        if options.helps_with_names:
            self.decoder.names = NameHelp(options.scored_classes, options.following_words, vocabulary)
            self.decoder.names.proposes = options.name_proposal > 0

    @torch.no_grad()
    def name_classes(self, membership: Tensor, column: Tensor) -> None:
        """Set which words name which classes: `membership` float (classes, named words) and `column` int64
        (vocabulary), as in `WordEvidence`. For models with `ModelOptions.classes`."""
        evidence = self.decoder.evidence
        assert evidence is not None
        evidence.membership.copy_(membership)
        evidence.column.copy_(column)

    @torch.no_grad()
    def score_pretrained_classes(self) -> None:
        """Score the classes of `ModelOptions.classes` as the encoder's pretrained classifier does. Raises
        `DataError` for an encoder without one."""
        evidence = self.decoder.evidence
        assert evidence is not None
        weight, bias = pretrained_classifier(self.options.encoder)
        evidence.classes.weight[: len(weight)] = weight
        evidence.classes.bias[: len(bias)] = bias

    def help_with_names(self, names: Names) -> None:
        """Set which words follow each other in names, and which names to propose, with the gains of
        `ModelOptions.name_continuation` and `name_proposal`, one of which must be above 0."""
        assert self.decoder.names is not None
        self.decoder.names.set(names, self.options.name_continuation, self.options.name_proposal)

    @torch.no_grad()
    def price_repetition(self, costs: Tensor) -> None:
        """Set what each word costs once it has been said: `costs` float (vocabulary,), in nats, times
        `ModelOptions.repetition_cost`, which must be above 0."""
        assert self.decoder.repetition is not None
        self.decoder.repetition.copy_(self.options.repetition_cost * costs)

    @torch.no_grad()
    def strengthen_evidence(self, gain: float) -> None:
        """Multiply the class evidence of all words by `gain`."""
        if self.decoder.evidence is not None:
            self.decoder.evidence.scale.mul_(gain)

    @property
    def letterbox(self) -> Letterbox | None:
        """How photos are fitted into the square, padded with the mean that the backbone subtracts; None if
        they are squashed."""
        if self.options.resize == "squash":
            return None
        red, green, blue = (round(value) for value in self.encoder.backbone.mean.flatten().tolist())
        return Letterbox(self.options.stride, (red, green, blue))

    def encode(self, pixels: Tensor, mask: Tensor | None = None) -> tuple[Tensors, Tensors]:
        """uint8 (batch, height, width, 3) and bool (batch, rows * columns), the cells of the photos, or None
        for all -> memory and initial state, as `Decoder.prepare`.

        No word attends to a masked cell, and means ignore it. Cells near the edge of a photo do depend on the
        padding: convolutions, and the upsampling of deep stages, reach over the edge.
        """
        return self.prepare(self.encoder.stages(self.encoder.inputs(pixels), 0, len(STRIDES)), mask)

    def prepare(self, stages: Sequence[Tensor], mask: Tensor | None = None) -> tuple[Tensors, Tensors]:
        """As `encode`, from the output of the backbone: (batch, channels, rows, columns) of each stage."""
        return self.decoder.prepare(self.encoder.fuse(stages, mask), mask, stages[-1])
