"""Chooses options that were left open by the size of the data, and warns if a run cannot learn.

Options that suit 50,000 captions (batches of 160, 200 steps of warm-up, an average over 1,000 steps) do not
work for 60 captions: the model learns nothing. The search settings are those of the starting model.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from captioner.errors import DataError
from captioner.model.vocabulary import Vocabulary
from captioner.options import MAX_WORDS, CaptionOptions
from captioner.printable import counted
from captioner.training.config.train_options import AUTO, DEFAULT_OBJECTIVES, StageOptions, TrainOptions
from captioner.training.data.examples import Example
from captioner.words.tokens import tokenize

FEW = 5
"""Fewer photos to validate on tell nothing."""
LARGEST_BATCH = 160
STEPS_OF_AN_EPOCH = 24
"""Least batches in an epoch; batches are made smaller for it, down to `SMALLEST_BATCH`."""
SMALLEST_BATCH = 8
STEPS = 400
"""Least steps in a stage; epochs are added for it, up to `MOST_EPOCHS`."""
EPOCHS, MOST_EPOCHS = 8, 40
CONTINUED_STEPS, MOST_CONTINUED_EPOCHS = 60, 15
"""The same for a run that goes on from a trained model: it speaks already, and each further step takes more
of what it knew."""
MOSTLY_NEW = 0.5
"""Captions of which a larger share of words is new are in another language, or as good as that."""
WARMUP_STEPS = 200
CONTINUED_RATE, SMALLEST_CONTINUED_RATE = 2e-4, 3e-5
"""Learning rates of runs that start from a trained model, for the fewest captions and for many."""
EMA_DECAY = 0.999


def planned(
    options: TrainOptions, examples: Sequence[Example], search: CaptionOptions | None = None
) -> TrainOptions:
    """The options with all open ones chosen: for the training images, or from the `search` of the start.

    Raises `DataError` if there are no images, or none of those that a stage needs."""
    if not examples:
        raise DataError("no images are left to train on: add photos, or lower val_fraction")
    options = dataclasses.replace(options, search=options.search.resolve(search))
    captions = sum(len(example.image.captions) for example in examples)
    shown = _shown(examples)
    stages = tuple(_stage(stage, shown, options, examples) for stage in options.stages)
    if any(stage.label_words_only for stage in stages) and not any(one.image.words for one in examples):
        raise DataError("label_words_only needs photos with labels")
    min_count, ema_decay = options.min_count, options.ema_decay
    if min_count == AUTO:
        min_count = _min_count(captions, bool(options.start))
    if ema_decay == AUTO:
        # The average covers the last tenth of the shortest stage.
        ema_decay = min(EMA_DECAY, max(0.5, 1 - 10 / min(_steps(stage, examples) for stage in stages)))
    return dataclasses.replace(options, stages=stages, min_count=min_count, ema_decay=round(ema_decay, 4))


def _stage(
    stage: StageOptions, shown: int, options: TrainOptions, examples: Sequence[Example]
) -> StageOptions:
    captioned = any(example.image.captions for example in examples)
    if options.start and not captioned and not stage.objectives:
        stage = dataclasses.replace(stage, label_words_only=True)
    continues = bool(options.start) and not stage.label_words_only
    chosen = {
        "batch_captions": min(LARGEST_BATCH, max(SMALLEST_BATCH, shown // STEPS_OF_AN_EPOCH)),
        "learning_rate": _continued_rate(shown) if continues else 1e-3,
    }
    stage = _filled(stage, **chosen)
    steps = math.ceil(shown / stage.batch_captions)
    least, most = (CONTINUED_STEPS, MOST_CONTINUED_EPOCHS) if continues else (STEPS, MOST_EPOCHS)
    stage = _filled(stage, epochs=min(most, max(EPOCHS, math.ceil(least / steps))))
    stage = _filled(stage, warmup_steps=min(WARMUP_STEPS, stage.epochs * steps // 10))
    if stage.objectives:
        return stage
    # A start has maps of its own, which doubly_stochastic would level.
    wanted = (name for name in DEFAULT_OBJECTIVES if not (options.start and name == "doubly_stochastic"))
    names = [name for name in wanted if captioned]
    names += ["label_likelihood"] * any(example.image.words for example in examples)
    # Or what the checklist detects becomes outdated: it would call for new words wherever they are likely.
    names += ["bag_of_words"] * bool(options.model.bonus.checklist_weight)
    objectives: dict[str, Any] = {name: {} for name in names}
    return dataclasses.replace(stage, objectives=objectives)


def _continued_rate(shown: int) -> float:
    """A trained model learns a few captions in a few large steps; with many it takes more steps, and these
    must be small, or it forgets what rewards taught it."""
    rate = CONTINUED_RATE * math.sqrt(SMALLEST_BATCH / max(shown, SMALLEST_BATCH))
    return round(max(SMALLEST_CONTINUED_RATE, rate), 6)


def _filled(stage: StageOptions, **values: float) -> StageOptions:
    left_open = {name: value for name, value in values.items() if getattr(stage, name) == AUTO}
    return dataclasses.replace(stage, **left_open)  # type: ignore[arg-type]


def _min_count(captions: int, started: bool) -> int:
    """Few captions have few words that occur twice; and a trained model should learn exactly the words it
    does not know."""
    if captions < (10_000 if started else 1_000):
        return 1
    return 2 if captions < 10_000 else 5


def _steps(stage: StageOptions, examples: Sequence[Example]) -> int:
    """The steps of a stage, about. Samples count for the size of a batch as captions do."""
    shown = 0 if stage.objectives.keys() == {"self_critical"} else _shown(examples)
    for objective in stage.objectives.values():
        for example in examples:
            image = example.image
            shown += example.repeat * objective.sampled(len(image.captions), bool(image.words))
    return stage.epochs * max(1, math.ceil(shown / stage.batch_captions))


def _shown(examples: Sequence[Example]) -> int:
    return sum(example.repeat * max(1, len(example.image.captions)) for example in examples)


def described(options: TrainOptions, train: Sequence[Example], val: Sequence[Example]) -> list[str]:
    """What is said of the data of a planned run before it begins. Raises `DataError` if nothing is said in
    them."""
    found = [f"{counted(len(train), 'photo')} to train on, {len(val)} to validate on"]
    if not val and any(source.val_fraction for source in options.data):
        found.append(
            f"val_fraction, which chooses by file name, chose none of {counted(len(train), 'photo')}:"
            " there will be no best.pt; raise it, or name a split"
        )
    elif not val:
        found.append(
            "without photos to validate on there will be no best.pt; val_fraction = 0.1 in [[data]] takes"
            " a tenth"
        )
    elif len(val) < FEW:
        found.append(
            f"{counted(len(val), 'photo')} to validate on: that is few, and which epoch is best is mostly"
            " chance; raise val_fraction"
        )
    lengths = [
        len(tokenize(text)) for example in train if not example.retained for text in example.image.captions
    ]
    if (cut := sum(length > options.max_words for length in lengths)) > 0:
        found.append(
            f"{cut} of {len(lengths)} captions have more than {options.max_words} words and are"
            f" cut ([search] max_words, at most {MAX_WORDS})"
        )
    if (wordless := lengths.count(0)) > 0:
        said = f"{wordless} of {len(lengths)} captions have no words (letters or digits)"
        if wordless == len(lengths) and not any(example.image.words for example in train):
            raise DataError(said)
        found.append(said)
    return found


def in_another_language(examples: Sequence[Example], vocabulary: Vocabulary) -> str | None:
    """A warning if the model that a run starts from, with this vocabulary, knows few of the words in the
    captions to learn; else None."""
    known = set(vocabulary.words)
    captions = (text for example in examples if not example.retained for text in example.image.captions)
    are_known = [word in known for text in captions for word in tokenize(text)]
    new = 1 - sum(are_known) / max(1, len(are_known))
    if not are_known or new <= MOSTLY_NEW:
        return None
    return (
        f"{new:.0%} of the words in the captions are new to the model that the run starts from, as in another"
        " language: expect captions that mix its words and yours; leave start out, or train for more epochs"
        " than are chosen for a start ([[stages]] epochs)"
    )


def warnings(options: TrainOptions, examples: Sequence[Example]) -> list[str]:
    """Reasons why a planned run will not learn, or cannot be validated."""
    found = []
    for stage in options.stages:
        steps = _steps(stage, examples)
        if steps <= 2 * stage.warmup_steps:
            found.append(
                f"stage {stage.name}: {stage.warmup_steps} of about {steps} steps are warm-up, so it will"
                " hardly learn; leave out warmup_steps, or train for more epochs or in smaller batches"
            )
        if options.ema_decay and steps > 1 and steps * (1 - options.ema_decay) < 1:
            found.append(
                f"stage {stage.name}: about {steps} steps are too few for an average of the weights with"
                f" ema_decay {options.ema_decay}: it would stay near the first ones; leave ema_decay out"
            )
    return found


def leaked(train: Sequence[Example], val: Sequence[Example]) -> str | None:
    """A warning if photos to validate on are also learnt, by their content; else None. Reads all photos."""
    learnt = {example.digest for example in train if not example.retained}
    both = [example.image.name for example in val if example.digest in learnt]
    if not both:
        return None
    return (
        f"{len(both)} of {counted(len(val), 'photo')} to validate on (as {both[0]}) are photos to train on,"
        " too: scores will be too high"
    )


def unlearnt(stage: StageOptions, losses: Sequence[float]) -> str | None:
    """A warning if the losses of a stage's epochs show that it learnt nothing; else None."""
    if len(losses) < 2 or "self_critical" in stage.objectives or losses[-1] < 0.98 * losses[0]:
        return None
    return (
        f"stage {stage.name}: the loss hardly fell, from {losses[0]:.3f} to {losses[-1]:.3f}; if it should"
        " learn more, raise learning_rate or epochs"
    )
