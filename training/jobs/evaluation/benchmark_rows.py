"""Rows of a task of another library: what the server was asked, joined with what the log says of each sample."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.stages.base.artifacts import Item
from specs.stages.base.sampling import PromptRead, digest_ids
from specs.stages.evaluation.rows import BenchmarkRow, ModelCall, RequestMessage
from specs.stages.registry import STAGE_KINDS
from training.engines.completion_server import CALLS, ServedCall
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job
from training.jobs.witness.prompted_answers import PromptedAnswer, Source, answer, left_rows
from training.rules.evaluation.benchmark_scores import is_right
from training.rules.evaluation.inspect_log import Log, LoggedSample
from training.rules.prompt_encoding import bare_ids, dialogue_ids, form_of
from training.rules.tasks.choices import answer_of, choices_of
from training.rules.tasks.exact_answer import named_answers


def write_items(items: Sequence[Item], path: Path) -> None:
    """Write items in the form that ``json_dataset`` reads without being told of fields; errors as :func:`sample_of`."""
    path.write_text("".join(f"{json.dumps(sample_of(item), ensure_ascii=False)}\n" for item in items), encoding="utf-8")


def sample_of(item: Item) -> dict[str, Any]:
    """Return an item as a sample of the library; raises ValueError for choices of which none is named right."""
    results: dict[str, Any] = {"id": item.id, "input": item.prompt}
    try:
        results["choices"] = list(choices_of(item))
    except ValueError:
        results["target"] = named_answers(item) or ""
    else:
        results["target"] = chr(ord("A") + answer_of(item))
    return results | {"metadata": {"group": item.group, "kind": item.kind, **item.constraint}}


def rows_of(
    log: Log, items: Sequence[Item], calls: Mapping[str, ServedCall], score: str, epochs: int = 1
) -> list[BenchmarkRow]:
    """Return a row for each item and epoch, in their order.

    Raises:
        ValueError: the log does not hold each item once an epoch, answers that the model gave here and nothing else, or
            the score that decides.
    """
    by_key = {(sample.id, sample.epoch): sample for sample in log.samples}
    keys = [(item.id, epoch) for item in items for epoch in range(1, epochs + 1)]
    if len(by_key) != len(log.samples) or set(by_key) != set(keys):
        message = f"the task has {len(log.samples)} samples, the stage {len(items)} items"
        times = "one sample" if epochs == 1 else f"one sample in each of {epochs} epochs"
        raise ValueError(f"{message}; each item has to be {times}, with its id")
    named = [answer.id for sample in log.samples for answer in sample.answers]
    if sorted(named) != sorted(calls):
        raise ValueError(f"the log names {len(named)} answers, the model gave {len(calls)}")
    return [_row(by_key[key], calls, score) for key in keys]


def _row(sample: LoggedSample, calls: Mapping[str, ServedCall], score: str) -> BenchmarkRow:
    scores = {scorer_value.name: scorer_value.value for scorer_value in sample.scores}
    if score not in scores:
        raise ValueError(f"'{sample.id}' has no score '{score}'; it has {', '.join(scores) or 'none'}")
    if not sample.answers:
        raise ValueError(f"the model was asked nothing for '{sample.id}'")
    return BenchmarkRow(
        item=sample.id,
        sample=sample.epoch - 1,
        calls=tuple(_call(calls[answer.id]) for answer in sample.answers),
        output=sample.output,
        target=sample.target,
        scores=scores,
        correct=is_right(scores[score]),
    )


def _call(call: ServedCall) -> ModelCall:
    return ModelCall(
        messages=tuple(RequestMessage.model_validate(message) for message in call.messages),
        prompt_tokens=len(call.prompt),
        prompt_digest=digest_ids(call.prompt),
        max_new_tokens=call.sampling.max_new_tokens,
        stops=call.sampling.stops,
        truncated=call.output.truncated,
        draw=call.draw,
        **call.output.as_row(),
    )


def encoder_of(job: Job[Any], tokenizer: Any) -> Callable[[Sequence[dict[str, str]]], tuple[int, ...]]:
    """Return what turns the messages of a request into token ids, or raises EncodingFault.

    lm-eval sends one text: a base model continues it as it is.
    """
    form = form_of(job.order.model_kind)
    if form == "completion" and STAGE_KINDS[job.order.kind].environment == "lm_eval":
        return lambda messages: bare_ids(tokenizer, "".join(message["content"] for message in messages)).ids
    return lambda messages: dialogue_ids(tokenizer, messages, form).ids


def build_witness_prompts(job: Job[Any], tokenizer: Any, places: Sequence[int]) -> list[PromptedAnswer]:
    """Return what the model was asked for these rows, each of its requests; raises NotAsked and EncodingFault.

    The messages are the row's own, which the gate compares with the item; the ids are made of them here.
    """
    encode, temperature, source = encoder_of(job, tokenizer), job.parameters.temperature, Source(job.parameters)
    review_requests: list[PromptedAnswer] = []
    for place, row in left_rows(job, BenchmarkRow, places):
        for number, call in enumerate(row.calls):
            messages = [
                {"role": issued_verdict.role, "content": issued_verdict.content} for issued_verdict in call.messages
            ]
            sampling = TokenSampling(call.max_new_tokens, temperature, stops=call.stops)
            prompt = encode(messages)
            part = f"call_{number}"
            stream = source.stream(job.parameters.seed, CALLS, digest_ids(prompt), call.draw)
            review_request = answer(
                place, prompt, sampling, ids=call.answer_ids, text=call.output, finish=call.finish, part=part,
                stated=PromptRead(call.prompt_digest, call.prompt_tokens), stream=stream,
            )  # fmt: skip
            review_requests.append(review_request)
    return review_requests
