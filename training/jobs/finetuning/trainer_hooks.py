"""A watched trainer: every batch's masks, every loss and gradient, and its settings before the first step.

The library alone logs a loss that is not a number as the mean of the others, applies a gradient that is not finite to
all weights, and repeats the data when steps exceed them.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from training.compat.trl_internals import score_labelled_tokens
from training.jobs.finetuning.forward_capture import ForwardCapture
from training.jobs.finetuning.loss_comparison import GrantMismatch, LossComparison, compare
from training.jobs.finetuning.loss_masks import BatchCounts, MaskProof
from training.jobs.finetuning.trained_model import PreparedModel
from training.jobs.finetuning.trainer_args import differing, read_back
from training.jobs.finetuning.training_texts import PromptWithResponses, Style
from training.jobs.finetuning.weight_sketch import collect_trained_weights, sketch
from training.jobs.job import Job
from training.jobs.saved_steps import SNAPSHOTS, keep, mark


class TrainerBuild(NamedTuple):
    """A trainer before its first step, and what it was built from."""

    trainer: Any
    prepared: PreparedModel
    sides: list[PromptWithResponses]
    style: Style
    proof: MaskProof
    facts: dict[str, Any]
    """What is known of the data before training."""
    compute_final_facts: Callable[[], dict[str, Any]]
    """Returns the facts that are known once it has trained."""


class TrainingDivergence(Exception):
    """A loss or gradient is not finite. Nothing was saved."""


def build(
    trainer: type[Any],
    config: Any,
    job: Job[Any],
    prepared: PreparedModel,
    rows: list[dict[str, Any]],
    proof: MaskProof,
    *,
    loss: Callable[[Any], str] = lambda _: "sft",
    more: Callable[[Any], dict[str, Any]] = lambda _: {},
) -> Any:
    """Return a trainer of a watched subclass of one of TRL's classes.

    ``loss`` names the loss of the built trainer; ``more`` reads back the settings that only this trainer has.
    """
    from datasets import Dataset

    return start(
        _make_watched_trainer(trainer, proof, job.parameters.target_modules, loss, more),
        job,
        model=prepared.model,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=prepared.tokenizer,
        peft_config=prepared.adapter,
    )


def start(kind: type[Any], job: Job[Any], **built_from: Any) -> Any:
    """Return a trainer of a guarded class that reports progress and refuses other settings than the granted ones."""
    from datasets import disable_progress_bars
    from transformers.utils import logging

    score_labelled_tokens()
    disable_progress_bars()
    logging.set_verbosity_error()
    reports = _reports(job)
    built = kind(**built_from, callbacks=[reports])
    reports.trainer = built
    return built


def make_guarded_trainer(
    trainer: type[Any], modules: tuple[str, ...] | None, more: Callable[[Any], dict[str, Any]]
) -> type[Any]:
    """Return a subclass that stops at a loss or gradient that is not finite, and reads its settings back."""

    class GuardedTrainer(trainer):
        """What every trainer here has."""

        resumed_from: int = 0
        last_step: int | None = None
        begins: Callable[[Any], object] = staticmethod(_nothing)
        completes: Callable[[Path], object] = staticmethod(_nothing)
        """Called with the folder of a saved step before it counts as whole."""
        step_seconds: list[float]

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            result = super().training_step(model, inputs, num_items_in_batch)
            value = float(result)
            if not math.isfinite(value):
                step = self.state.global_step + 1
                raise TrainingDivergence(
                    f"the loss of step {step} is {value}; stopped before the weights were changed by it"
                )
            return result

        def _get_grad_norm(self, *arguments: Any, **named: Any) -> Any:
            norm = super()._get_grad_norm(*arguments, **named)
            value = float(norm)
            if not math.isfinite(value):
                step = self.state.global_step + 1
                raise TrainingDivergence(
                    f"the gradient norm of step {step} is {value}; stopped before the weights were changed"
                )
            return norm

        def log(self, logs: dict[str, Any], *rest: Any, **named: Any) -> None:
            if "loss" in logs:
                # In the log, which the trainer's checkpoints hold: a resumed run keeps the counts.
                logs |= self.take_step_counts()
            super().log(logs, *rest, **named)

        def take_step_counts(self) -> dict[str, Any]:
            """Return what was counted of the running step, and begin the next."""
            return {}

        def create_model_card(self, *_: Any, **__: Any) -> None:
            """Write no model card: the manifest says more."""

        def settings(self) -> dict[str, Any]:
            return read_back(self, modules) | more(self)

    GuardedTrainer.step_seconds = []
    return GuardedTrainer


def _make_watched_trainer(
    trainer: type[Any],
    proof: MaskProof,
    modules: tuple[str, ...] | None,
    loss: Callable[[Any], str],
    more: Callable[[Any], dict[str, Any]],
) -> type[Any]:
    class WatchedTrainer(make_guarded_trainer(trainer, modules, more)):
        """Counts what the steps read, and stops at the first that cannot be right."""

        compared: dict[int, LossComparison]
        witness: ForwardCapture | None
        counts: _StepCounts

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            step = self.state.global_step + 1
            self.counts.add(proof.see(inputs, step), digest_of(inputs), num_items_in_batch)
            flag = not self.compared or (step == self.state.max_steps and step not in self.compared)
            self.witness = ForwardCapture(self, inputs) if flag else None
            result = super().training_step(model, inputs, num_items_in_batch)
            if self.witness is not None:
                # After the backward pass, whose memory is free now; the weights are still those of the loss.
                witness, self.witness = self.witness, None
                beginning = step == 1 and not self.resumed_from
                self.compared[step] = compare(
                    self, witness, inputs, loss(self), self.counts.scale(), beginning=beginning
                )
            return result

        def compute_loss(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            if self.witness is None:
                return super().compute_loss(model, inputs, *rest, **named)
            with self.witness.listening():
                result = super().compute_loss(model, inputs, *rest, **named)
            self.witness.loss = float(result.detach())
            return result

        def take_step_counts(self) -> dict[str, Any]:
            counts, self.counts = self.counts, _StepCounts()
            return counts.sum_up(self.state.global_step)

    WatchedTrainer.compared, WatchedTrainer.witness, WatchedTrainer.counts = {}, None, _StepCounts()
    return WatchedTrainer


def _nothing(_: Any) -> None:
    """Do nothing with the model that a training begins with, or with a saved step."""


class _StepCounts:
    """Counts of the batches of the running optimizer step."""

    def __init__(self) -> None:
        self.rows, self.carried, self.masked = 0, 0, 0
        self.batches: list[str] = []
        self._newest, self._divisor = 0, None

    def add(self, counted: BatchCounts, digest: str, divisor: Any) -> None:
        """Count a batch; ``divisor`` divides the sum of its losses, None if its own mean is taken."""
        self.rows += counted.rows
        self.carried += counted.carried
        self.masked += counted.masked
        self.batches.append(digest)
        self._newest, self._divisor = counted.carried, None if divisor is None else float(divisor)

    def scale(self) -> float:
        """Return the factor that makes the loss of the newest batch, divided by the tokens of its step, its mean."""
        return 1.0 if self._divisor is None else self._divisor / self._newest

    def sum_up(self, step: int) -> dict[str, Any]:
        """Return the step's counts; raises GrantMismatch if the loss was not its tokens' mean."""
        if self._divisor is not None and self._divisor != self.carried:
            raise GrantMismatch(
                f"step {step}: the loss was divided by {self._divisor:g}, its batches hold {self.carried} response "
                "tokens"
            )
        return {"tokens": self.carried, "sequences": self.rows, "masked": self.masked, "batches": self.batches}


def _begin_snapshots(job: Job[Any], saved: Path, steps: int, resumed: int) -> tuple[int, ...]:
    """Make their folder and return after which steps they are due; a resumed job keeps the step it begins with."""
    if job.order.challenge or not job.parameters.leaves_snapshots:
        return ()
    (job.out / SNAPSHOTS).mkdir(exist_ok=True)
    pending = job.parameters.snapshots_of(steps)
    if resumed in pending:
        keep(saved / f"checkpoint-{resumed}", job.out / SNAPSHOTS)
    return pending


def _reports(job: Job[Any]) -> Any:
    """Return a callback that reports progress and raises NotAsGranted before the first step if a setting differs."""
    from transformers import TrainerCallback

    class Reports(TrainerCallback):
        trainer: Any = None
        snapshots: tuple[int, ...] = ()
        began: float = 0.0

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs:
                # Not in what is printed: a log line would be a screen of numbers.
                state.log_history[-1]["sketch"] = list(sketch(collect_trained_weights(self.trainer.model)))
                if not job.order.challenge:
                    # A witness counts the steps of its challenge itself.
                    visible = {name: float(logs[name]) for name in ("loss", "learning_rate") if name in logs}
                    job.progress(state.global_step, state.max_steps, "steps", **visible)

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.trainer.begins(self.trainer.model)
            wrong = differing(job.order.parameters, self.trainer.settings())
            if wrong:
                raise GrantMismatch("; ".join(wrong))
            self.snapshots = _begin_snapshots(job, Path(args.output_dir), state.max_steps, self.trainer.resumed_from)

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            # Not in the log: rows of a resumed run are those of an undisturbed one, byte for byte.
            self.trainer.step_seconds.append(time.perf_counter() - self.began)
            control.should_save |= state.global_step in self.snapshots
            control.should_training_stop |= state.global_step == self.trainer.last_step

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            saved = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            self.trainer.completes(saved)
            mark(saved)
            if state.global_step in self.snapshots:
                keep(saved, job.out / SNAPSHOTS)

    return Reports()


def digest_of(inputs: dict[str, Any]) -> str:
    """Return the digest of the ids, labels and masks of a batch; what a reference computed is left out."""
    result = hashlib.sha256()
    for name, value in sorted(inputs.items()):
        if hasattr(value, "is_floating_point") and not value.is_floating_point():
            result.update(f"{name} {tuple(value.shape)} ".encode() + value.cpu().long().numpy().tobytes())
    return result.hexdigest()[:16]
