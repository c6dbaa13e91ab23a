"""Greedy answers of a model to probes, as token ids, and what a witness has to know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specs.stages.base.sampling import Finish, Form
from specs.stages.packaging.parameters import ExportParameters, PackageParameters
from specs.stages.packaging.rows import ExportRow, PackageRow
from training.engines.batched import output_of
from training.engines.engine import BatchedEngine
from training.engines.stop_strings import StopWatcher
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job
from training.jobs.witness.prompted_answers import PromptedAnswer, UnusableRow, left_rows
from training.rules.prompt_encoding import EncodedPrompt, dialogue_ids, form_of
from training.rules.tasks import load_items


def encode_probe_prompts(tokenizer: Any, prompts: list[str], form: Form) -> list[EncodedPrompt]:
    """Return the prompts in token ids; raises EncodingFault if the tokenizer changes one."""
    return [dialogue_ids(tokenizer, [{"role": "user", "content": prompt}], form) for prompt in prompts]


def greedy(model: Any, tokenizer: Any, encoded_prompts: list[EncodedPrompt], max_new_tokens: int) -> list[list[int]]:
    """Return the token ids of the greedy answers."""
    prompts = [encoded_prompt.ids for encoded_prompt in encoded_prompts]
    outputs = BatchedEngine(model, tokenizer, len(prompts), share=False).complete(
        prompts, TokenSampling(max_new_tokens)
    )
    return [list(output.ids) for (output,) in outputs]


def build_probe_prompts(
    job: Job[PackageParameters] | Job[ExportParameters],
    tokenizer: Any,
    places: Sequence[int],
    row: type[PackageRow] | type[ExportRow],
    weights: Mapping[str, str],
) -> list[PromptedAnswer]:
    """Return what models were asked for these rows of the judged job; raises NotAsked and EncodingFault.

    ``weights`` names for each field of the row that holds an answer the input whose weights gave it.
    """
    parameters = job.parameters
    form, sampling = form_of(job.order.model_kind), TokenSampling(parameters.max_new_tokens)
    probes = load_items(job.inputs["items"])[: parameters.probe_items]
    watch = StopWatcher(tokenizer, sampling.stops, keep_special=sampling.keep_special)
    review_requests: list[PromptedAnswer] = []
    for place, value in left_rows(job, row, places):
        if place >= len(probes) or value.item != probes[place].id:
            raise UnusableRow(f"row {place} is not an answer to probe {place}")
        (prompt,) = encode_probe_prompts(tokenizer, [probes[place].prompt], form)
        for part, input_name in weights.items():
            ids: Sequence[int] = getattr(value, part)
            finish: Finish = "eos" if len(ids) < parameters.max_new_tokens else "length"
            # The row holds no text: it cannot differ from that of its ids.
            text = output_of(ids, finish, watch).text
            review_requests.append(PromptedAnswer(place, prompt.ids, sampling, ids, text, finish, part, input_name))
    return review_requests
