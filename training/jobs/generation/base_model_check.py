"""Ask the model, and a control, what tells a base model from an instruct model. Judging is not this stage's business.

The prompts are encoded by the function that every later stage uses, and what the tokenizer made of them is written
down beside the answers. The models are loaded one after the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from specs.stages.answer_end import Form
from specs.stages.generation.parameters import BaseModelCheckParameters
from specs.stages.generation.rows import BaseModelCheckRow
from training.engines.checkpoint import free
from training.engines.engine import Engine, make_engine, stated
from training.engines.token_sampling import Sampling
from training.jobs.job import Done, Job, run_stage
from training.rules.generation.sentinels import SENTINELS
from training.rules.prompt_encoding import encode_bare, encode_chat

FORMS: tuple[Form, ...] = ("completion", "chat")


def check_base_model(job: Job) -> Done:
    """Write ``rows``: every sentinel, as bare text and with the template where there is one, for both models."""
    parameters = job.parameters
    assert isinstance(parameters, BaseModelCheckParameters)
    declared, engine = rows_of(job.inputs["model"], "declared", parameters, job.folder)
    job.progress(1, 2, "models")
    free()
    control, _ = rows_of(job.inputs["control"], "control", parameters, job.folder)
    job.progress(2, 2, "models")
    rows = [*declared, *control]
    job.write_rows("rows", rows)
    read_back = {"engine": engine.name, "decoding": "greedy", "model_kind": job.order.model_kind}
    effective = parameters.model_dump(mode="json") | read_back
    tokens = sum(row.output_tokens for row in rows)
    return Done(engine.device, engine.dtype, tokens, effective, stated(engine))


def rows_of(
    folder: Path, which: Literal["declared", "control"], parameters: BaseModelCheckParameters, scratch: Path
) -> tuple[list[BaseModelCheckRow], Engine]:
    """Return what one model answers, and the engine that it ran in, which is closed."""
    engine = make_engine(parameters.engine, folder, parameters.batch_size, scratch=scratch)
    rows: list[BaseModelCheckRow] = []
    for form in FORMS:
        if form == "completion" or engine.tokenizer.chat_template is not None:
            rows += answer(engine, which, form, parameters)
    engine.close()
    return rows, engine


def answer(
    engine: Engine, which: Literal["declared", "control"], form: Form, parameters: BaseModelCheckParameters
) -> list[BaseModelCheckRow]:
    """Give every sentinel to a model in one form, greedily."""
    encode = encode_bare if form == "completion" else encode_chat
    encoded = [encode(engine.tokenizer, sentinel.prompt) for sentinel in SENTINELS]
    outputs = engine.complete([one.ids for one in encoded], Sampling(parameters.max_new_tokens), seed=parameters.seed)
    return [
        BaseModelCheckRow(
            sentinel=sentinel.id,
            model=which,
            form=form,
            prompt=one.text,
            ids=one.ids,
            ids_with_special=one.ids_with_special,
            decoded=one.decoded,
            template_ids=one.template_ids,
            has_chat_template=engine.tokenizer.chat_template is not None,
            output=output.text,
            output_tokens=len(output.ids),
            finish=output.finish,
            stop=output.stop,
        )
        for sentinel, one, (output,) in zip(SENTINELS, encoded, outputs, strict=True)
    ]


if __name__ == "__main__":
    run_stage("base_model_check", check_base_model)
