"""Captions that a model completes for labelled photos."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from support import tiny_cnn

from captioner.errors import DataError
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.options import CaptionOptions
from captioner.training.data.cache import FeatureCache
from captioner.training.names.completion import Completion

KNOWN = ("a", "red", "green", "square", "on", "the")


class Features:
    """Pixels of random images; `broken` ones cannot be read."""

    def __init__(self, broken: bool) -> None:
        self.broken = broken

    def maps(self, images: torch.Tensor, *_: Any) -> list[torch.Tensor]:
        if self.broken:
            raise DataError("the cache is gone")
        return [torch.randint(0, 256, (len(images), 32, 32, 3), dtype=torch.uint8)]

    def masks(self, *_: Any) -> None:
        return None


@pytest.mark.parametrize("broken", [False, True])
def test_words_that_are_new_to_the_model_are_only_said_where_asked_and_it_stays_as_it_is(
    broken: bool,
) -> None:
    vocabulary = Vocabulary([*SPECIAL, *KNOWN, "seal", "owl"])
    options = ModelOptions(
        encoder=tiny_cnn.NAME, image_size=32, stride=8, features=8, attention_hidden=8, hidden=8, embedding=8
    )
    model = CaptionModel(options, len(vocabulary)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    search = CaptionOptions(beam_size=2, max_words=6, length_normalization=0.0, no_repeat_ngram=0)
    features, known = cast(FeatureCache, Features(broken)), len(SPECIAL) + len(KNOWN)
    completion = Completion(model, features, 0, vocabulary, known, search, torch.device("cpu"))
    if broken:
        with pytest.raises(DataError, match="the cache is gone"):
            dict(completion.complete({0: ["seal"]}))
    else:
        for tokens in dict(completion.complete({0: ["seal"], 1: ["seal"]})).values():
            assert "seal" in vocabulary.decode(tokens) and "owl" not in vocabulary.decode(tokens)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
