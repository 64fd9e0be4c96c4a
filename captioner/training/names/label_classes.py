"""Adds classes for label words that ImageNet does not cover.

ImageNet has no class for an octopus, and captions hardly mention one, so the captioner never learns to say
the word. With the options `LabelClassOptions`, such words get classes in the class evidence
(`captioner.nn.decoder.bonus.evidence`): new rows of the classifier (W, b) on the deepest features. Only
the new rows are fitted; the existing rows do not change. With p(S | f) the share of a set of classes S in
the softmax of W f + b, the loss is

    mean of -log p(right classes | mean feature)                        over labelled photos
    + NEGATIVES * mean of -log p(old classes, and new ones whose word
                                 a caption has | feature)               over captioned photos, and their cells
    + DECAY * mean of |w|²                                              over new classes

Labels weigh the same, however many photos each has. Without the captioned photos, new classes take a sixth of
the probability on photos that show none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from captioner.errors import DataError
from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.encoder import GridEncoder
from captioner.nn.model import CaptionModel
from captioner.training.config.train_options import LabelClassOptions
from captioner.training.data.examples import Example
from captioner.training.data.feature_cache import FeatureCache
from captioner.training.names.class_words import class_names, forms_of_name
from captioner.training.progress import Progress
from captioner.words.tokens import tokenize

NEGATIVES = 3.0
DECAY = 1e-3
CAPTIONED = 12_000
"""Most captioned photos to use."""
CELLS = 6
"""Random cells of each."""
STEPS, BATCH, LEARNING_RATE = 200, 2_000, 3e-3
"""Settings of Adam. The learning rate falls linearly to 0; a step takes all labelled photos and `BATCH`
captioned ones."""
_NONE = -1e4


def choose_classes(
    options: LabelClassOptions,
    bonus: BonusOptions,
    examples: Sequence[Example],
    vocabulary: Vocabulary,
    captions: Tensor,
) -> tuple[str, ...]:
    """The words of labels that get classes, the most frequent first. `captions` float (vocabulary): the
    number of captions with each word."""
    if not options.photos:
        return ()
    names = [name for names in class_names(bonus) for name in names]
    taken = {form for name in (*names, *options.excluded) for form in _forms(name)}
    photos = Counter(example.image.words[0] for example in examples if example.image.words)
    chosen = []
    for word, count in photos.most_common():
        rarest = captions[list(vocabulary.encode(word))].min()
        if count >= options.photos and rarest <= options.captions and taken.isdisjoint(_forms(word)):
            taken |= _forms(word)
            chosen.append(word)
    return tuple(chosen)


def _forms(name: str) -> set[tuple[str, ...]]:
    """The tokens of a name, as it is and in the plural."""
    *others, last = tokenize(name)
    return {(*others, *form) for form in forms_of_name([last])}


class Deepest(NamedTuple):
    """Where the features of the deepest output come from."""

    cached: FeatureCache
    encoder: GridEncoder
    frozen_segments: int
    """Segments of the backbone whose outputs are cached."""
    device: torch.device

    @torch.no_grad()
    def batches(self, rows: Tensor, tell: Callable[[int], None]) -> Iterator[Tensor]:
        """Of the examples `rows`, int64: float (photos, cells, channels), batch by batch."""
        done = 0
        for images in rows.split(64):
            outputs, _ = self.cached.outputs(self.encoder, self.frozen_segments, images, self.device)
            done += len(images)
            tell(done)
            yield outputs[-1].float().flatten(2).transpose(1, 2)


class Photos(NamedTuple):
    """What classes are fitted to."""

    labelled: Tensor
    """float (photos, channels): the mean features of labelled photos."""
    right: Tensor
    """bool (photos, classes), old and new ones: those that a label names."""
    weights: Tensor
    """float (photos,): weights of the labelled photos; their sum is 1."""
    captioned: Tensor
    """float16 (photos, 1 + CELLS, channels): mean features of captioned photos, and those of some cells."""
    said: Tensor
    """bool (photos, new classes): whether a caption has the word."""


def fit_classes(
    added: Sequence[str],
    model: CaptionModel,
    examples: Sequence[Example],
    features: Deepest,
    seed: int,
    progress: Progress,
) -> None:
    """Fit the classes of the words `added`, the last of `BonusOptions.label_classes` of `model`, on training
    `examples` with their `features`. Raises `DataError` if no photo has captions."""
    evidence = model.evidence
    assert evidence is not None and added
    model.eval()
    photos = _photos(added, model.options.bonus, examples, features, evidence.shared, seed, progress)
    _fit(evidence.classes, photos, torch.Generator().manual_seed(seed))
    # The evidence of words that no other class has is as strong as that of the median word.
    old = evidence.named_before(len(evidence.classes.bias) - len(added))
    if old.any():
        evidence.scale.data[~old] = evidence.scale.data[old].median()


def _fit(classifier: nn.Linear, photos: Photos, random: torch.Generator) -> None:
    """Fit the last rows of the classifier, in place."""
    count = photos.said.shape[1]
    device = classifier.weight.device
    with torch.no_grad():
        old = classifier.weight[:-count], classifier.bias[:-count]
        labelled_old = nn.functional.linear(photos.labelled, *old)
        right_old = torch.logsumexp(labelled_old.masked_fill(~photos.right[:, :-count], _NONE), dim=1)
        all_old = torch.logsumexp(labelled_old, dim=1)
        parts = (nn.functional.linear(part.float(), *old) for part in photos.captioned.split(256))
        captioned_old = torch.cat([torch.logsumexp(part, dim=2) for part in parts])
    weight = torch.zeros(count, classifier.in_features, device=device, requires_grad=True)
    bias = torch.full((count,), -2.0, device=device, requires_grad=True)
    optimizer = torch.optim.Adam([weight, bias], lr=LEARNING_RATE)
    right_new = photos.right[:, -count:]
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - step / STEPS)
        new = nn.functional.linear(photos.labelled, weight, bias)
        missed = _log_sum(new, all_old) - _log_sum(new.masked_fill(~right_new, _NONE), right_old)
        taken = torch.randint(len(photos.captioned), (BATCH,), generator=random).to(device)
        new = nn.functional.linear(photos.captioned[taken].float(), weight, bias)
        there = new.masked_fill(~photos.said[taken].unsqueeze(1), _NONE)
        stolen = _log_sum(new, captioned_old[taken]) - _log_sum(there, captioned_old[taken])
        loss = (photos.weights * missed).sum() + DECAY * weight.square().sum() / count
        loss = loss + NEGATIVES * (stolen[:, 0].mean() + stolen[:, 1:].mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        classifier.weight[-count:] = weight
        classifier.bias[-count:] = bias


def _log_sum(new: Tensor, old: Tensor) -> Tensor:
    """log(exp(old) + sum of exp(new)); `old` stands for all old classes, `new` has the new ones last."""
    return torch.logaddexp(torch.logsumexp(new, dim=-1), old)


def _photos(
    added: Sequence[str],
    bonus: BonusOptions,
    examples: Sequence[Example],
    features: Deepest,
    shared: nn.Module,
    seed: int,
    progress: Progress,
) -> Photos:
    """What classes for the words `added` are fitted to: features of photos, and what is right for them."""
    right = _right_classes(added, bonus, examples)
    labelled = right.any(dim=1).nonzero().flatten()
    exact = [tuple(tokenize(examples[row].image.words[0])) for row in labelled.tolist()]
    counts = Counter(exact)
    weights = torch.tensor([1 / (len(counts) * counts[word]) for word in exact])
    captioned = torch.tensor([row for row, example in enumerate(examples) if example.image.captions])
    if not len(captioned):
        raise DataError("label_classes need photos with captions: they show what labels do not name")
    captioned = captioned[torch.linspace(0, len(captioned) - 1, min(CAPTIONED, len(captioned))).long()]
    said = _said(added, [examples[row] for row in captioned.tolist()])

    random = torch.Generator().manual_seed(seed)
    total = len(labelled) + len(captioned)
    with progress.task("classes of label words", total, 0) as tell:
        means = [
            shared(cells).mean(dim=1) for cells in features.batches(labelled, lambda done: tell(done, ""))
        ]
        parts = []
        for cells in features.batches(captioned, lambda done: tell(len(labelled) + done, "")):
            picked = torch.rand(cells.shape[:2], generator=random).argsort(dim=1)[:, :CELLS].to(cells.device)
            cells = shared(cells)
            some = cells.gather(1, picked.unsqueeze(-1).expand(-1, -1, cells.shape[-1]))
            parts.append(torch.cat([cells.mean(dim=1, keepdim=True), some], dim=1).half())
    return Photos(
        torch.cat(means),
        right[labelled].to(features.device),
        weights.to(features.device),
        torch.cat(parts),
        said.to(features.device),
    )


def _right_classes(added: Sequence[str], bonus: BonusOptions, examples: Sequence[Example]) -> Tensor:
    """Which classes are right for each example by its labels, bool (examples, classes)."""
    names = [{tuple(tokenize(name)) for name in names} for names in class_names(bonus)]
    first = len(names) - len(added)
    classes: dict[tuple[str, ...], list[int]] = {}
    for number, own in enumerate(names):
        for name in own:
            classes.setdefault(name, []).append(number)
    right = torch.zeros(len(examples), len(names), dtype=torch.bool)
    for row, example in enumerate(examples):
        words = [tuple(tokenize(word)) for word in example.image.words]
        for word in words:
            # Of the old classes, only the most exact word chooses: more general ones are right for many.
            right[row, [c for c in classes.get(word, ()) if word == words[0] or c >= first]] = True
    return right


def _said(added: Sequence[str], examples: Sequence[Example]) -> Tensor:
    """Which of the words a caption of each example says, bool (examples, added)."""
    forms = [[set(form) for form in _forms(word)] for word in added]
    said = torch.zeros(len(examples), len(added), dtype=torch.bool)
    for row, example in enumerate(examples):
        captions = [set(tokenize(caption)) for caption in example.image.captions]
        said[row] = torch.tensor(
            [any(form <= tokens for form in each for tokens in captions) for each in forms]
        )
    return said
