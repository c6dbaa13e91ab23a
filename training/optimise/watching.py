"""A trainer that is watched: every batch's masks, every loss and gradient, and its settings before the first step.

What the library does without it: a loss that is not a number is logged as the average of the others and training goes
on to the end (``logging_nan_inf_filter``), a gradient that is not finite is multiplied into all weights, and steps
beyond the data begin it again.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training.entry import Job
from training.optimise.losses import loss_of
from training.optimise.masks import Counted, MaskProof
from training.optimise.resuming import mark
from training.optimise.settings import differing, read_back


def most_difference(precision: str) -> float:
    """Return how far the trainer's loss may be from the closed form, as a share of it."""
    return 1e-4 if precision == "float32" else 0.02


class Diverged(Exception):
    """A loss or gradient is not finite. Nothing was saved."""


class NotAsGranted(Exception):
    """The trainer was built with settings other than the granted ones."""


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

        compared: dict[int, float]
        resumed_from: int

        def training_step(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            step = self.state.global_step + 1
            seen.add(proof.see(inputs, step), _digest(inputs))
            if not self.compared or (step == self.state.max_steps and step not in self.compared):
                self.compared[step] = _compared(self, model, inputs, loss(self))
            result = super().training_step(model, inputs, *rest, **named)
            value = float(result)
            if not math.isfinite(value):
                raise Diverged(f"the loss of step {step} is {value}; stopped before the weights were changed by it")
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
                logs |= seen.take()
            super().log(logs, *rest, **named)

        def create_model_card(self, *_: Any, **__: Any) -> None:
            """Write none: it would say nothing that the manifest does not."""

        def settings(self) -> dict[str, Any]:
            return read_back(self, modules) | (more(self) if more is not None else {})

    Watched.compared, Watched.resumed_from = {}, 0
    return Watched


def _compared(trainer: Any, model: Any, inputs: Any, name: str) -> float:
    """Hold the trainer's loss of a batch against the closed form; return the difference as a share.

    Raises:
        NotAsGranted: it is another loss, or over other tokens.
    """
    import torch

    stored = copy.deepcopy(getattr(trainer, "_stored_metrics", None))
    model.eval()
    with torch.no_grad():
        theirs = float(trainer.compute_loss(model, dict(trainer._prepare_inputs(inputs))))
        ours = loss_of(trainer, name, inputs)
    model.train()
    if stored is not None:
        trainer._stored_metrics = stored
    difference = abs(theirs - ours) / max(1.0, abs(ours))
    if not difference <= most_difference(trainer.settings()["precision"]):
        raise NotAsGranted(
            f"step {trainer.state.global_step + 1}: the trainer's loss is {theirs:.6g}; {name} over the response "
            f"tokens of the same batch is {ours:.6g}"
        )
    return difference


class _Seen:
    """What the batches of the running optimizer step held."""

    def __init__(self) -> None:
        self.rows, self.carried, self.masked = 0, 0, 0
        self.batches: list[str] = []

    def add(self, counted: Counted, digest: str) -> None:
        self.rows += counted.rows
        self.carried += counted.carried
        self.masked += counted.masked
        self.batches.append(digest)

    def take(self) -> dict[str, Any]:
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
