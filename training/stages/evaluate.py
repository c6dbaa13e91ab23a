"""Answer every held-out item once, greedily, and write the answers down. Judging them is not this stage's business."""

from __future__ import annotations

from specs.evidence import EvaluationRow
from specs.stages import EvaluateParameters
from training.checkpoint import device_of, load
from training.decoding import decode, encode
from training.entry import Done, Job, run_stage
from training.tasks import load_items


def evaluate(job: Job) -> Done:
    """Write ``rows``: one answer per item."""
    parameters = job.parameters
    assert isinstance(parameters, EvaluateParameters)
    items = load_items(job.inputs["items"])
    model, tokenizer = load(job.inputs["model"])
    prompts = [encode(tokenizer, [{"role": "user", "content": item.prompt}]) for item in items]
    outputs = decode(
        model,
        tokenizer,
        prompts,
        max_new_tokens=parameters.max_new_tokens,
        batch_size=parameters.batch_size,
        seed=parameters.seed,
        on_batch=lambda done: job.progress(done, len(items), "items"),
    )
    rows = [
        EvaluationRow(
            item=item.id,
            prompt_tokens=len(prompt),
            output=output.text,
            output_tokens=len(output.ids),
            truncated=output.truncated,
        )
        for item, prompt, (output,) in zip(items, prompts, outputs, strict=True)
    ]
    job.write_rows("rows", rows)
    device, dtype = device_of(model)
    template = tokenizer.chat_template or ""
    return Done(
        device,
        dtype,
        sum(row.output_tokens for row in rows),
        parameters.model_dump(mode="json") | {"decoding": "greedy"},
        {"chat_template": digest_text(template), "first_prompt_ids": prompts[0][:64]},
    )


def digest_text(text: str) -> str:
    """Return the digest of a text's UTF-8 bytes."""
    from specs.digests import digest_bytes

    return digest_bytes(text.encode())


if __name__ == "__main__":
    run_stage("evaluate", evaluate)
