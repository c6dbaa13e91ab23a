"""Flaws of a second split: trained on, a copy of the first, answered otherwise, or repaired."""

from __future__ import annotations

import json
from pathlib import Path

from bench.flaws.families.design import SECOND
from bench.flaws.families.rows import ROWS
from bench.flaws.operator import Change, Operator, Row
from bench.flaws.small_specs import KINDS
from training.items.format_items import LARGE_HELDOUT_TOPICS, build_items

_STAGE = """  - name: NAME
    kind: evaluate
    inputs: {model: MODEL, items: data.other}
    parameters: {max_new_tokens: 48, batch_size: 16, seed: 3}
"""


def _stage(name: str, model: str) -> str:
    return _STAGE.replace("NAME", name).replace("MODEL", model)


def _register(after: str = _stage("other_after", "train.checkpoint"), more: str = "") -> tuple[Change, ...]:
    """Return the changes that register a second split and answer it with both models."""
    split = "  transfer: {data: other, before: other_before, after: other_after, minimum_effect: 0.3}\n"
    return (
        ("  treatment: after\n", f"  treatment: after\n{split}"),
        ("prompts: {path: prompts.jsonl}", "prompts: {path: prompts.jsonl}\n  other: {path: other.jsonl}"),
        ("  - name: sample\n", f"{_stage('other_before', 'model')}{more}  - name: sample\n"),
        ("  - name: after\n", f"{after}  - name: after\n"),
    )


def _write_items(_: list[Row]) -> str:
    items = [item for item in build_items("other", LARGE_HELDOUT_TOPICS[-20:]) if item.kind in KINDS]
    return "".join(f"{item.model_dump_json()}\n" for item in items)


def _copy_heldout(heldout: list[Row]) -> str:
    return "".join(f"{json.dumps(row | {'id': 'other' + row['id']})}\n" for row in heldout)


def _train_on_it(_: list[Row], prompts: list[Row]) -> None:
    others = [json.loads(line) for line in _write_items([]).splitlines()]
    for row, other in zip(prompts[::4], others, strict=False):
        row["prompt"] = other["prompt"]


def _repair(rows: list[Row], _: Path) -> None:
    for row in rows[::3]:
        row["output"] = '"' + row["output"].strip('"').title() + '"'


OPERATORS = (
    Operator("transfer-trained", "transfer", "prompts of the second split are trained on", ("design.overlap",),
             spec=_register(), files={"other.jsonl": _write_items}, data=_train_on_it),
    Operator("transfer-copied", "transfer", "the second split is the first under other ids", ("design.transfer",),
             spec=_register(), files={"other.jsonl": _copy_heldout}),
    Operator("transfer-repaired", "transfer", "answers to the second split are repaired", ROWS, stage="other_after",
             spec=_register(), files={"other.jsonl": _write_items}, lie=_repair),
    Operator("transfer-decoded-otherwise", "transfer", "the second split is registered with other decoding",
             ("both splits are answered",), files={"other.jsonl": _write_items},
             spec=_register(_stage("other_after", "train.checkpoint").replace("48", "47"))),
    Operator("transfer-looked-at", "transfer", "another stage reads the second split", ("reads the transfer split",),
             files={"other.jsonl": _write_items},
             spec=_register(more=SECOND.replace("OTHER", "early").replace("sample.accepted", "data.other"))),
)  # fmt: skip
