"""The training loop: stages of epochs, resumable at any batch."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.training.config.train_options import StageOptions, TrainOptions
from captioner.training.data.batches import Batch
from captioner.training.data.examples import Example
from captioner.training.loop.calibrate import Said, calibrate
from captioner.training.loop.losses import Losses, forward
from captioner.training.loop.plan import leaked, unlearnt, warnings
from captioner.training.loop.prepare import prepare
from captioner.training.loop.report import (
    in_words,
    losses_in_words,
    mean_score,
    position_in_words,
)
from captioner.training.loop.run_folder import RunFolder, digest_of
from captioner.training.loop.schedule import Clock, keep_other_words, make_optimizer, set_learning_rate
from captioner.training.loop.step_losses import StepLosses
from captioner.training.loop.validation import validate
from captioner.training.names.label_classes import Deepest, fit_classes
from captioner.training.names.label_words import label_words
from captioner.training.progress import Progress, duration
from captioner.training.run import Run
from captioner.training.weights import checkpoint
from captioner.training.weights.averages import MovingAverage, Soup, copy_weights


def computes_in_bfloat16(device: torch.device) -> bool:
    """Whether a device can. Without AVX-512, oneDNN has no LSTM in bfloat16, and PyTorch raises an error."""
    return device.type != "cpu" or torch.backends.cpu.get_cpu_capability() not in ("DEFAULT", "AVX2")


class Trainer:
    """One run in one folder.

    Calling `run` again on the same folder (`RunFolder`) continues where the last call stopped and ends with
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
        prepared = prepare(options, data_root, device, progress)
        self.options, self.vocabulary, self.added = prepared.options, prepared.vocabulary, prepared.added
        self.model, self.confidence = prepared.model, prepared.confidence
        self.device, self.progress = device, progress
        self.in_bfloat16 = self._can_be_in_bfloat16()
        self.data_root, self.cache_folder = data_root, cache
        self.checkpoint_every_s = checkpoint_every_s
        self.label_words = torch.tensor(label_words(prepared.train, self.vocabulary), device=device)
        self.history: list[dict[str, Any]] = []
        self.stage = self.epoch = self.batch = 0
        self.spent_s = 0.0
        """The time that the stage had taken when it was saved."""
        self.start_score: float | None = None
        """The mean score of the model that the run started from, if there is one and it was validated."""
        self.start_is_better = False
        """Whether no epoch was better than the model that the run started from, once that is known."""
        self.clock = Clock()
        self.folder = RunFolder(folder)
        given = prepared.train, prepared.val
        saved = self._find_position(given)
        photos = prepared.photos(cache, device, progress)
        self.train_examples, self.features, self.val_examples, self.val_features = photos
        usable = self.train_examples, self.val_examples
        self.data_digest, self.damaged = digest_of(*usable), sorted(_contents(given) - _contents(usable))
        if saved:
            self.folder.check_data(saved, self.data_digest)
        else:
            self._fit_label_classes()
        self.ema = MovingAverage(self.model, self.options.ema_decay)
        self.soup = Soup(self.model)
        self.losses, self.optimizer = self._prepared_stage()
        if saved:
            self._restore(saved)
        for text in warnings(self.options, self.train_examples):
            progress.note(text)
        if leak := leaked(self.train_examples, self.val_examples):
            progress.note(leak)

    def run(self) -> list[dict[str, Any]]:
        """Train to the end. Returns the history, a record an epoch, and of each mean of runs."""
        self._score_start()
        self.clock = Clock(self.spent_s)
        while self.stage < len(self.options.stages):
            while self.epoch < self.current.epochs * self.current.runs:
                self._run_epoch()
            losses = [r["loss"] for r in self.history if r["stage"] == self.current.name and "loss" in r]
            if text := unlearnt(self.current, losses):
                self.progress.note(text)
            self.stage, self.epoch = self.stage + 1, 0
            if self.stage < len(self.options.stages):
                self._start_stage()
        self._note_doubts()
        return self.history

    def _note_doubts(self) -> None:
        """Say it if the scores cannot tell the best epoch, or if none is better than the start."""
        said = {caption for example in self.val_examples for caption in example.image.captions}
        if len(said) == 1:
            self.progress.note(
                "all captions for validation are the same; CIDEr is then 0, and best.pt holds the last epoch"
            )
        elif self.start_score is not None and max(map(mean_score, self._rivals())) <= self.start_score:
            self.start_is_better = True
            self.progress.note(
                "no epoch captions the validation images better than the model that the run started from"
            )

    def _can_be_in_bfloat16(self) -> bool:
        wanted = self.options.precision == "bfloat16"
        can = computes_in_bfloat16(self.device)
        if wanted and not can:
            self.progress.note("this processor does not compute in bfloat16; the run computes in float32")
        return wanted and can

    @property
    def current(self) -> StageOptions:
        return self.options.stages[self.stage]

    def _score_start(self) -> None:
        """Say how good the model is that a new run starts from."""
        if not (self.options.start and self.val_examples) or self.history or self.batch:
            return
        with self._weights_to_keep().applied(self.model):
            _, scores = self._caption_validation()
        self.progress.note(in_words({"before": scores}))
        self.start_score = mean_score({"val": scores})

    def _run_epoch(self) -> None:
        stage = self.current
        batches = self.losses.batches(self.epoch)
        steps, epochs = len(batches), stage.epochs * stage.runs
        started = time.monotonic()
        taken, first = StepLosses(self.device, self.batch), self.batch
        self._take_steps(batches, taken)
        record: dict[str, Any] = {
            "stage": stage.name,
            "epoch": self.epoch + 1,
            "epochs": epochs,
            **taken.mean(),
            "photos": sum(len(batch.images) for batch in batches[first : self.batch]),
            "seconds": round(time.monotonic() - started, 1),
        }
        end = (self.epoch // stage.epochs + 1) * stage.epochs
        after = self.epoch + 1 if self.clock.share_of(stage) < 1 else end
        if after > self.epoch + 1 or self.batch < steps:
            done = self.epoch % stage.epochs + self.batch / steps
            self.progress.note(
                f"{stage.name}: its {stage.seconds:g} s are over after {done:.1f} of {stage.epochs} epochs"
            )
        if self.batch == first and self.history and self.history[-1]["stage"] == stage.name:
            record = self.history.pop()  # no time was left after that epoch
        # Where time is short, not every epoch is validated and saved.
        due = after == end or not stage.seconds or self.clock.ticks(self.checkpoint_every_s)
        self._record(record, validate=due)
        self.epoch, self.batch = after, 0
        if stage.runs > 1 and self.epoch == end:
            self._end_run()
        if due:
            self._save()

    def _take_steps(self, batches: Sequence[Batch], taken: StepLosses) -> None:
        """The steps of an epoch that are left, until the time of the stage is over."""
        stage, steps = self.current, len(batches)
        saved = time.monotonic()
        what = f"{stage.name} {self.epoch + 1} of {stage.epochs * stage.runs}"
        with self.progress.task(what, steps, self.batch) as tell:
            while self.batch < steps and (used := self.clock.share_of(stage)) < 1:
                step = self.epoch % stage.epochs * steps + self.batch
                set_learning_rate(self.optimizer, stage, step, max(used, step / (stage.epochs * steps)))
                self._train_batch(batches[self.batch], taken)
                self.batch += 1
                tell(self.batch, losses_in_words(taken.mean(last=50)))
                if time.monotonic() - saved > self.checkpoint_every_s:
                    taken.read()  # before what may be wrong is saved
                    self._save()
                    saved = time.monotonic()
        taken.read()

    def _record(self, record: dict[str, Any], validate: bool = True) -> None:
        """Validate, and add the record to the history and its files."""
        if self.val_examples and validate:
            record["val"] = self._validate()
        self.history.append(record)
        self.folder.write_history(self.history)
        self.progress.note(in_words(record) + self._time_left(record))

    def _time_left(self, record: Mapping[str, Any]) -> str:
        """How long the rest of the run takes, if its epochs are as long as this one."""
        if "seconds" not in record:
            return ""
        stages = self.options.stages[self.stage :]
        epoch_s = record["seconds"]
        times = [one.runs * min(one.epochs * epoch_s, one.seconds or math.inf) for one in stages]
        left = sum(times) - min((self.epoch + 1) * epoch_s, times[0])
        return f", about {duration(left)} left" if left else ""

    def _end_run(self) -> None:
        """One of the stage's runs is over: begin the next, or continue with the mean of all."""
        stage = self.current
        self.soup.add(self._weights_to_keep().values)
        if self.epoch < stage.epochs * stage.runs:
            self._continue_from(self.soup.start)
            self.clock = Clock()
            self.optimizer = make_optimizer(self.model, self.losses.values(), stage)
            return
        self._continue_from(self.soup.mean())
        self._record({"stage": stage.name, "mean_of": stage.runs})

    def _train_batch(self, batch: Batch, taken: StepLosses) -> None:
        """Take a step, and add its losses to those `taken`. Raises `DataError` if the loss depends on nothing
        that the stage trains, and if it or a gradient is not finite: on a CPU before the step, on a GPU some
        steps later."""
        self.model.train()
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.in_bfloat16):
            step = forward(self.losses.run, self.features, batch)
            loss, parts = self.losses.loss(step)
        if not loss.requires_grad:
            names = ", ".join(self.losses)
            raise DataError(f"stage {self.current.name}: {names} would train nothing of this model")
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.current.label_words_only:
            keep_other_words(self.model, self.label_words)
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(trained, self.current.gradient_norm or math.inf)
        taken.add({"loss": loss.detach(), **parts}, norm)
        self.optimizer.step()
        if self.options.ema_decay:
            self.ema.update(self.model)

    def _start_stage(self) -> None:
        """Choose what is trained, with a fresh optimizer."""
        if self.options.ema_decay:
            copy_weights(self.model, self.ema.values)  # the average is the better model
        self.model.strengthen_evidence(self.current.evidence_gain)
        self._fit_label_classes()
        self.ema = MovingAverage(self.model, self.options.ema_decay)
        self.soup = Soup(self.model)
        before = self.losses
        self.losses, self.optimizer = self._prepared_stage()
        self.losses.inherit(before)
        self.clock = Clock()

    def _fit_label_classes(self) -> None:
        """If this is the time: when the first stage begins from which on the encoder stays as it is."""
        if self.added and self.stage == self.options.first_frozen_stage:
            segments = self.options.frozen_segments
            features = Deepest(self.features, self.model.encoder, segments, self.device)
            fit_classes(
                self.added, self.model, self.train_examples, features, self.options.seed, self.progress
            )

    def _prepared_stage(self) -> tuple[Losses, torch.optim.Optimizer]:
        """The objectives of the current stage, and an optimizer of what it trains."""
        stage, backbone = self.current, self.model.encoder.backbone
        for index, segment in enumerate(backbone.segments):
            segment.requires_grad_(index >= len(backbone.segments) - stage.tuned_segments)
        backbone.set_stochastic_depth(stage.stochastic_depth)
        run = Run(
            options=self.options,
            stage=stage,
            examples=self.train_examples,
            vocabulary=self.vocabulary,
            model=self.model,
            data_root=self.data_root,
            cache=self.cache_folder,
            device=self.device,
            progress=self.progress,
            features=self.features,
        )
        losses = Losses(run, self.stage)
        return losses, make_optimizer(self.model, losses.values(), stage)

    def _continue_from(self, values: Mapping[str, Tensor]) -> None:
        """Give the model these weights, and start a new average."""
        copy_weights(self.model, values)
        self.ema = MovingAverage(self.model, self.options.ema_decay)

    def _validate(self) -> dict[str, dict[str, float]]:
        with self._weights_to_keep().applied(self.model):
            captions, scores = self._caption_validation()
            # A few images do not tell more than the model that was started from.
            fitted = calibrate(self.val_examples, captions)
            self.confidence = fitted or self.confidence
            best = max((mean_score(record) for record in self._rivals()), default=-1.0)
            # Of equal scores the last: CIDEr is 0 throughout if all references are alike.
            if mean_score({"val": scores}) >= best:
                model = checkpoint.halved(self.model.state_dict())
                checkpoint.save(
                    self.folder.best,
                    {**self._identity(), "model": model, "scores": scores, "history": self.history},
                )
        return scores

    def _rivals(self) -> list[dict[str, Any]]:
        """The records of epochs that may have been better: once label classes are fitted, those with them."""
        first = self.options.first_frozen_stage if self.added else 0
        if self.stage < first:
            return self.history
        with_classes = {stage.name for stage in self.options.stages[first:]}
        return [record for record in self.history if record["stage"] in with_classes]

    def _caption_validation(self) -> tuple[list[Said], dict[str, dict[str, float]]]:
        return validate(
            self.model,
            self.val_features,
            self.val_examples,
            self.vocabulary,
            self.options.frozen_segments,
            self.options.search,
            self.device,
        )

    def _weights_to_keep(self) -> MovingAverage:
        """The weights to validate and keep: the moving average, or the current ones if there is none (a
        moving average of rate 0 is a snapshot)."""
        return self.ema if self.options.ema_decay else MovingAverage(self.model, 0.0)

    def _identity(self) -> dict[str, Any]:
        return {
            "options": self.options.to_dict(),
            "vocabulary": list(self.vocabulary.words),
            "confidence": self.confidence,
        }

    def _save(self) -> None:
        checkpoint.save(
            self.folder.state,
            {
                **self._identity(),
                "model": self.model.state_dict(),
                "ema": self.ema.values,
                "ema_updates": self.ema.updates,
                "soup": self.soup.state() if self.current.runs > 1 else None,
                "objectives": self.losses.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "position": [self.stage, self.epoch, self.batch],
                "spent_s": self.clock.spent_s,
                "data": self.data_digest,
                "damaged": self.damaged,
                "random": torch.get_rng_state(),
                "cuda_random": torch.cuda.get_rng_state_all() if self.device.type == "cuda" else [],
                "history": self.history,
                "start_score": self.start_score,
            },
        )

    def _find_position(self, given: Sequence[Sequence[Example]]) -> dict[str, Any] | None:
        """Go to where the run was stopped. Returns its state, for `_restore`; None for a new run."""
        with self.folder.restoring():
            saved = self.folder.last(self.options, self.vocabulary.words, given, self.device)
            if saved:
                self.stage, self.epoch, self.batch = map(operator.index, saved["position"])
                if min(self.stage, self.epoch, self.batch) < 0:
                    raise ValueError("its position is negative")
                self.history = list(saved["history"])
                where = position_in_words(self.options, saved)
                self.progress.note(f"resuming from {self.folder.state}, {where}")
        return saved

    def _restore(self, saved: Mapping[str, Any]) -> None:
        with self.folder.restoring():
            self.model.load_state_dict(saved["model"])
            self.ema.values, self.ema.updates = saved["ema"], saved["ema_updates"]
            if self.current.runs > 1:
                self.soup.resume(saved["soup"])
            self.losses.load_state_dict(saved["objectives"])
            self.confidence, self.start_score = saved.get("confidence"), saved.get("start_score")
            self.spent_s = saved.get("spent_s", 0.0)
            self.optimizer.load_state_dict(saved["optimizer"])
            torch.set_rng_state(saved["random"].cpu())
            if self.device.type == "cuda":
                torch.cuda.set_rng_state_all([state.cpu() for state in saved["cuda_random"]])


def _contents(splits: Sequence[Sequence[Example]]) -> set[str]:
    return {one.digest for examples in splits for one in examples}
