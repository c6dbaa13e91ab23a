"""What is kept out of training: read before it, during it and by the witness; a registered rule ends it by that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from specs.stages.base.artifacts import Example
from specs.stages.finetuning.parameters import SftParameters, StopRule
from specs.stages.finetuning.rows import ValidationRow
from training.engines.checkpoint import evaluating
from training.jobs.finetuning.loss_comparison import ReadTokens, read_tokens
from training.jobs.finetuning.training_texts import PromptWithResponses, Style
from training.jobs.job import Job
from training.jobs.row_files import read_rows
from training.jobs.saved_steps import carry_best, restore_best
from training.rules.finetuning.validation_split import decide_stop, divide_examples, example_values, measured_after

_LOGGED = "validation"


class ExampleSplit(NamedTuple):
    """The granted examples on their sides."""

    training: list[Example]
    validation: dict[int, Example]
    """The examples by line in the file."""


def split_examples(job: Job[SftParameters]) -> ExampleSplit:
    """Return the granted examples, whole groups on one side."""
    every = read_rows(job.inputs["examples"], Example)
    split = divide_examples(every, job.parameters.validation_share, job.parameters.seed)
    return ExampleSplit([every[place] for place in split.train], {place: every[place] for place in split.validation})


class KeptExamples:
    """The examples that a training does not see, and how a model reads them."""

    def __init__(self, job: Job[SftParameters], style: Style, tokenizer: Any) -> None:
        self._rule = job.parameters.early_stopping
        self.examples = split_examples(job).validation
        self._size, most = job.parameters.batch_size, job.parameters.max_length
        self._encoded: dict[int, tuple[list[int], int]] = {}
        for line, example in self.examples.items():
            encoded = PromptWithResponses(style, example.prompt, (example.completion,), example.before).encode_sides(
                tokenizer
            )
            self._encoded[line] = encoded.wholes[0][:most], encoded.begins()[0]

    def read(self, model: Any, lines: list[int] | None = None) -> dict[int, ReadTokens]:
        """Return how the model reads each response, by line; the model stays in its mode."""
        chosen = self._encoded if lines is None else {line: self._encoded[line] for line in lines}
        readings = dict.fromkeys(chosen, ReadTokens(0.0, 0, 0))
        answered = [line for line, (ids, begin) in chosen.items() if begin < len(ids)]
        order = sorted(answered, key=lambda line: len(chosen[line][0]))
        with evaluating(model):
            for begin in range(0, len(order), self._size):
                batch = order[begin : begin + self._size]
                readings |= zip(batch, read_tokens(model, [chosen[line] for line in batch]), strict=True)
        return readings

    def entries(self, model: Any) -> list[list[Any]]:
        """Return what a trainer's log keeps of a reading."""
        return [[line, *read] for line, read in sorted(self.read(model).items())]

    def rows(self, trainer: Any) -> list[ValidationRow]:
        """Return what a trainer with :func:`watch` read."""
        validation_rows: list[ValidationRow] = []
        for step, entries in list_readings(trainer):
            for line, value, tokens, correct in entries:
                read: dict[str, Any] = {"step": step, "tokens": tokens, "correct": correct, "log_probability": value}
                validation_rows.append(ValidationRow(example=line, group=self.examples[line].group, **read))
        return validation_rows

    def values(self, trainer: Any) -> dict[int, float]:
        """Return the values of the rule's metric so far."""
        assert self._rule is not None
        return example_values(self.rows(trainer), self._rule)


class KeptOut(Protocol):
    """Examples or pairs that a training does not see."""

    def entries(self, model: Any) -> list[list[Any]]:
        """Return what a trainer's log keeps of a reading."""
        ...

    def values(self, trainer: Any) -> dict[int, float]:
        """Return the values of the rule's metric so far, by step."""
        ...


def list_readings(trainer: Any) -> Iterator[tuple[int, list[list[Any]]]]:
    """Yield each step after which a trainer with :func:`watch` read what is kept out, and what it read."""
    for entry in trainer.state.log_history:
        if _LOGGED in entry:
            yield entry["step"], entry[_LOGGED]


def watch(trainer: Any, kept_out: KeptOut, rule: StopRule | None) -> None:
    """Have a trainer read what is kept out when it is time, and end where the rule says so.

    What was read is kept in the trainer's log, which its checkpoints hold: a resumed run has what was read before, and
    decides by it. No step is saved after the decision to end, because a run that resumes from one would make another.
    """
    from transformers import TrainerCallback

    def read(state: Any, model: Any) -> None:
        state.log_history.append({"step": state.global_step, _LOGGED: kept_out.entries(model)})

    class Watching(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if not state.global_step:
                read(state, model)

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step not in measured_after(state.max_steps, rule.every_steps if rule else None):
                return
            read(state, model)
            if rule is not None:
                ends = decide_stop(kept_out.values(trainer), rule).last is not None
                control.should_training_stop |= ends
                control.should_save = not ends and (control.should_save or state.global_step < state.max_steps)

    def complete(saved: Path) -> None:
        if rule is not None and (best := decide_stop(kept_out.values(trainer), rule).best) is not None:
            carry_best(saved, best)

    trainer.add_callback(Watching())
    trainer.completes = complete


def take_best(trainer: Any, kept_out: KeptOut, rule: StopRule, folder: Path) -> dict[str, int]:
    """Give a trainer that has ended the weights that the rule saves; return their step for the manifest."""
    best = decide_stop(kept_out.values(trainer), rule).best
    assert best is not None
    restore_best(trainer, folder, best)
    return {"saved_step": best}
