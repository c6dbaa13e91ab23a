"""The process of a ``reward_model`` stage, and of the witness that trains some of its steps again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acme_reward.contract import Parameters, Step
from specs.stages.base.witness import ROWS
from specs.stages.finetuning.rows import ReplayedStep
from training.engines.checkpoint import device_of, load, save
from training.jobs import saved_steps
from training.jobs.finetuning.saved_weights import apart_from_end, saved_sketch
from training.jobs.finetuning.weight_sketch import collect_trained_weights, sketch
from training.jobs.job import Job, StageResult
from training.rules.tasks import load_items


def run(job: Job) -> StageResult:
    """Take one step a pair; what was saved by an earlier attempt is not done again."""
    parameters: Parameters = job.parameters
    saved = saved_steps.newest_whole(job.folder / saved_steps.FOLDER)
    model, tokenizer = load(saved or job.inputs["model"])
    rows = _rows(saved) if saved else []
    for row, total in _steps(job, model, tokenizer, len(rows)):
        rows.append(row)
        job.progress(row.step, total, "pairs", loss=row.loss)
        if row.step % parameters.save_every == 0:
            _keep(job.folder / saved_steps.FOLDER / f"checkpoint-{row.step}", model, tokenizer, rows)
    job.write_rows("rows", rows)
    save(model, tokenizer, job.out / "checkpoint")
    saved_steps.clear(job.folder / saved_steps.FOLDER)
    tokens = sum(row.tokens for row in rows)
    return StageResult(*device_of(model), tokens=tokens, effective=parameters.model_dump(mode="json"))


def replay(job: Job) -> StageResult:
    """Train the first steps again, as many as the challenge asks for, and look at what was saved."""
    assert job.order.challenge is not None
    (part,) = job.order.challenge.segments  # Without snapshots there is one part: the opening.
    model, tokenizer = load(job.inputs["model"])
    before, again = sketch(collect_trained_weights(model)), list[ReplayedStep]()
    for row, _ in _steps(job, model, tokenizer, 0):
        shared = row.model_dump(include=set(ReplayedStep.model_fields))
        again.append(ReplayedStep.model_validate(shared | {"before": before}))
        before = row.sketch
        job.progress(row.step, part.until, "steps")
        if row.step == part.until:
            break
    job.write_rows(ROWS, again)
    facts: dict[str, Any] = {"saved": saved_sketch(job)}
    if part.until == job.order.challenge.of:
        facts["end_apart"] = apart_from_end(job, collect_trained_weights(model))
    return StageResult(*device_of(model), tokens=sum(row.tokens for row in again), effective={}, facts=facts)


def _steps(job: Job, model: Any, tokenizer: Any, done: int) -> Iterator[tuple[Step, int]]:
    """Train from a step on; yields each step's row, and how many there are in all."""
    import torch

    parameters: Parameters = job.parameters
    pairs = load_items(job.inputs["pairs"]) * parameters.epochs
    optimizer = torch.optim.SGD(model.parameters(), lr=parameters.learning_rate)
    for number, item in enumerate(pairs[done:], done + 1):
        texts = [f"{item.prompt}\n{item.constraint[name]}" for name in ("better", "worse")]
        ids = [tokenizer(text, return_tensors="pt").input_ids.to(model.device) for text in texts]
        better, worse = (-model(input_ids=text_ids, labels=text_ids).loss for text_ids in ids)
        loss = -torch.nn.functional.logsigmoid(better - worse)
        loss.backward()
        gradient = torch.linalg.vector_norm(torch.stack([parameter.grad.norm() for parameter in model.parameters()]))
        optimizer.step()
        optimizer.zero_grad()
        row = Step(
            step=number,
            epoch=number * parameters.epochs / len(pairs),
            loss=float(loss),
            learning_rate=parameters.learning_rate,
            grad_norm=float(gradient),
            tokens=sum(text_ids.numel() for text_ids in ids),
            batches=tuple(hashlib.sha256(repr(text_ids.tolist()).encode()).hexdigest()[:16] for text_ids in ids),
            sketch=sketch(collect_trained_weights(model)),
            item=item.id,
            margin=float(better - worse),
        )
        yield row, len(pairs)


def _keep(folder: Path, model: Any, tokenizer: Any, rows: list[Step]) -> None:
    save(model, tokenizer, folder)
    (folder / "rows.json").write_text(json.dumps([row.model_dump() for row in rows]), encoding="utf-8")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": len(rows)}), encoding="utf-8")
    saved_steps.mark(folder)


def _rows(folder: Path) -> list[Step]:
    return [Step.model_validate(row) for row in json.loads((folder / "rows.json").read_text(encoding="utf-8"))]
