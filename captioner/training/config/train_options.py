"""What a training run is: frozen dataclasses, read from a TOML file and saved with every checkpoint."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from captioner.configuration import read_toml
from captioner.errors import CaptionerError, DataError, OptionsError
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.encoder import STRIDES
from captioner.nn.model import ModelOptions
from captioner.options import BUNDLE_OPTIONS, CaptionOptions
from captioner.training.config.renamed import renamed, with_bonus
from captioner.training.config.tables import UnknownOptionError, build, change, table

PRECISIONS = ("float32", "bfloat16")
CACHED = ("features", "pixels")
AUTO = -1
"""Chosen for the size of the data (`captioner.training.loop.plan`), as if the option were left out."""
HIGHEST_RATE = 1.0
"""The highest learning rate. No model learns even at a tenth of it."""
DAMAGED_SHARE = 0.05
DEFAULT_OBJECTIVES = ("cross_entropy", "doubly_stochastic", "hard_attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveOptions:
    """Options that every objective has; an objective with more derives its own. Raises `DataError`."""

    weight: float = 1.0
    """Factor of the loss in the sum."""

    def __post_init__(self) -> None:
        self.at_least(0, "weight")

    def at_least(self, low: float, *names: str) -> None:
        _at_least(self, low, *names)

    def check(self, run: TrainOptions) -> None:
        """Raise `DataError` if these options are incompatible with the others of the run."""

    def sampled(self, captions: int, labelled: bool) -> int:
        """How many captions an epoch samples for an image with so many of its own."""
        return 0


OBJECTIVE_OPTIONS: dict[str, type[ObjectiveOptions]] = {}
"""The options of every objective by its name. `captioner.training.objectives`, which is imported with the
package, adds them: objectives may read checkpoints, which hold these options."""


def _read_objectives(values: Any, path: str) -> dict[str, ObjectiveOptions]:
    """Options of objectives by name. A number stands for a weight; weight 0 leaves an objective out."""
    built: dict[str, ObjectiveOptions] = {}
    for name, value in table(values, path).items():
        if name not in OBJECTIVE_OPTIONS:
            raise DataError(f"{path}.{name}: unknown objective; there is {', '.join(OBJECTIVE_OPTIONS)}")
        if not isinstance(value, (ObjectiveOptions, Mapping)):
            value = {"weight": value}
        if not isinstance(value, ObjectiveOptions):
            value = build(OBJECTIVE_OPTIONS[name], value, f"{path}.{name}")
        if value.weight:
            built[name] = value
    if values and not built:
        raise DataError(f"{path}: none has a weight above 0")
    return built


def _read_search(values: Any, path: str) -> CaptionOptions:
    """The search options of a table, those that a bundle may hold."""
    if isinstance(values, CaptionOptions):
        return values
    for name in table(values, path):
        if name not in BUNDLE_OPTIONS:
            raise DataError(f"{path}.{name}: unknown option; there is {', '.join(BUNDLE_OPTIONS)}")
    try:
        return CaptionOptions(**values)
    except OptionsError as error:
        raise DataError(f"{path}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """One data set, with one of `captions`, `labels` and `classes`. Paths are relative to the data root."""

    name: str
    images: tuple[str, ...]
    """Folders or zip files that hold the images."""
    captions: str = ""
    """Captions of the images, in a format of `captioner.references`: JSON of Karpathy or COCO, Flickr8k
    tokens, CSV, JSON lines, or a folder of images with text files beside them."""
    labels: str = ""
    """Words for the images, without captions: a label file (`captioner.references.labels`)."""
    classes: bool = False
    """The images lie in folders that are named by what they show."""
    train: str = "train"
    """Split to train on; "all" or empty for all images, "none" for none. Data without splits are used
    whole."""
    val: str = "val"
    """Split to validate on; "all" for all images, "none" or empty for none."""
    val_fraction: float = 0.0
    """Share of the training images that is used for validation instead of the split `val`; selected by
    file name, so always the same ones."""
    retained: bool = False
    """The captions are those of the model that the run starts from: they are not learnt, but kept, by the
    objective `caption_retention`."""
    repeat: int = 1
    """How often an epoch uses each image."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "repeat")
        if not self.images:
            raise DataError("no images are named")
        if bool(self.captions) + bool(self.labels) + self.classes != 1:
            raise DataError("give one of captions, labels and classes")
        if not 0 <= self.val_fraction < 1:
            raise DataError("val_fraction must be at least 0 and below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelClassOptions:
    """Words of labels that get classes of their own (`captioner.training.names.label_classes`), fitted when
    the first stage begins from which on none tunes the encoder."""

    photos: int = 0
    """A word gets a class if at least so many training photos have it as their most exact label; 0 for no
    classes."""
    captions: int = 100
    """Words that more training captions have get no class: captions have taught them. Of several words, the
    rarest counts."""
    excluded: tuple[str, ...] = ()
    """Words that get no class, for example those that cannot follow an article ("a wrestling")."""

    def __post_init__(self) -> None:
        _at_least(self, 0, "photos", "captions")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions:
    """One stretch of training with objectives and a learning-rate schedule of its own."""

    name: str
    objectives: Mapping[str, ObjectiveOptions] = field(
        default_factory=dict, metadata={"read": _read_objectives}
    )
    """What is minimised: the weighted sum of these, by their names in `captioner.training.objectives`. A
    number is a weight, a table has the options of the objective. By default `DEFAULT_OBJECTIVES`,
    label_likelihood if data have labels, and bag_of_words for a model with a checklist."""
    epochs: int = AUTO
    seconds: float = 0.0
    """Longest time of the stage, and of each of its `runs`; 0 for any. When it is over, the stage ends as
    after its last epoch. The learning rate then falls with the time, if that is faster than with the steps,
    and epochs are validated once a minute. Reading the data and the last validation are not included."""
    runs: int = 1
    """How often the stage is trained, from the same weights but in another order; training continues from the
    mean of the runs. Each takes `epochs`."""
    batch_captions: int = AUTO
    """Captions in a batch, read or sampled; those of one image share its features."""
    learning_rate: float = AUTO
    final_learning_rate: float = 1e-5
    """Final value of the cosine decay."""
    warmup_steps: int = AUTO
    encoder_learning_rate: float = 0.0
    """Learning rate of the tuned segments of the backbone, with the same schedule."""
    tuned_segments: int = 0
    """Number of segments of the backbone, from the deep end, that are trained: 0 to 3."""
    weight_decay: float = 0.01
    mirror: bool = True
    """Show images mirrored half of the time, except where a caption says left or right."""
    hidden_cells: float = 0.0
    """Share of the cells of each image that are hidden, at random."""
    hidden_features: float = 0.0
    """Share of the features of each image's grid that are zeroed in all cells, at random."""
    hidden_means: float = 0.0
    """Share of the images for which the decoder gets the attended cells only, not the mean of the photo
    (decoders `lstm` and `two_lstm`)."""
    stochastic_depth: float = 0.0
    """Probability of skipping the last residual block of the backbone for an image; proportionally less
    for earlier blocks (Huang et al. 2016, arXiv:1603.09382). 0 also disables the stochastic depth that
    some networks of torchvision have."""
    zoom: float = 1.0
    """Half of the images are enlarged to a random part of at least this share of their area."""
    disturbed: float = 0.0
    """Share of the images whose pixels are slightly changed, each time in another way
    (`captioner.training.data.augment.disturb`), for models that should not mind. Needs cached pixels."""
    evidence_gain: float = 1.0
    """Factor of the class evidence (`BonusOptions.classes`) when the stage begins. Rewards decide better
    where a name belongs than how strong its evidence should be."""
    frozen_evidence: bool = False
    """Keep the class evidence and its gate as they are. Captions rarely contain the exact names, so rewards
    for captions weaken both."""
    frozen_detection: bool = False
    """Keep all that is detected as it is: the encoder, the class evidence, the embeddings of words, and the
    mean of the photo that the checklist compares them with. Rewards then change only how it is put into
    words."""
    label_words_only: bool = False
    """Train nothing but the embeddings of the words that label photos, so that all else stays as it is. A
    run that starts from a trained model and has no captions does so by default: nothing in its data would
    keep the model from saying its new words of other photos too."""
    gradient_norm: float = 1.0
    """Gradients are clipped to this norm; 0 leaves them as they are."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "objectives", _read_objectives(self.objectives, "objectives"))
        _at_least(self, 1, "epochs", "runs", "batch_captions")
        _at_least(self, 0, "seconds", "warmup_steps", "weight_decay")
        _at_least(self, 0, "gradient_norm", "evidence_gain")
        for name in ("learning_rate", "encoder_learning_rate", "final_learning_rate"):
            _at_least(self, 0, name)
            if getattr(self, name) > HIGHEST_RATE:
                raise DataError(f"{name} must be at most {HIGHEST_RATE:g}, got {getattr(self, name)}")
        if not 0 <= self.tuned_segments <= len(STRIDES):
            raise DataError(f"tuned_segments must be from 0 to {len(STRIDES)}")
        if self.frozen_detection and self.tuned_segments:
            raise DataError("frozen_detection keeps the encoder: set tuned_segments to 0")
        if not 0 < self.zoom <= 1:
            raise DataError("zoom must be above 0 and at most 1")
        if not 0 <= self.disturbed <= 1:
            raise DataError("disturbed must be from 0 to 1")
        for name in ("hidden_cells", "hidden_features", "hidden_means", "stochastic_depth"):
            if not 0 <= getattr(self, name) < 1:
                raise DataError(f"{name} must be at least 0 and below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """A whole run."""

    name: str
    model: ModelOptions = field(default_factory=ModelOptions)
    data: tuple[SourceOptions, ...]
    stages: tuple[StageOptions, ...]
    seed: int = 1
    label_classes: LabelClassOptions = field(default_factory=LabelClassOptions)
    start: str = ""
    """A trained model to continue from: a bundle or a checkpoint below the data root, or an installed model,
    such as "default", the embedded one. The run has its architecture, and its vocabulary with the words of
    the captions added."""
    pretrained_share: float = 0.0
    """Share of the pretrained backbone in that of the start. The mean of the two knows what captions speak
    about and most of what it knew before (WiSE-FT, Wortsman et al. 2022, arXiv:2109.01903)."""
    weights: str = "imagenet"
    """Weights of the backbone: imagenet, random, or a file."""
    crops: int = 0
    """Crops of each training photo with changed lighting, each used as often as the photo itself; each
    takes the space of a photo in the cache."""
    cached: str = "features"
    """What is computed once for each photo: features, the output of the segments that no stage trains, or
    pixels only. All segments are then computed at each step, so that what changes pixels changes what the
    frozen ones see. That takes a GPU."""
    damaged_share: float = DAMAGED_SHARE
    """Share of the photos that may be missing or damaged: these are named and left out. With more, the run
    ends."""
    precision: str = "float32"
    min_count: int = AUTO
    """Words seen less often than this in the training captions become unknown."""
    ema_decay: float = AUTO
    """Decay of the moving average of the weights, which is validated and saved; 0 disables it."""
    search: CaptionOptions = field(default_factory=CaptionOptions, metadata={"read": _read_search})
    """The search of validation, and the defaults of the bundle; what is left open is that of the start.
    Captions longer than its `max_words` are cut for training."""
    model_sets: tuple[str, ...] = field(default=(), compare=False)
    """Options of `model` and its bonuses that a run with a `start` changes, even to their defaults;
    `from_dict` takes those that the tables [model] and [model.bonus] name."""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise DataError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        if not self.data or not self.stages:
            raise DataError("a run needs at least one data set and one stage")
        if self.cached not in CACHED:
            raise DataError(f"cached must be one of {', '.join(CACHED)}, got {self.cached!r}")
        if self.model.resize != "squash" and any(stage.zoom < 1 for stage in self.stages):
            raise DataError("zoom needs photos that are squashed: of others, a part may be all padding")
        if any(stage.disturbed for stage in self.stages):
            if self.model.resize != "squash":
                raise DataError("disturbed needs photos that are squashed: padding stays as it is")
            if self.frozen_segments:
                raise DataError('disturbed needs the pixels of photos: set cached = "pixels"')
        if not 0 <= self.seed < 2**63:
            raise DataError(f"seed must be at least 0 and below 2^63, got {self.seed}")
        if not 0 <= self.damaged_share <= 1:
            raise DataError(f"damaged_share must be from 0 to 1, got {self.damaged_share}")
        _at_least(self, 0, "crops")
        _at_least(self, 1, "min_count")
        if not 0 <= self.pretrained_share <= 1 or (self.pretrained_share and not self.start):
            raise DataError("pretrained_share must be from 0 to 1, and needs a start")
        if self.ema_decay != AUTO and not 0 <= self.ema_decay < 1:
            raise DataError(f"ema_decay must be at least 0 and below 1, got {self.ema_decay}")
        if self.label_classes.photos:
            if not self.may_have_classes:
                raise DataError("label_classes need [model.bonus] classes")
            if self.first_frozen_stage == len(self.stages):
                raise DataError(
                    "label_classes are fitted before a stage with tuned_segments = 0: let the last be one"
                )
        for stage in self.stages:
            for name, objective in stage.objectives.items():
                try:
                    objective.check(self)
                except DataError as error:
                    raise DataError(f"stage {stage.name}, {name}: {error}") from None
        for names in ([source.name for source in self.data], [stage.name for stage in self.stages]):
            if len(set(names)) != len(names):
                raise DataError(f"names must differ: {', '.join(names)}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainOptions:
        """From a parsed file or a checkpoint; names of earlier versions are accepted (`renamed`). Raises
        `DataError`, naming what is wrong."""
        values = renamed(values)
        try:
            options = build(cls, values)
        except UnknownOptionError as error:
            homes = [name for name, options in _TABLES.items() if error.name in options]
            if homes:
                raise DataError(f"{error.path}: unknown option; it belongs to {homes[0]}") from None
            raise
        model = values.get("model", {})
        named = (*model, *model.get("bonus", {}))
        return dataclasses.replace(options, model_sets=options.model_sets or named)

    @classmethod
    def read(cls, path: Path, changes: Mapping[str, str] | None = None) -> TrainOptions:
        """From a TOML file. `changes` sets single values by dotted name, in TOML syntax: {"seed": "2",
        "model.decoder": '"two_lstm"', "stages.0.epochs": "3"}. Raises `DataError`, which names the file."""
        values = read_toml(path)
        for name, text in (changes or {}).items():
            change(values, name, text)
        try:
            return cls.from_dict(values)
        except CaptionerError as error:
            raise DataError(f"{path}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        search = {name: getattr(self.search, name) for name in BUNDLE_OPTIONS}
        given = {name: value for name, value in search.items() if value is not None}
        values = {**dataclasses.asdict(self), "search": given}
        del values["model_sets"]
        return values

    @property
    def max_words(self) -> int:
        """Longest caption in words, in training and in validation."""
        return self.search.resolve().max_words or 1

    @property
    def may_have_classes(self) -> bool:
        """Whether its model has class evidence (`BonusOptions.classes`), or starts from one that may have."""
        return bool(self.model.bonus.classes or self.start)

    @property
    def first_frozen_stage(self) -> int:
        """The index of the first stage from which on none tunes the encoder; the number of stages if the last
        one does."""
        return max((n for n, stage in enumerate(self.stages, 1) if stage.tuned_segments), default=0)

    @property
    def frozen_segments(self) -> int:
        """Segments of the backbone that no stage trains, whose outputs are cached; 0 where pixels are."""
        if self.cached == "pixels":
            return 0
        return len(STRIDES) - max(stage.tuned_segments for stage in self.stages)


_TABLES = {
    name: {field.name for field in dataclasses.fields(kind)}
    for name, kind in {
        "the top": TrainOptions,
        "[[data]]": SourceOptions,
        "[[stages]]": StageOptions,
        "[model]": ModelOptions,
        "[model.bonus]": BonusOptions,
        "[label_classes]": LabelClassOptions,
    }.items()
}
"""The options of each table."""


def _at_least(options: Any, low: float, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        left_open = value == AUTO and type(options).__dataclass_fields__[name].default == AUTO
        if not (value >= low or left_open):  # also for NaN
            raise DataError(f"{name} must be at least {low}, got {value}")
        if value == math.inf:
            raise DataError(f"{name} must be finite")


def read_model(values: Any) -> ModelOptions:
    """An architecture from the table of a checkpoint or a bundle, whose names may be those of earlier
    versions. Raises `DataError`."""
    return build(ModelOptions, with_bonus(values), "model")
