"""Examples that are kept out of training: read before it, after each fifth of the steps, and by the witness."""

from __future__ import annotations

from typing import Any, NamedTuple

from specs.stages.base.artifacts import Example
from specs.stages.finetuning.parameters import SftParameters
from specs.stages.finetuning.rows import ValidationRow
from training.engines.checkpoint import evaluating
from training.jobs.finetuning.loss_comparison import sums
from training.jobs.finetuning.training_texts import PromptWithResponses, Style
from training.jobs.job import Job
from training.jobs.row_files import read_rows
from training.rules.finetuning.validation_split import divide_examples, measured_after

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
        self.examples = split_examples(job).validation
        self._size, most = job.parameters.batch_size, job.parameters.max_length
        self._encoded: dict[int, tuple[list[int], int]] = {}
        for line, example in self.examples.items():
            encoded = PromptWithResponses(style, example.prompt, (example.completion,), example.before).encode_sides(
                tokenizer
            )
            self._encoded[line] = encoded.wholes[0][:most], encoded.begins()[0]

    def read(self, model: Any, lines: list[int] | None = None) -> dict[int, tuple[float, int]]:
        """Return log-probability and tokens of each response, by line; the model stays in its mode."""
        chosen = self._encoded if lines is None else {line: self._encoded[line] for line in lines}
        pairs: dict[int, tuple[float, int]] = dict.fromkeys(chosen, (0.0, 0))
        answered = [line for line, (ids, begin) in chosen.items() if begin < len(ids)]
        order = sorted(answered, key=lambda line: len(chosen[line][0]))
        with evaluating(model):
            for begin in range(0, len(order), self._size):
                some = order[begin : begin + self._size]
                pairs |= zip(some, sums(model, [chosen[line] for line in some]), strict=True)
        return pairs

    def rows(self, trainer: Any) -> list[ValidationRow]:
        """Return what a trainer with :func:`watching` read."""
        validation_rows: list[ValidationRow] = []
        for entry in trainer.state.log_history:
            for line, value, tokens in entry.get(_LOGGED, ()):
                read: dict[str, Any] = {"step": entry["step"], "tokens": tokens, "log_probability": value}
                validation_rows.append(ValidationRow(example=line, group=self.examples[line].group, **read))
        return validation_rows


def watching(kept_examples: KeptExamples) -> Any:
    """Return a callback that reads the kept examples when it is time.

    What was read is kept in the trainer's log, which its checkpoints hold: a resumed run has what was read before.
    """
    from transformers import TrainerCallback

    def read(state: Any, model: Any) -> None:
        results = [[line, value, tokens] for line, (value, tokens) in sorted(kept_examples.read(model).items())]
        state.log_history.append({"step": state.global_step, _LOGGED: results})

    class Watching(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if not state.global_step:
                read(state, model)

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step in measured_after(state.max_steps):
                read(state, model)

    return Watching()
