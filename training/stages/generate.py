"""Sample completions from the model itself and keep what the verifier accepts.

While sampling, one worked example stands before the prompt. The kept examples carry the bare prompt, so training
on them moves the form from the context into the weights.
"""

from __future__ import annotations

from specs.evidence import Example, GenerationRow, Item
from specs.stages import GenerateParameters
from training.checkpoint import device_of, load
from training.decoding import Message, decode, encode
from training.entry import Done, Job, run_stage
from training.tasks import choose, load_items, verifier, worked_example


def generate(job: Job) -> Done:
    """Write ``rows`` (every sample) and ``accepted`` (verified, without repeats)."""
    parameters = job.parameters
    assert isinstance(parameters, GenerateParameters)
    items = choose(load_items(job.inputs["prompts"]), parameters.max_prompts)
    model, tokenizer = load(job.inputs["model"])
    prompts = [encode(tokenizer, _messages(job.order.task, item, parameters.worked_example)) for item in items]
    outputs = decode(
        model,
        tokenizer,
        prompts,
        max_new_tokens=parameters.max_new_tokens,
        batch_size=parameters.batch_size,
        samples=parameters.samples_per_prompt,
        temperature=parameters.temperature,
        top_p=parameters.top_p,
        seed=parameters.seed,
        on_batch=lambda done: job.progress(done, len(items), "prompts"),
    )
    rows = [
        GenerationRow(
            item=item.id,
            group=item.group,
            kind=item.kind,
            sample=sample,
            prompt=item.prompt,
            completion=output.text,
            completion_tokens=len(output.ids),
            truncated=output.truncated,
        )
        for item, samples in zip(items, outputs, strict=True)
        for sample, output in enumerate(samples)
    ]
    job.write_rows("rows", rows)
    job.write_rows("accepted", accept(job.order.task, items, rows))
    device, dtype = device_of(model)
    effective = parameters.model_dump(mode="json") | {"prompts": len(items)}
    return Done(device, dtype, sum(row.completion_tokens for row in rows), effective)


def accept(task: str, items: list[Item], rows: list[GenerationRow]) -> list[Example]:
    """Return what may be trained on: verified, whole, each (prompt, completion) once."""
    by_id = {item.id: item for item in items}
    judge = verifier(task)
    kept: dict[tuple[str, str], Example] = {}
    for row in rows:
        if row.truncated or not judge(by_id[row.item], row.completion).passed:
            continue
        text = row.completion.strip()
        kept.setdefault(
            (row.prompt, text),
            Example(
                item=row.item, group=row.group, kind=row.kind, sample=row.sample, prompt=row.prompt, completion=text
            ),
        )
    return list(kept.values())


def _messages(task: str, item: Item, with_example: bool) -> list[Message]:
    question: list[Message] = [{"role": "user", "content": item.prompt}]
    if not with_example:
        return question
    instruction, answer = worked_example(task, item)
    return [{"role": "user", "content": instruction}, {"role": "assistant", "content": answer}, *question]


if __name__ == "__main__":
    run_stage("generate", generate)
