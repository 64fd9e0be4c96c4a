"""A model that learns the captions of photos: what it is given, and the steps that it takes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.nn.encoder.taught import TaughtPhotos
from captioner.nn.model import CaptionModel
from captioner.training.config.train_options import TrainOptions
from captioner.training.corrections.prototypes import prototypes
from captioner.training.data.batches import Batch, epoch_batches, make_groups
from captioner.training.data.examples import Example
from captioner.training.data.feature_cache import FeatureCache
from captioner.training.data.frozen_part import trained_outputs
from captioner.training.objectives.likelihood import log_probs_of
from captioner.training.progress import Progress
from captioner.training.weights.start import Start

ENOUGH = 0.8
"""A word as likely as this is learnt, and changes nothing any more."""
WEAKEST = 0.75
"""The least share of its vector with which a photo's caption is learnt: photos like it may get less than
all."""
RATE, SHARED_RATE = 0.1, 0.03
"""Learning rates of Adam for what photos have, where each has a key of its own and where keys are shared."""
WORD_RATE = 3.0
"""Learning rate for what words have, divided by the number of their features, which all change at once. With
`RATE`, a few steps made a word tens of nats more likely everywhere, and each word of a caption drove out the
others."""
MOST_EPOCHS, MOST_STEPS = 100, 1500
PATIENCE, FAR = 40, 0.1
"""After so many rounds, a known word that is less likely than this gets a row (`RareWords`): no vector can
make a model say a word that it saw a few times. Other words are likely by then."""
MOST_ALIKE = 0.05
"""Share of the other photos that may count as like a corrected one."""
LEAST_BEGIN, MOST_BEGIN = 0.5, 0.7
"""Where the similarity that counts may begin. That of the mirrored photo is about 0.9, the median of two
photos of one thing 0.35 (a quarter are above 0.53), and of different things 0."""
APART = 0.25
"""How much more similar a photo is to its own key than to those of earlier lessons: in the softmax, 150
times."""
ROUNDED = 0.05
"""How much a similarity may be off in INT8."""


class Pupil:
    """A model, what it sees, and what it learns."""

    def __init__(
        self,
        model: CaptionModel,
        maps: FeatureCache,
        corrected: Sequence[Example],
        vocabulary: Vocabulary,
        start: Start,
        options: TrainOptions,
        device: torch.device,
        shares_keys: bool,
    ) -> None:
        """`model` is the `start` with the extended `vocabulary` and with keys that are not set yet. `maps`
        has the features of the `corrected` photos. With `shares_keys`, these are many, and share keys."""
        assert model.encoder.taught is not None
        self.model, self.maps, self.options, self.device = model, maps, options, device
        self.taught: TaughtPhotos = model.encoder.taught
        self.before, learnt = start.model.taught, len(start.vocabulary)
        self.known, self.new_words = learnt - start.taught_words, len(vocabulary) - learnt
        _forget(model, self.known)
        self.corrected, self.shares_keys = len(corrected), shares_keys
        self.groups = make_groups(corrected, vocabulary, start.search.max_words or 1)
        model.requires_grad_(False)
        self.trained: list[tuple[Tensor, int]] = [(self.taught.vectors, self.before)]
        if self.shares_keys and model.evidence is not None:
            with torch.no_grad():
                self.taught.quiet[self.before :] = 0.5
            self.trained.append((self.taught.quiet, self.before))
        for values, _ in self.trained:
            values.requires_grad_(True)
        self.optimizer = torch.optim.Adam(
            [values for values, _ in self.trained], lr=SHARED_RATE if shares_keys else RATE
        )
        if self.new_words:
            embedding = model.decoder.embedding
            self._train_words([embedding.weight, embedding.bias], learnt)
        self.far: set[int] = set()
        """Known words of a round that are far from being likely."""

    @torch.no_grad()
    def remember(self, maps_of_others: FeatureCache, others: int) -> list[int]:
        """Set the keys of the corrected photos. Returns those of the others that are like them."""
        taught = self.taught
        rows = [
            self._outputs(maps, part, torch.zeros_like(part))[-1]
            for maps, count in ((self.maps, self.corrected), (maps_of_others, others))
            for part in torch.arange(count).split(32)
            if len(part)
        ]
        if not self.before:
            taught.center.copy_(torch.cat([one.flatten(2).mean(dim=-1) for one in rows]).mean(dim=0))
        described = torch.cat([taught.describe(one) for one in rows])
        own, other = described[: self.corrected], described[self.corrected :]
        if self.shares_keys:
            keys = len(taught.keys) - self.before
            own = prototypes(own, other, keys, float(taught.begin), self.options.seed)
        elif self.before:
            own = self._lengthened(own, other)
        elif others:
            taught.begin.copy_(_border(own, other))
        taught.keys[self.before :] = own
        taught.brings[self.before :] = float(bool(self.new_words))
        if not others:
            return []
        nearest = F.linear(other, own).amax(dim=-1)
        return torch.nonzero(nearest > taught.begin - ROUNDED).flatten().tolist()

    def _lengthened(self, own: Tensor, other: Tensor) -> Tensor:
        """Keys for a model that has some: what is taught now wins over what it was taught before, and the
        similarity that counts for that stays the same."""
        begin = self.taught.begin
        earlier = F.linear(own, self.taught.keys[: self.before]).amax(dim=-1, keepdim=True)
        length = begin / _border(own, other) if len(other) else torch.ones_like(begin)
        return own * torch.maximum(length, earlier + APART)

    def learn(self, progress: Progress) -> None:
        """Take steps until all words of all corrections are likely enough; captions of many photos, which
        never are, for some epochs with a falling learning rate."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        everything = {group.image for group in self.groups}
        left = everything
        [stage] = self.options.stages
        captions = sum(len(group.captions) for group in self.groups)
        epochs = min(MOST_EPOCHS, max(1, MOST_STEPS * stage.batch_captions // captions))
        with progress.task("learning", epochs, 0) as tell:
            for epoch in range(epochs):
                if self.shares_keys:
                    for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                        group["lr"] = rate * (1 - epoch / epochs)
                groups = [group for group in self.groups if group.image in left]
                found: set[int] = set()
                self.far.clear()
                for batch in epoch_batches(groups, stage, (self.options.seed, epoch)):
                    found |= self._step(batch)
                if not found and left == everything:
                    return
                if epoch + 1 == PATIENCE and self.far and not self.shares_keys:
                    self._add_rare_words()
                left = found or everything
                tell(epoch + 1, f"{len(everything) - len(found)} of {len(everything)} captions learnt")

    def _train_words(self, words: Sequence[Tensor], first: int) -> None:
        """Train what words have, from the row `first` on."""
        self.trained += [(values.requires_grad_(True), first) for values in words]
        rate = WORD_RATE / self.model.decoder.embedding.embedding_dim
        self.optimizer.add_param_group({"params": words, "lr": rate})

    def _add_rare_words(self) -> None:
        """Give the words that are far from being likely rows, to be trained."""
        words, earlier = sorted(self.far), self.taught.rare.shape[1]
        has = torch.zeros(len(self.taught.rare), len(words), device=self.device)
        for group in self.groups:
            said = {token for caption in group.captions for token in caption}
            has[self.before + group.image] = torch.tensor([float(word in said) for word in words])
        self.taught.rare = torch.cat([self.taught.rare, has], dim=1)
        self._train_words(list(self.model.decoder.embedding.add_rare(words).parameters()), earlier)

    def _step(self, batch: Batch) -> set[int]:
        """Returns the photos of the batch that have a word which is not likely enough."""
        outputs = self._outputs(self.maps, batch.images, batch.views)
        mask = self.maps.masks(batch.images, batch.views, self.device)
        with torch.no_grad():
            grid = self.model.encoder.untaught(outputs, mask)
        like = self.taught(outputs[-1])
        part = WEAKEST + (1 - WEAKEST) * torch.rand(len(grid), 1, 1, device=self.device)
        named = (1 - part * (1 - like.heard.unsqueeze(-1))).unsqueeze(-1) * outputs[-1]
        log_probs, targets = self._read(
            grid + part * like.added, mask, named, part[:, 0] * like.rare, batch.captions.to(self.device)
        )
        likely = log_probs.detach().exp()
        open_words = (targets != Vocabulary.pad_id) & (likely < ENOUGH)
        known = (targets < self.known) & (targets >= len(SPECIAL))
        self.far.update(targets[known & (likely < FAR)].tolist())
        loss = -(log_probs * open_words).sum() / len(grid)
        self.optimizer.zero_grad()
        loss.backward()
        for values, first in self.trained:
            assert values.grad is not None
            values.grad[:first] = 0.0  # what the model knew
        self.optimizer.step()
        self.taught.quiet.data.clamp_(0, 1)
        return set(batch.images[open_words.flatten(1).any(dim=1).cpu()].tolist())

    def _read(
        self, grid: Tensor, mask: Tensor | None, deepest: Tensor, rare: Tensor, captions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The log-probabilities of the next words of captions, as a search has them, and these words, both
        (batch, captions, length)."""
        decoder = self.model.decoder
        memory, state = decoder.prepare(grid, mask, deepest)
        memory["rare"] = rare
        if decoder.bonus is not None:  # new words are not detected
            detected = decoder.bonus.begin(decoder.detect(memory)[:, : self.known])
            added = decoder.embedding.num_embeddings - self.known
            state |= {name: F.pad(gains, (0, added)) for name, gains in detected.items()}
        tokens, targets = captions[:, :, :-1], captions[:, :, 1:]
        logits, _ = decoder(tokens, memory, state)
        logits = decoder.as_searched(logits, tokens, memory, state).float()
        return log_probs_of(logits, targets), targets

    def _outputs(self, maps: FeatureCache, images: Tensor, views: Tensor) -> list[Tensor]:
        inputs = maps.maps(images, views, self.device)
        return trained_outputs(self.model.encoder, inputs, self.options.frozen_segments)


def _border(own: Tensor, other: Tensor) -> Tensor:
    """The similarity to corrected photos, (photos, channels) each, above which few others are."""
    nearest = F.linear(other, own).amax(dim=-1)
    return torch.quantile(nearest, 1 - MOST_ALIKE).clamp(LEAST_BEGIN, MOST_BEGIN)


@torch.no_grad()
def _forget(model: CaptionModel, known: int) -> None:
    """Let bonuses take words from `known` on for padding, as graphs do (`captioner.export.taught`)."""
    bonus = model.decoder.bonus
    for values in bonus.state_dict().values() if bonus else ():
        if values.ndim and len(values) == model.decoder.embedding.num_embeddings:
            values[known:] = values[Vocabulary.pad_id]
