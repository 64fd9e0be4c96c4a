"""Finds what a model must add to the grids of corrected photos to caption them as people did.

Each of a few photos has a key and a vector of its own. Many, such as all screenshots, share `MOST_KEYS`
prototypes: what tells them from the other photos, and what is added to pictures like them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import torch

from captioner.errors import DataError
from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import CaptionModel
from captioner.training.config.train_options import TrainOptions
from captioner.training.corrections.pupil import Pupil
from captioner.training.data.examples import Example, load_examples
from captioner.training.data.feature_cache import build_cache
from captioner.training.data.frozen_part import FrozenPart
from captioner.training.progress import Progress
from captioner.training.weights.start import Start
from captioner.words.english import is_function_word
from captioner.words.tokens import tokenize

MOST_KEYS = 192
"""With more corrected photos, keys are shared (`captioner.training.corrections.prototypes`)."""
LEAST_COUNT = 3
"""Where keys are shared, captions with a new word that is learnt."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What was learnt."""

    model: CaptionModel
    vocabulary: Vocabulary
    alike: frozenset[str]
    """The other photos that the model takes for photos like the corrected ones, by name."""


def learn(
    options: TrainOptions,
    start: Start,
    root: Path,
    cache: Path,
    device_name: str,
    progress: Progress,
    said: Mapping[str, str],
) -> Learnt:
    """Teach the model `start` the captions of photos, all of which can be read. Of `retained` data, which
    show what else there is, nothing is learnt. `said` are the model's own captions by the name of the photo.
    Only the vectors of these photos, the embeddings of new words and the scores of rare ones are trained.
    Raises `DataError` for data that cannot be used."""
    device = torch.device(device_name)
    examples = load_examples(options.data, root, "train")
    corrected = [example for example in examples if not example.retained]
    others = [example for example in examples if example.retained]
    shared = len(corrected) > MOST_KEYS
    if shared and not others:
        raise DataError(
            f"more than {MOST_KEYS} corrections need other photos in the folder, to be told from them"
        )
    if not shared:  # several captions of a photo cannot all be learnt
        if several := sum(len(example.image.captions) > 1 for example in corrected):
            progress.note(f"photos with several captions: {several}; the first of each is learnt")
        corrected = list(map(_with_first_caption, corrected))
    captions = [text for example in corrected for text in example.image.captions]
    vocabulary = start.extended(Vocabulary.build(captions, LEAST_COUNT if shared else 1))
    keys = MOST_KEYS if shared else len(corrected)
    architecture = dataclasses.replace(start.model, taught=start.model.taught + keys)
    torch.manual_seed(options.seed)
    frozen = start.build().to(device).eval()
    part = FrozenPart(
        encoder=frozen.encoder,
        name=start.model.encoder,
        segments=options.frozen_segments,
        image_size=start.model.image_size,
        letterbox=frozen.letterbox,
    )
    as_they_are = dataclasses.replace(part, mirrored=False)
    network, first = functools.cache(lambda: part.on(device)), len(corrected)
    with progress.task("features", len(examples), 0) as tell:
        maps = build_cache(cache, part, corrected, device, lambda done, _: tell(done, ""), network)
        of_others = build_cache(
            cache, as_they_are, others, device, lambda done, _: tell(first + done, ""), network
        )
    model = CaptionModel(architecture, len(vocabulary))
    start.give(model, vocabulary, replaced_words(corrected, said, start.vocabulary))
    model = model.to(device).eval()
    pupil = Pupil(model, maps, corrected, vocabulary, start, options, device, shared)
    alike = pupil.remember(of_others, len(others))
    pupil.learn(progress)
    return Learnt(model.cpu(), vocabulary, frozenset(others[row].image.name for row in alike))


def replaced_words(
    examples: Sequence[Example], said: Mapping[str, str], known: Vocabulary
) -> dict[str, list[str]]:
    """For each word of a correction that is new to the model, the words of its own caption that the
    correction replaces with it. A new word starts as what they are: "border collie" as "dog"."""
    related: dict[str, list[str]] = {}
    for example in examples:
        old, new = tokenize(said.get(example.image.name, "")), tokenize(example.image.captions[0])
        for change, first, last, begin, end in SequenceMatcher(None, old, new, False).get_opcodes():
            if change == "replace":
                named = [word for word in old[first:last] if not is_function_word(word)]
                for word in set(new[begin:end]).difference(known.words):
                    related.setdefault(word, []).extend(named)
    return related


def _with_first_caption(example: Example) -> Example:
    image = dataclasses.replace(example.image, captions=example.image.captions[:1])
    return dataclasses.replace(example, image=image)
