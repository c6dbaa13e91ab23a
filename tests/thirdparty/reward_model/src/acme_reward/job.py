"""The process of a ``reward_model`` stage: torch inside functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from acme_reward.contract import Parameters, Step
from training.engines.checkpoint import device_of, load, save
from training.jobs import saved_steps
from training.jobs.job import Done, Job
from training.rules.tasks import load_items


def run(job: Job) -> Done:
    """Take one step a pair; what was saved by an earlier attempt is not done again."""
    import torch

    given: Parameters = job.parameters
    pairs = load_items(job.inputs["pairs"]) * given.epochs
    saved = saved_steps.newest_whole(job.folder / saved_steps.FOLDER)
    model, tokenizer = load(saved or job.inputs["model"])
    rows = _rows(saved) if saved else []
    optimizer = torch.optim.SGD(model.parameters(), lr=given.learning_rate)
    tokens = 0
    for number, item in enumerate(pairs[len(rows) :], len(rows) + 1):
        better, worse = (
            _reward(model, tokenizer, item.prompt, str(item.constraint[one])) for one in ("better", "worse")
        )
        loss = -torch.nn.functional.logsigmoid(better - worse)
        rows.append(Step(step=number, item=item.id, margin=float(better - worse), loss=float(loss)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        tokens += len(item.prompt)
        job.progress(number, len(pairs), "pairs", loss=float(loss))
        if number % given.save_every == 0:
            _keep(job.folder / saved_steps.FOLDER / f"checkpoint-{number}", model, tokenizer, rows)
    job.write_rows("rows", rows)
    save(model, tokenizer, job.out / "checkpoint")
    saved_steps.clear(job.folder / saved_steps.FOLDER)
    device, dtype = device_of(model)
    return Done(device=device, dtype=dtype, tokens=tokens, effective=given.model_dump(mode="json"))


def _reward(model: Any, tokenizer: Any, prompt: str, answer: str) -> Any:
    ids = tokenizer(f"{prompt}\n{answer}", return_tensors="pt").input_ids.to(model.device)
    return -model(input_ids=ids, labels=ids).loss


def _keep(folder: Path, model: Any, tokenizer: Any, rows: list[Step]) -> None:
    save(model, tokenizer, folder)
    (folder / "rows.json").write_text(json.dumps([row.model_dump() for row in rows]), encoding="utf-8")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": len(rows)}), encoding="utf-8")
    saved_steps.mark(folder)


def _rows(folder: Path) -> list[Step]:
    return [Step.model_validate(row) for row in json.loads((folder / "rows.json").read_text(encoding="utf-8"))]
