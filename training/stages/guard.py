"""Ask the model, and a control, what tells a base model from an instruct model. Judging is not this stage's business.

The prompts are encoded by the function that every later stage uses, and what the tokenizer made of them is written
down beside the answers. The models are loaded one after the other.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any, Literal

from specs.rows_text import Form, GuardRow
from specs.stages import GuardParameters
from training.checkpoint import device_of, load
from training.entry import Done, Job, run_stage
from training.text.engine import Batched
from training.text.prompting import encode_bare, encode_chat
from training.text.sampling import Sampling
from training.text.sentinels import SENTINELS

FORMS: tuple[Form, ...] = ("completion", "chat")


def guard(job: Job) -> Done:
    """Write ``rows``: every sentinel, as bare text and with the template where there is one, for both models."""
    parameters = job.parameters
    assert isinstance(parameters, GuardParameters)
    declared, device, dtype = rows_of(job.inputs["model"], "declared", parameters)
    job.progress(1, 2, "models")
    _free()
    control, _, _ = rows_of(job.inputs["control"], "control", parameters)
    job.progress(2, 2, "models")
    rows = [*declared, *control]
    job.write_rows("rows", rows)
    effective = parameters.model_dump(mode="json") | {"decoding": "greedy", "model_kind": job.order.model_kind}
    return Done(device, dtype, sum(row.output_tokens for row in rows), effective)


def _free() -> None:
    """Give the memory of the first model back before the second one is loaded."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def rows_of(
    folder: Path, which: Literal["declared", "control"], parameters: GuardParameters
) -> tuple[list[GuardRow], str, str]:
    """Return what one model answers, and (device, dtype) it ran on."""
    model, tokenizer = load(folder)
    rows: list[GuardRow] = []
    for form in FORMS:
        if form == "completion" or tokenizer.chat_template is not None:
            rows += answer(model, tokenizer, which, form, parameters)
    return rows, *device_of(model)


def answer(
    model: Any, tokenizer: Any, which: Literal["declared", "control"], form: Form, parameters: GuardParameters
) -> list[GuardRow]:
    """Give every sentinel to a model in one form, greedily."""
    encode = encode_bare if form == "completion" else encode_chat
    encoded = [encode(tokenizer, sentinel.prompt) for sentinel in SENTINELS]
    engine = Batched(model, tokenizer, parameters.batch_size)
    outputs = engine.complete([one.ids for one in encoded], Sampling(parameters.max_new_tokens), seed=parameters.seed)
    return [
        GuardRow(
            sentinel=sentinel.id,
            model=which,
            form=form,
            prompt=one.text,
            ids=one.ids,
            ids_with_special=one.ids_with_special,
            decoded=one.decoded,
            template_ids=one.template_ids,
            has_chat_template=tokenizer.chat_template is not None,
            output=output.text,
            output_tokens=len(output.ids),
            finish=output.finish,
            stop=output.stop,
        )
        for sentinel, one, (output,) in zip(SENTINELS, encoded, outputs, strict=True)
    ]


if __name__ == "__main__":
    run_stage("guard", guard)
