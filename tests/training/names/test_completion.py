"""Captions that a model completes for labelled photos."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support import tiny_cnn

from captioner.errors import DataError
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.options import CaptionOptions
from captioner.training.data import stored_arrays
from captioner.training.data.feature_cache import FeatureCache
from captioner.training.names.completion import Completion

KNOWN = ("a", "red", "green", "square", "on", "the")


class Features(FeatureCache):
    """Pixels of random images; `broken` ones cannot be read."""

    def __init__(self, broken: bool) -> None:
        super().__init__([])
        self.broken = broken

    def maps(self, images: torch.Tensor, *_: Any) -> list[torch.Tensor]:
        if self.broken:
            raise DataError("the cache is gone")
        return [torch.randint(0, 256, (len(images), 32, 32, 3), dtype=torch.uint8)]


class Counted(FeatureCache):
    """Counts the photos of each batch."""

    def __init__(self, photos: int) -> None:
        random = np.random.default_rng(0)
        super().__init__([random.integers(0, 256, (photos, 1, 32, 32, 3), dtype=np.uint8)])
        self.taken: list[int] = []

    def maps(self, images: torch.Tensor, views: torch.Tensor, device: torch.device) -> list[torch.Tensor]:
        self.taken.append(len(images))
        return super().maps(images, views, device)


def completion_of(features: FeatureCache) -> tuple[Completion, CaptionModel, Vocabulary]:
    """By a model that does not know the seal and the owl."""
    vocabulary = Vocabulary([*SPECIAL, *KNOWN, "seal", "owl"])
    options = ModelOptions(
        encoder=tiny_cnn.NAME, image_size=32, stride=8, features=8, attention_hidden=8, hidden=8, embedding=8
    )
    torch.manual_seed(0)
    model = CaptionModel(options, len(vocabulary)).eval()
    search = CaptionOptions(beam_size=2, max_words=6, length_normalization=0.0, no_repeat_ngram=0)
    known = len(SPECIAL) + len(KNOWN)
    completion = Completion(model, features, 0, vocabulary, known, search, torch.device("cpu"))
    return completion, model, vocabulary


@pytest.mark.parametrize("broken", [False, True])
def test_words_that_are_new_to_the_model_are_only_said_where_asked_and_it_stays_as_it_is(
    broken: bool,
) -> None:
    features = Features(broken)
    completion, model, vocabulary = completion_of(features)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    if broken:
        with pytest.raises(DataError, match="the cache is gone"):
            dict(completion.complete({0: ["seal"]}))
    else:
        for tokens in dict(completion.complete({0: ["seal"], 1: ["seal"]})).values():
            assert "seal" in vocabulary.decode(tokens) and "owl" not in vocabulary.decode(tokens)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_photos_of_all_words_are_captioned_in_full_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As each word alone would be, with fewer batches."""
    monkeypatch.setattr(stored_arrays, "BATCH", 4)
    names = ["square", "seal", "red square", "owl", "square", "seal", "owl", "green square", "square", "seal"]
    words = {image: [name, "thing"] for image, name in enumerate(names)}
    features = Counted(len(names))
    completion, _, _ = completion_of(features)
    alone: dict[int, list[int]] = {}
    for name in dict.fromkeys(names):
        alone |= completion.complete({image: own for image, own in words.items() if own[0] == name})
    apart, features.taken = features.taken, []
    assert dict(completion.complete(words)) == alone
    assert len(set(map(tuple, alone.values()))) > 3
    free = len(names) // 4 + 1
    assert len(features.taken) == len(apart) - len(set(names)) + free
    assert features.taken.count(4) >= 2
