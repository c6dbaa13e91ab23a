"""Copy the checkpoint for use, load it in a fresh process and compare greedy answers, token for token.

The fresh process is ``python -P -m training.jobs.packaging.package PACKAGE QUESTIONS ANSWERS``: QUESTIONS is
``{"prompts": [...], "form": "completion" or "chat", "max_new_tokens": n}``; ANSWERS gets the token ids per prompt.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specs.jobs.job_records import LEFT
from specs.stages.base.sampling import Form
from specs.stages.packaging.parameters import PackageParameters
from specs.stages.packaging.rows import PackageRow
from training.engines.checkpoint import device_of, free, load
from training.jobs.job import Job, StageResult
from training.jobs.packaging.probe_answers import build_probe_prompts, encode_probe_prompts, greedy
from training.jobs.witness.prompted_answers import PromptedAnswer
from training.rules.prompt_encoding import form_of
from training.rules.tasks import load_items


def package(job: Job[PackageParameters]) -> StageResult:
    """Write ``package`` and ``rows``: per probe the ids before and after; raises EncodingFault as the stages before."""
    parameters = job.parameters
    form = form_of(job.order.model_kind)
    probes = load_items(job.inputs["items"])[: parameters.probe_items]
    model, tokenizer = load(job.inputs["model"])
    target = job.out / "package"
    target.mkdir(exist_ok=True)
    # Copied, because saved again weights would have the type in which this machine computes.
    for path in sorted(path for path in job.inputs["model"].iterdir() if path.is_file()):
        shutil.copyfile(path, target / path.name)
    job.progress(1, 3, "steps")
    prompts = [item.prompt for item in probes]
    expected = greedy(model, tokenizer, encode_probe_prompts(tokenizer, prompts, form), parameters.max_new_tokens)
    job.progress(2, 3, "steps")
    questions, answers = job.folder / "questions.json", job.folder / "answers.json"
    requests = {"prompts": prompts, "form": form, "max_new_tokens": parameters.max_new_tokens}
    questions.write_text(json.dumps(requests), encoding="utf-8")
    device, dtype = device_of(model)
    # The fresh process loads the package next to this one: two of 32 billion parameters do not fit on a GPU of 80 GB.
    del model
    free()
    fresh = subprocess.run(
        [sys.executable, "-P", "-m", __name__, str(target), str(questions), str(answers)],
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if fresh.returncode != 0:
        raise SystemExit(f"the package could not be used in a fresh process (exit code {fresh.returncode})")
    rows = [
        PackageRow(item=item.id, expected=tuple(before), reloaded=tuple(after))
        for item, before, after in zip(probes, expected, json.loads(answers.read_bytes()), strict=True)
    ]
    job.write_rows("rows", rows)
    job.progress(3, 3, "steps")
    effective = parameters.model_dump(mode="json") | {"form": form}
    return StageResult(device, dtype, sum(len(row.expected) for row in rows), effective)


def build_witness_prompts(job: Job[PackageParameters], tokenizer: Any, places: Sequence[int]) -> list[PromptedAnswer]:
    """Return what checkpoint and package were asked for these rows; raises as :func:`build_probe_prompts`."""
    return build_probe_prompts(job, tokenizer, places, PackageRow, {"expected": "model", "reloaded": LEFT + "package"})


def answer(folder: Path, prompts: list[str], form: Form, max_new_tokens: int) -> list[list[int]]:
    """Return the greedy answers of a checkpoint, as token ids; raises EncodingFault if it changes a prompt."""
    model, tokenizer = load(folder)
    return greedy(model, tokenizer, encode_probe_prompts(tokenizer, prompts, form), max_new_tokens)


def main(arguments: list[str]) -> None:
    """Read the questions, write the answers."""
    folder, questions, answers = map(Path, arguments)
    counts = answer(folder, **json.loads(questions.read_bytes()))
    answers.write_text(json.dumps(counts), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
