"""Score every choice of every question by the log-likelihood of its text after the question.

Base and instruct models read the same bare text: a choice is not an answer that is written, so no template applies.
With the parameter ``lm_eval`` or ``lm_eval_task`` the library lm-eval asks and scores; the rows are the same.
"""

from __future__ import annotations

from typing import Any

from specs.stages.evaluation.parameters import MultipleChoiceParameters
from specs.stages.evaluation.rows import ChoiceRow, ChoiceScore
from training.engines.checkpoint import device_of, load
from training.jobs.evaluation.likelihood import continuation, nats_of
from training.jobs.evaluation.lm_eval_task import ask_lm_eval
from training.jobs.job import Done, Job, run_stage
from training.jobs.row_files import GroupedRows
from training.rules.tasks import load_items
from training.rules.tasks.choices import choices_of


def choose(job: Job) -> Done:
    """Write ``rows``: one for each question, its choices in order.

    Raises:
        ValueError: an item is no question with choices, or is longer than the model's context.
    """
    parameters = job.parameters
    assert isinstance(parameters, MultipleChoiceParameters)
    items = load_items(job.inputs["items"])
    model, tokenizer = load(job.inputs["model"])
    task = parameters.lm_eval or parameters.lm_eval_task
    if task is not None:
        scored = ask_lm_eval(model, tokenizer, items, task, parameters.batch_size, job.folder / "lm_eval")
        return _done(job, model, parameters, scored.rows, {"lm_eval": scored.facts})
    kept = GroupedRows(job.folder / "shards" / "questions.jsonl", ChoiceRow)
    for item in items[len(kept.groups) :]:
        context = parameters.question.replace("{prompt}", item.prompt)
        choices = choices_of(item)
        scored = [continuation(tokenizer, context, f" {choice}") for choice in choices]
        nats = nats_of(model, scored, batch_size=parameters.batch_size)
        scores = [
            ChoiceScore(nats=value, tokens=len(one.ids) - one.start, bytes=len(choice.encode()))
            for value, one, choice in zip(nats, scored, choices, strict=True)
        ]
        prompt_tokens = min(one.start for one in scored)
        kept.add([ChoiceRow(item=item.id, prompt_tokens=prompt_tokens, choices=tuple(scores))])
        job.progress(len(kept.groups), len(items), "questions")
    return _done(job, model, parameters, kept.rows(), {})


def _done(
    job: Job, model: Any, parameters: MultipleChoiceParameters, rows: list[ChoiceRow], facts: dict[str, Any]
) -> Done:
    job.write_rows("rows", rows)
    device, dtype = device_of(model)
    tokens = sum(choice.tokens for row in rows for choice in row.choices)
    return Done(device, dtype, tokens, parameters.model_dump(mode="json"), facts)


if __name__ == "__main__":
    run_stage("multiple_choice", choose)
