"""Save the model for use, reload it in a fresh process and compare greedy answers, token for token."""

from __future__ import annotations

import json
import subprocess
import sys

from specs.stages.packaging.parameters import PackageParameters
from specs.stages.packaging.rows import PackageRow
from training.engines.batched import decode
from training.engines.checkpoint import device_of, free, load, save
from training.jobs.job import Done, Job, run_stage
from training.rules.prompt_encoding import dialogue_ids, form_of
from training.rules.tasks import load_items


def package(job: Job) -> Done:
    """Write ``package`` and ``rows``: per probe the ids before and after.

    Raises:
        EncodingFault: a probe is not encoded as the text it is, or a model declared instruct has no chat template.
    """
    parameters = job.parameters
    assert isinstance(parameters, PackageParameters)
    form = form_of(job.order.declared())
    probes = load_items(job.inputs["items"])[: parameters.probe_items]
    model, tokenizer = load(job.inputs["model"])
    target = job.out / "package"
    save(model, tokenizer, target)
    job.progress(1, 3, "steps")
    prompts = [dialogue_ids(tokenizer, [{"role": "user", "content": item.prompt}], form).ids for item in probes]
    outputs = decode(model, tokenizer, prompts, max_new_tokens=parameters.max_new_tokens, batch_size=len(probes))
    job.progress(2, 3, "steps")
    questions, answers = job.folder / "questions.json", job.folder / "answers.json"
    asked = {"prompts": [item.prompt for item in probes], "form": form, "max_new_tokens": parameters.max_new_tokens}
    questions.write_text(json.dumps(asked), encoding="utf-8")
    device, dtype = device_of(model)
    # The fresh process loads the package beside this one: two of 32 billion parameters do not fit on a GPU of 80 GB.
    del model
    free()
    fresh = subprocess.run(
        [sys.executable, "-P", "-m", "training.jobs.packaging.reload", str(target), str(questions), str(answers)],
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if fresh.returncode != 0:
        raise SystemExit(f"the package could not be used in a fresh process (exit code {fresh.returncode})")
    reloaded = json.loads(answers.read_bytes())
    rows = [
        PackageRow(item=item.id, expected=output.ids, reloaded=tuple(ids))
        for item, (output,), ids in zip(probes, outputs, reloaded, strict=True)
    ]
    job.write_rows("rows", rows)
    job.progress(3, 3, "steps")
    effective = parameters.model_dump(mode="json") | {"form": form}
    return Done(device, dtype, sum(len(row.expected) for row in rows), effective)


if __name__ == "__main__":
    run_stage("package", package)
