"""A session that compares in every way at once: a further arm, several answers to each item, and a transfer split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specs.jobs.job_records import JobOrder
from testing.factories.evidence_on_disk import N
from testing.factories.more_arms import ARM, STAGES
from testing.factories.sampled_evidence import GREEDY, sampled_answers, sampled_parameters, sampled_spec
from testing.factories.transfer_evidence import DATA, TRANSFER, stage_text, transfer_items
from testing.fixtures.quick_session import healthy_rows

EACH = 2
"""Answers to each item: so few that a witness reads all of them."""
_DRAWN = f"temperature: 0.7, samples_per_item: {EACH}"
APART = {"drafts": 2e-5}
"""How far the training of the further arm moves the weights: not as far as the treatment's."""
_TRANSFER_STAGES = stage_text("other_base", "model") + stage_text("other_tuned", "train.checkpoint")
CHANGES = (
    ("max_hours: 2\n", "max_hours: 3\n"),
    *sampled_spec(_DRAWN),
    ("  prompts: {path: prompts.jsonl}\n", f"  prompts: {{path: prompts.jsonl}}\n{DATA}"),
    ("  treatment: tuned\n", f"  treatment: tuned\n  arms:\n{ARM}{TRANSFER.replace('0.2', '0.8')}"),
    ("  - name: tuned\n", f"{_TRANSFER_STAGES}  - name: tuned\n".replace(GREEDY, sampled_parameters(_DRAWN))),
    ("  - name: train\n", STAGES.replace(GREEDY, sampled_parameters(_DRAWN))),
)
"""Changes of the small spec; each replaces one text."""
_RIGHT = {"base": 0, "other_base": 0, "drafts_after": 1}


def write_transfer_items(folder: Path) -> None:
    """Write the transfer split next to the spec."""
    lines = "".join(f"{item.model_dump_json()}\n" for item in transfer_items(N))
    (folder / "other.jsonl").write_text(lines, encoding="utf-8")


def compared_rows(order: JobOrder) -> list[dict[str, Any]]:
    """Return the rows of a job: before training no answer is right, after it all are, of the further arm a few."""
    if order.kind != "evaluate":
        return healthy_rows(order)
    rows = sampled_answers([_RIGHT.get(order.grant.stage, EACH)] * N, EACH)
    if order.grant.stage.startswith("other"):
        rows = [row | {"item": transfer_items(N)[at // EACH].id} for at, row in enumerate(rows)]
    return rows
