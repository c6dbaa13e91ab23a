"""A trainer that is watched: every batch's masks, every loss and gradient, and its settings before the first step.

What the library does without it: a loss that is not a number is logged as the average of the others and training goes
on to the end (``logging_nan_inf_filter``), a gradient that is not finite is multiplied into all weights, and steps
beyond the data begin it again.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training.jobs.finetuning.forward_capture import Witness
from training.jobs.finetuning.loss_comparison import Compared, NotAsGranted, compare
from training.jobs.finetuning.loss_masks import Counted, MaskProof
from training.jobs.finetuning.trainer_settings import differing, read_back
from training.jobs.job import Job
from training.jobs.saved_steps import mark


class Diverged(Exception):
    """A loss or gradient is not finite. Nothing was saved."""


def watched(
    trainer: type[Any],
    proof: MaskProof,
    *,
    modules: tuple[str, ...] | None = None,
    loss: Callable[[Any], str] = lambda _: "sft",
    more: Callable[[Any], dict[str, Any]] | None = None,
) -> type[Any]:
    """Return a subclass of one of TRL's trainers that stops where the library would go on.

    Args:
        trainer: TRL's class.
        proof: looks at the masks of every batch.
        modules: the granted modules of adapters, for their order.
        loss: names the loss of the built trainer.
        more: reads back what only this trainer has.
    """
    seen = _Seen()

    class Watched(trainer):
        """Counts what the steps saw, and stops at the first that cannot be right."""

        compared: dict[int, Compared]
        witness: Witness | None
        resumed_from: int

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            step = self.state.global_step + 1
            seen.add(proof.see(inputs, step), _digest(inputs), num_items_in_batch)
            due = not self.compared or (step == self.state.max_steps and step not in self.compared)
            self.witness = Witness(self, inputs) if due else None
            result = super().training_step(model, inputs, num_items_in_batch)
            value = float(result)
            if not math.isfinite(value):
                raise Diverged(f"the loss of step {step} is {value}; stopped before the weights were changed by it")
            if self.witness is not None:
                # Only now, when the memory of the backward pass is free; the weights are still those of the loss.
                witness, self.witness = self.witness, None
                beginning = step == 1 and not self.resumed_from
                self.compared[step] = compare(self, witness, inputs, loss(self), seen.scale(), beginning=beginning)
            return result

        def compute_loss(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            if self.witness is None:
                return super().compute_loss(model, inputs, *rest, **named)
            with self.witness.listening():
                result = super().compute_loss(model, inputs, *rest, **named)
            self.witness.loss = float(result.detach())
            return result

        def _get_grad_norm(self, *given: Any, **named: Any) -> Any:
            norm = super()._get_grad_norm(*given, **named)
            value = float(norm)
            if not math.isfinite(value):
                step = self.state.global_step + 1
                raise Diverged(f"the gradient norm of step {step} is {value}; stopped before the weights were changed")
            return norm

        def log(self, logs: dict[str, Any], *rest: Any, **named: Any) -> None:
            if "loss" in logs:
                # In the log, which the trainer's checkpoints hold: a run that is resumed keeps what was counted.
                logs |= seen.take(self.state.global_step)
            super().log(logs, *rest, **named)

        def create_model_card(self, *_: Any, **__: Any) -> None:
            """Write none: it would say nothing that the manifest does not."""

        def settings(self) -> dict[str, Any]:
            return read_back(self, modules) | (more(self) if more is not None else {})

    Watched.compared, Watched.witness, Watched.resumed_from = {}, None, 0
    return Watched


class _Seen:
    """What the batches of the running optimizer step held."""

    def __init__(self) -> None:
        self.rows, self.carried, self.masked = 0, 0, 0
        self.batches: list[str] = []
        self._newest, self._divisor = 0, None

    def add(self, counted: Counted, digest: str, divisor: Any) -> None:
        """Count a batch; ``divisor`` is what the sum of its losses is divided by, None where that is its own mean."""
        self.rows += counted.rows
        self.carried += counted.carried
        self.masked += counted.masked
        self.batches.append(digest)
        self._newest, self._divisor = counted.carried, None if divisor is None else float(divisor)

    def scale(self) -> float:
        """Return what makes the loss of the newest batch, which was divided by the tokens of its step, its own mean."""
        return 1.0 if self._divisor is None else self._divisor / self._newest

    def take(self, step: int) -> dict[str, Any]:
        """Return what the step held, and begin the next.

        Raises:
            NotAsGranted: its loss was not the mean over its response tokens.
        """
        if self._divisor is not None and self._divisor != self.carried:
            raise NotAsGranted(
                f"step {step}: the loss was divided by {self._divisor:g}, its batches hold {self.carried} response "
                "tokens"
            )
        found = {"tokens": self.carried, "sequences": self.rows, "masked": self.masked, "batches": self.batches}
        self.__init__()
        return found


def callbacks(job: Job, granted: dict[str, Any]) -> list[Any]:
    """Return what reports progress, and what compares the settings before the first step is made.

    Raises:
        NotAsGranted: from within training, when a setting differs.
    """
    from transformers import TrainerCallback

    class Report(TrainerCallback):
        """Turns the trainer's log lines into progress."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs:
                job.progress(state.global_step, state.max_steps, "steps", loss=float(logs["loss"]))

    class Compare(TrainerCallback):
        """Holds the built trainer against the grant."""

        trainer: Any = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            wrong = differing(granted, self.trainer.settings())
            if wrong:
                raise NotAsGranted("; ".join(wrong))

    class Mark(TrainerCallback):
        """Says of a checkpoint that it is whole."""

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            mark(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    return [Report(), Compare(), Mark()]


def _digest(inputs: dict[str, Any]) -> str:
    name = "input_ids" if "input_ids" in inputs else "chosen_input_ids"
    return hashlib.sha256(inputs[name].cpu().numpy().tobytes()).hexdigest()[:16]
