"""Score every choice of every question by the log-likelihood of its text after the question.

Base and instruct models read the same bare text: no answer is written, so no chat template applies. With the parameter
``lm_eval`` or ``lm_eval_task`` the library lm-eval asks and scores; the rows are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.stages.base.artifacts import Item
from specs.stages.evaluation.parameters import MultipleChoiceParameters
from specs.stages.evaluation.rows import ChoiceRow, ChoiceScore
from training.engines.checkpoint import device_of, load_for_inference, tokenizer_in
from training.jobs.evaluation.likelihood import TokenWindow, continuation, digest_windows, nats_of
from training.jobs.evaluation.lm_eval_task import ask_lm_eval
from training.jobs.job import Job, StageResult, batches_of
from training.jobs.witness.prompted_answers import left_rows
from training.jobs.witness.scoring import ScoredSpan, Scoring, StatedLogprob, differing
from training.rules.tasks import load_items
from training.rules.tasks.choices import choices_of


def choose(job: Job[MultipleChoiceParameters]) -> StageResult:
    """Write ``rows``, one a question, its choices in order; raises ValueError for no question, or one too long."""
    parameters = job.parameters
    items = load_items(job.inputs["items"])
    model, tokenizer = load_for_inference(job.inputs["model"])

    def score_item(_: int, batch: Sequence[Item]) -> list[ChoiceRow]:
        (item,) = batch
        choices, texts = choices_of(item), _texts(tokenizer, parameters, item)
        nats = nats_of(model, texts, batch_size=parameters.batch_size)
        scores = tuple(
            ChoiceScore(nats=value, tokens=len(text.ids) - text.start, bytes=len(choice.encode()))
            for value, text, choice in zip(nats, texts, choices, strict=True)
        )
        return [ChoiceRow(item=item.id, choices=scores, **_prompt_fields(texts))]

    task = parameters.lm_eval or parameters.lm_eval_task
    facts: dict[str, Any] = {}
    if task is not None:
        rows, stated = ask_lm_eval(model, tokenizer, items, task, parameters.batch_size, job.folder / "lm_eval")
        facts = {"lm_eval": stated}
    else:
        shard = job.shard("questions", ChoiceRow)
        job.fill(shard, batches_of(items, 1), score_item, "questions")
        rows = shard.rows()
    job.write_rows("rows", rows)
    device, dtype = device_of(model)
    tokens = sum(choice.tokens for row in rows for choice in row.choices)
    return StageResult(device, dtype, tokens, parameters.model_dump(mode="json"), facts)


def _texts(tokenizer: Any, arguments: MultipleChoiceParameters, item: Item) -> list[TokenWindow]:
    """Return each choice after the question."""
    context = arguments.question.replace("{prompt}", item.prompt)
    return [continuation(tokenizer, context, f" {choice}") for choice in choices_of(item)]


def _prompt_fields(texts: Sequence[TokenWindow]) -> dict[str, Any]:
    """Return what a row states of the question and the choices that the model read."""
    return {"prompt_digest": digest_windows(texts), "prompt_tokens": min(text.start for text in texts)}


def build_scorings(job: Job[MultipleChoiceParameters], output: str, places: Sequence[int]) -> list[Scoring]:
    """Return what was scored for these rows, where lm-eval did not ask: the choices of the items."""
    items, tokenizer = load_items(job.inputs["items"]), tokenizer_in(job.inputs["model"])
    scorings: list[Scoring] = []
    for place, row in left_rows(job, ChoiceRow, places, output):
        texts = _texts(tokenizer, job.parameters, items[place]) if place < len(items) else []
        sizes = [len(choice.encode()) for choice in choices_of(items[place])] if texts else []
        stated = [(choice.tokens, choice.bytes) for choice in row.choices]
        if [(len(text.ids) - text.start, size) for text, size in zip(texts, sizes, strict=True)] != stated:
            scorings.append(Scoring(place, {}, ("choices",)))
            continue
        values = {
            f"choice {number}": StatedLogprob(-choice_score.nats, (ScoredSpan(*text),))
            for number, (choice_score, text) in enumerate(zip(row.choices, texts, strict=True), 1)
        }
        pending = {"item": items[place].id, **_prompt_fields(texts)}
        scorings.append(Scoring(place, values, differing(row, pending)))
    return scorings
