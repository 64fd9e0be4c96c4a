"""The training loop: stages of epochs, resumable at any batch."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.metrics.cider import CiderReward
from captioner.model.vocabulary import END, Vocabulary, tokenize
from captioner.nn.attention import drawn_cells
from captioner.nn.decoder import LSTMDecoder, checklist
from captioner.nn.model import CaptionModel
from captioner.training import checkpoint
from captioner.training.cache import FeatureCache, build_cache, trained_part
from captioner.training.curves import plot_curves
from captioner.training.data import (
    Batch,
    Example,
    epoch_batches,
    load_examples,
    make_groups,
    make_image_groups,
    word_weights,
)
from captioner.training.ema import MovingAverage, copy_weights
from captioner.training.hiding import hide
from captioner.training.hints import HintNetwork, HintReader, build_hints
from captioner.training.objectives import (
    attention_entropy,
    cross_entropy,
    distillation,
    doubly_stochastic,
    policy_gradient,
    word_detection,
)
from captioner.training.options import StageOptions, TrainOptions
from captioner.training.progress import Progress
from captioner.training.records import in_words, losses_in_words, mean_cider
from captioner.training.reinforce import CellReward
from captioner.training.self_critical import advantages, sample
from captioner.training.soup import Soup
from captioner.training.start import Start
from captioner.training.teachers import Teachers
from captioner.training.validation import validate
from captioner.training.zoom import zoom


class Trainer:
    """One run in one folder.

    The folder gets `last.pt` (to resume), `best.pt` (to export), `log.jsonl` (a line an epoch and mean) and
    `curves.png`. Calling `run` again on the same folder goes on where the last call stopped and ends with
    the same weights as a run that was never stopped.
    """

    def __init__(
        self,
        options: TrainOptions,
        folder: Path,
        data_root: Path,
        cache: Path,
        device: torch.device,
        progress: Progress,
        checkpoint_every_s: float = 60.0,
    ) -> None:
        """Raises `DataError` for data that cannot be used and for a folder of another run."""
        start = Start.read(options.start, data_root) if options.start else None
        if start:
            options = dataclasses.replace(options, model=start.architecture(options.model))
        self.options, self.folder, self.device, self.progress = options, folder, device, progress
        self.checkpoint_every_s = checkpoint_every_s
        self.train_examples = load_examples(options.data, data_root, "train")
        self.val_examples = load_examples(options.data, data_root, "val")
        captions = (c for example in self.train_examples for c in example.image.captions)
        self.vocabulary = Vocabulary.build(captions, options.min_count)
        if start:
            self.vocabulary = start.extended(self.vocabulary)
        self.frozen = 3 - options.tuned_segments
        torch.manual_seed(options.seed)
        weights = None if options.weights == "random" or start else options.weights
        self.model = CaptionModel(options.model, len(self.vocabulary), weights).to(device)
        if start:
            start.give(self.model)
        self.teachers = Teachers(
            options.teachers, data_root, self.model, self.vocabulary, self.frozen, device
        )
        self.ema = MovingAverage(self.model, options.ema_decay)
        self.hint_reader: HintReader | None = None
        self.cell_reward = CellReward()
        self.history: list[dict[str, Any]] = []
        self.stage = self.epoch = self.batch = 0
        folder.mkdir(parents=True, exist_ok=True)
        self.cache = self._cache(cache, self.train_examples, "features of training images", options.crops)
        self.val_cache = self._cache(cache, self.val_examples, "features of validation images")
        if options.hint_network:
            self._read_hints(cache, data_root / options.hint_network)
        if (folder / "last.pt").exists():
            self._resume()  # starts the stage it finds there
        else:
            self._start_stage()

    def run(self) -> list[dict[str, Any]]:
        """Train to the end. Returns the history, a record an epoch, and of each mean of runs."""
        while self.stage < len(self.options.stages):
            while self.epoch < self.current.epochs * self.current.runs:
                self._run_epoch()
            self.stage, self.epoch = self.stage + 1, 0
            if self.stage < len(self.options.stages):
                self._start_stage()
        return self.history

    @property
    def current(self) -> StageOptions:
        return self.options.stages[self.stage]

    def _run_epoch(self) -> None:
        stage = self.current
        batches = epoch_batches(
            self.groups, stage, (self.options.seed, self.stage, self.epoch), self.options.crops
        )
        steps = len(batches)
        started, saved = time.monotonic(), time.monotonic()
        taken: list[dict[str, float]] = []
        epochs = stage.epochs * stage.runs
        with self.progress.task(f"{stage.name} {self.epoch + 1}/{epochs}", steps, self.batch) as tell:
            while self.batch < steps:
                done = self.epoch % stage.epochs * steps + self.batch
                self._set_learning_rate(done, stage.epochs * steps)
                taken.append(self._train_batch(batches[self.batch]))
                self.batch += 1
                tell(self.batch, losses_in_words(self._means(taken[-50:])))
                if time.monotonic() - saved > self.checkpoint_every_s:
                    self._save()
                    saved = time.monotonic()
        record: dict[str, Any] = {
            "stage": stage.name,
            "epoch": self.epoch + 1,
            **self._means(taken),
            "seconds": round(time.monotonic() - started, 1),
        }
        if self.val_examples:
            record["val"] = self._validate()
        self.history.append(record)
        self.epoch, self.batch = self.epoch + 1, 0
        self._report(record)
        if stage.runs > 1 and self.epoch % stage.epochs == 0:
            self._end_run()
        self._save()

    def _end_run(self) -> None:
        """One of the stage's runs is over: begin the next, or go on with the mean of all."""
        stage = self.current
        self.soup.add(self._shown().values)
        if self.epoch < stage.epochs * stage.runs:
            self._go_on_from(self.soup.found)
            self.optimizer = self._make_optimizer()
            return
        self._go_on_from(self.soup.mean())
        record: dict[str, Any] = {"stage": stage.name, "mean_of": stage.runs}
        if self.val_examples:
            record["val"] = self._validate()
        self.history.append(record)
        self._report(record)

    def _means(self, taken: list[dict[str, float]]) -> dict[str, float]:
        """Of what `_train_batch` told; 0 if a run goes on when all of an epoch but its end is done."""
        names = ["loss", "hint_error"] if self.current.hints else ["loss"]
        return {name: sum(step[name] for step in taken) / max(1, len(taken)) for name in names}

    def _train_batch(self, batch: Batch) -> dict[str, float]:
        """Take a step, and tell what was lost."""
        stage = self.current
        self.model.train()
        maps = self.cache.maps(batch.images, batch.views, self.device)
        mask = self.cache.masks(batch.images, batch.views, self.device)
        hints = self.hints.hints(batch.images, batch.views, self.device) if stage.hints else []
        if stage.zoom < 1:
            shown = zoom([*maps, *hints], stage.zoom)
            maps, hints = shown[: len(maps)], shown[len(maps) :]
        with torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.options.precision == "bfloat16"
        ):
            captions = batch.captions.to(self.device)
            taught = None
            if stage.distillation:
                taught = self.teachers.predict(maps, mask, captions[:, :, :-1])
            grid = trained_part(self.model.encoder, maps, self.frozen, stage.tuned_segments, mask)
            hint_error = self._hint_error(grid, hints) if hints else torch.zeros(())
            grid, mask = hide(grid, mask, stage.hidden_cells, stage.hidden_features)
            memory, state = self.model.decoder.prepare(grid, mask)
            if stage.objective == "self_critical":
                loss = self._self_critical_loss(batch, memory, state)
            else:
                loss = self._likelihood_loss(captions, taught, memory, state)
            loss = loss + stage.hints * hint_error
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, stage.gradient_norm)
        self.optimizer.step()
        if self.options.ema_decay:
            self.ema.update(self.model)
        lost = {"loss": float(loss.detach()), "hint_error": float(hint_error.detach())}
        if not math.isfinite(lost["loss"]):
            raise DataError(f"the loss is {lost['loss']} at batch {self.batch}: try a smaller learning_rate")
        return lost

    def _likelihood_loss(
        self, captions: Tensor, taught: Tensor | None, memory: dict[str, Tensor], state: dict[str, Tensor]
    ) -> Tensor:
        targets = captions[:, :, 1:]
        with drawn_cells(self.model.decoder) as drawn:
            logits, attention = self.model.decoder(captions[:, :, :-1], memory, state)
        loss = cross_entropy(logits, targets, self.current.label_smoothing)
        if taught is not None:
            loss = torch.lerp(loss, distillation(logits, taught, targets), self.current.distillation)
        if self.current.doubly_stochastic:
            uneven = doubly_stochastic(attention, targets, memory["mask"])
            loss = loss + self.current.doubly_stochastic * uneven
        if self.current.attention_entropy:
            loss = loss + self.current.attention_entropy * attention_entropy(attention, targets)
        if self.current.word_detection:
            assert isinstance(self.model.decoder, LSTMDecoder)  # as _start_stage has seen
            detected = self.model.decoder.detect(memory)
            loss = loss + self.current.word_detection * word_detection(detected, self._word_counts(captions))
        if drawn:
            loss = loss + self.current.hard_reward * self.cell_reward.loss(drawn, logits, targets)
            loss = loss - self.current.hard_entropy * attention_entropy(attention, targets)
        return loss

    def _hint_error(self, grid: Tensor, hints: list[Tensor]) -> Tensor:
        assert self.hint_reader is not None  # as TrainOptions has seen
        return self.hint_reader(grid, self.options.model.grid, hints)

    def _word_counts(self, captions: Tensor) -> Tensor:
        """How often the captions of each image say a word, times its weight: float (batch, vocabulary)."""
        words = captions.flatten(1)
        counts = torch.zeros(len(words), len(self.vocabulary), device=words.device)
        counts.scatter_add_(1, words, torch.ones_like(words, dtype=counts.dtype))
        return counts * self.word_weights

    def _self_critical_loss(
        self, batch: Batch, memory: dict[str, Tensor], state: dict[str, Tensor]
    ) -> Tensor:
        stage = self.current
        # Without dropout, so that the gradient is taken of the policy that drew the captions.
        self.model.decoder.eval()
        sampled = sample(
            self.model.decoder, memory, state, stage.samples, self.options.max_words, stage.temperature
        )
        said = [
            [*self.vocabulary.decode(ids), *([END] if Vocabulary.end_id in ids else [])]
            for ids in sampled[:, :, 1:].flatten(0, 1).tolist()
        ]
        rows = batch.images.repeat_interleave(stage.samples).tolist()
        scores = self.rewarder.scores(rows, said)
        if stage.contrast:
            scores -= stage.contrast * self.rewarder.typicality(said)
        rewards = torch.tensor(scores, dtype=torch.float32).view(len(batch.images), -1)
        logits, _ = self.model.decoder(sampled[:, :, :-1], memory, state)
        logits = checklist.add_to_all(logits, sampled[:, :, :-1], state)
        return policy_gradient(
            logits / stage.temperature, sampled[:, :, 1:], advantages(rewards).to(self.device)
        )

    def _start_stage(self) -> None:
        """Choose what is trained, with a fresh optimiser."""
        stage = self.current
        if self.stage and self.options.ema_decay:
            self._go_on_from(self.ema.values)  # the average is the better model
        self.soup = Soup(self.model)
        segments = self.model.encoder.backbone.segments
        for index, segment in enumerate(segments):
            segment.requires_grad_(index >= len(segments) - stage.tuned_segments)
        self.model.encoder.backbone.set_stochastic_depth(stage.stochastic_depth)
        self.optimizer = self._make_optimizer()
        if stage.objective == "cross_entropy":
            self.groups = make_groups(self.train_examples, self.vocabulary, self.options.max_words)
            if stage.word_detection:
                if not isinstance(self.model.decoder, LSTMDecoder):
                    raise DataError(f"stage {stage.name}: word_detection needs the decoder lstm or two_lstm")
                self.word_weights = word_weights(self.groups, len(self.vocabulary)).to(self.device)
            elif self.model.decoder.checklist_weight:
                self.progress.note(f"stage {stage.name}: no word_detection, so the checklist goes stale")
        else:
            self.groups = make_image_groups(self.train_examples, stage.min_references)
            if not self.groups:
                raise DataError(f"stage {stage.name}: no image has {stage.min_references} captions")
            # The end token is scored like a word, so that stopping in mid-sentence does not pay.
            self.rewarder = CiderReward(
                [[[*tokenize(c), END] for c in example.image.captions] for example in self.train_examples]
            )

    def _go_on_from(self, values: Mapping[str, Tensor]) -> None:
        """Give the model these weights, and average anew."""
        copy_weights(self.model, values)
        self.ema = MovingAverage(self.model, self.options.ema_decay)

    def _make_optimizer(self) -> torch.optim.Optimizer:
        stage = self.current
        tuned = [p for p in self.model.encoder.backbone.parameters() if p.requires_grad]
        ours = {id(p) for p in self.model.encoder.backbone.parameters()}
        rest = [p for p in self.model.parameters() if id(p) not in ours]
        rest += self.hint_reader.parameters() if self.hint_reader and stage.hints else []
        matrices = [p for p in rest if p.dim() > 1]
        vectors = [p for p in rest if p.dim() <= 1]
        groups = [
            {"params": matrices, "base": stage.learning_rate, "weight_decay": stage.weight_decay},
            {"params": vectors, "base": stage.learning_rate, "weight_decay": 0.0},
        ]
        if tuned:
            groups.append({"params": tuned, "base": stage.encoder_learning_rate, "weight_decay": 0.0})
        self.trained = [p for group in groups for p in group["params"]]  # type: ignore[attr-defined]
        return torch.optim.AdamW(groups, lr=stage.learning_rate, betas=(0.9, 0.98), fused=True)

    def _set_learning_rate(self, step: int, total: int) -> None:
        """Linear warm-up, then cosine decay (Loshchilov and Hutter 2017, arXiv:1608.03983)."""
        stage = self.current
        warm = min(1.0, (step + 1) / max(1, stage.warmup_steps))
        cosine = 0.5 * (1 + math.cos(math.pi * step / total))
        floor = min(1.0, stage.final_learning_rate / stage.learning_rate) if stage.learning_rate else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = group["base"] * warm * (floor + (1 - floor) * cosine)

    def _validate(self) -> dict[str, dict[str, float]]:
        with self._shown().applied(self.model):
            _, scores = validate(
                self.model,
                self.val_cache,
                self.val_examples,
                self.vocabulary,
                self.frozen,
                self.options.search,
                self.device,
            )
            best = max((mean_cider(record) for record in self.history), default=-1.0)
            if mean_cider({"val": scores}) > best:
                checkpoint.save(self.folder / "best.pt", self._best(scores))
        return scores

    def _shown(self) -> MovingAverage:
        """What is validated and kept: without an average, the weights themselves."""
        return self.ema if self.options.ema_decay else MovingAverage(self.model, 0.0)

    def _best(self, scores: dict[str, dict[str, float]]) -> dict[str, Any]:
        return {
            **self._identity(),
            "model": {name: value.half() for name, value in self.model.state_dict().items()},
            "scores": scores,
            "history": self.history,
        }

    def _identity(self) -> dict[str, Any]:
        return {"options": self.options.to_dict(), "vocabulary": list(self.vocabulary.words)}

    def _save(self) -> None:
        checkpoint.save(
            self.folder / "last.pt",
            {
                **self._identity(),
                "model": self.model.state_dict(),
                "ema": self.ema.values,
                "ema_updates": self.ema.updates,
                "soup": self.soup.state() if self.current.runs > 1 else None,
                "cell_baseline": self.cell_reward.baseline,
                "hint_reader": self.hint_reader.state_dict() if self.hint_reader else None,
                "optimizer": self.optimizer.state_dict(),
                "position": [self.stage, self.epoch, self.batch],
                "random": torch.get_rng_state(),
                "cuda_random": torch.cuda.get_rng_state_all() if self.device.type == "cuda" else [],
                "history": self.history,
            },
        )

    def _resume(self) -> None:
        saved = checkpoint.load(self.folder / "last.pt", self.device)
        if "position" not in saved:
            raise DataError(f"{self.folder / 'last.pt'} is not the state of a run; it cannot be resumed from")
        if TrainOptions.from_dict(saved["options"]) != self.options:
            raise DataError(f"{self.folder} holds a run with other options; choose another folder")
        if saved["vocabulary"] != list(self.vocabulary.words):
            raise DataError(f"{self.folder} holds a run on other captions; choose another folder")
        self.stage, self.epoch, self.batch = saved["position"]
        self.history = saved["history"]
        self._start_stage()
        self.model.load_state_dict(saved["model"])
        self.ema.values, self.ema.updates = saved["ema"], saved["ema_updates"]
        if self.current.runs > 1:
            self.soup.resume(saved["soup"])
        self.cell_reward.baseline = saved.get("cell_baseline")
        if self.hint_reader:
            self.hint_reader.load_state_dict(saved["hint_reader"])
        self.optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["random"].cpu())
        if self.device.type == "cuda":
            torch.cuda.set_rng_state_all([state.cpu() for state in saved["cuda_random"]])

    def _report(self, record: dict[str, Any]) -> None:
        with (self.folder / "log.jsonl").open("w", encoding="utf-8") as log:
            log.writelines(json.dumps(line) + "\n" for line in self.history)
        plot_curves(self.history, self.folder / "curves.png")
        self.progress.note(in_words(record))

    def _read_hints(self, cache: Path, path: Path) -> None:
        options = self.options
        network = HintNetwork(path, options.hint_normalization, options.model.image_size, self.device)
        examples = self.train_examples
        with self.progress.task("hints of training images", len(examples), 0) as tell:
            self.hints = build_hints(
                cache, network, examples, options.crops, lambda done, _total: tell(done, "")
            )
        self.hint_reader = HintReader(options.model.features, self.hints.features).to(self.device)

    def _cache(self, folder: Path, examples: list[Example], what: str, crops: int = 0) -> FeatureCache:
        model = self.options.model
        self.model.eval()
        with self.progress.task(what, len(examples), 0) as tell:
            return build_cache(
                folder,
                self.model.encoder,
                self.options.start or self.options.weights,
                model.encoder,
                model.image_size,
                self.frozen,
                examples,
                self.device,
                lambda done, _total: tell(done, ""),
                self.model.letterbox,
                crops,
            )
