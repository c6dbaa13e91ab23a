"""Give the model and a control the prompts that tell a base model from an instruct model. Nothing is judged here.

Prompts are encoded by the function that every later stage uses, and rows hold what the tokenizer made of them. The
models are loaded one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from specs.stages.base.sampling import Form
from specs.stages.generation.parameters import BaseModelCheckParameters
from specs.stages.generation.rows import BaseModelCheckRow
from training.engines.checkpoint import free, tokenizer_in
from training.engines.engine import CompletionEngine
from training.engines.engine_factory import make_engine
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job, StageResult
from training.jobs.witness.prompted_answers import PromptedAnswer, UnusableRow, left_rows
from training.jobs.witness.prompted_answers import answer as one_answer
from training.rules.generation.sentinels import SENTINELS
from training.rules.prompt_encoding import encode_bare, encode_chat

Which = Literal["declared", "control"]


def check_base_model(job: Job[BaseModelCheckParameters]) -> StageResult:
    """Write ``rows``: every sentinel, as bare text and with the chat template if there is one, for both models."""
    declared, engine = rows_of(job.inputs["model"], "declared", job.parameters, job.folder)
    job.progress(1, 2, "models")
    free()
    control, _ = rows_of(job.inputs["control"], "control", job.parameters, job.folder)
    job.progress(2, 2, "models")
    rows = [*declared, *control]
    job.write_rows("rows", rows)
    read_back = {"engine": engine.name, "decoding": "greedy", "model_kind": job.order.model_kind}
    effective = job.parameters.model_dump(mode="json") | read_back
    return StageResult(
        engine.device, engine.dtype, sum(row.output_tokens for row in rows), effective, engine.describe_for_manifest()
    )


def rows_of(
    folder: Path, which: Which, parameters: BaseModelCheckParameters, scratch: Path
) -> tuple[list[BaseModelCheckRow], CompletionEngine]:
    """Return what one model answers, and its engine, closed."""
    engine = make_engine(parameters.engine, folder, parameters.batch_size, scratch=scratch)
    rows = [row for form in forms_of(engine.tokenizer) for row in answer(engine, which, form, parameters)]
    engine.close()
    return rows, engine


def forms_of(tokenizer: Any) -> tuple[Form, ...]:
    """Return the forms in which a model is asked: with the chat template only if it has one."""
    return ("completion",) if tokenizer.chat_template is None else ("completion", "chat")


def answer(
    engine: CompletionEngine, which: Which, form: Form, parameters: BaseModelCheckParameters
) -> list[BaseModelCheckRow]:
    """Give every sentinel to a model in one form, greedily."""
    encode = encode_bare if form == "completion" else encode_chat
    encoded = [encode(engine.tokenizer, sentinel.prompt) for sentinel in SENTINELS]
    outputs = engine.complete(
        [value.ids for value in encoded], TokenSampling(parameters.max_new_tokens), seed=parameters.seed
    )
    return [
        BaseModelCheckRow(
            sentinel=sentinel.id,
            model=which,
            form=form,
            prompt=value.text,
            ids=value.ids,
            ids_with_special=value.ids_with_special,
            decoded=value.decoded,
            template_ids=value.template_ids,
            has_chat_template=engine.tokenizer.chat_template is not None,
            **output.as_row(),
        )
        for sentinel, value, (output,) in zip(SENTINELS, encoded, outputs, strict=True)
    ]


def build_witness_prompts(
    job: Job[BaseModelCheckParameters], tokenizer: Any, places: Sequence[int]
) -> list[PromptedAnswer]:
    """Return what both models were asked for these rows, the sentinels in their forms; raises NotAsked.

    A row that shows other token ids than its prompt has raises it too.
    """
    models: tuple[tuple[Which, str, Any], ...] = (
        ("declared", "model", tokenizer),
        ("control", "control", tokenizer_in(job.inputs["control"])),
    )
    pending = [
        (which, weights, form, sentinel, (encode_bare if form == "completion" else encode_chat)(own, sentinel.prompt))
        for which, weights, own in models
        for form in forms_of(own)
        for sentinel in SENTINELS
    ]
    sampling = TokenSampling(job.parameters.max_new_tokens)
    results: list[PromptedAnswer] = []
    for place, row in left_rows(job, BaseModelCheckRow, places):
        if place >= len(pending):
            raise UnusableRow(f"row {place} exceeds the {len(pending)} prompts")
        which, weights, form, sentinel, prompt = pending[place]
        if (row.model, row.form, row.sentinel, row.ids) != (which, form, sentinel.id, tuple(prompt.ids)):
            raise UnusableRow(f"row {place} is not sentinel '{sentinel.id}' for the {which} model as {form}")
        results.append(
            one_answer(
                place, prompt.ids, sampling, ids=row.answer_ids, text=row.output, finish=row.finish, weights=weights
            )
        )
    return results
