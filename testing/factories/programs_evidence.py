"""Evidence of a stage that has a model write programs, with answers written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from specs.stages.base.artifacts import Item
from specs.stages.programs.kinds import CODE_EVAL
from specs.stages.programs.rows import CodeRow
from specs.system.confinement import task_file
from specs.system.digests import digest_path
from testing.factories.evaluation_evidence import evidence_with
from testing.factories.evidence_on_disk import write_rows
from training.rules.tasks import load_items

SHIPPED = Path(__file__).parents[2] / "specs" / "library" / "data" / "code_problems.jsonl"


def problems(count: int = 3) -> tuple[Item, ...]:
    """Return the first shipped problems."""
    return tuple(load_items(SHIPPED)[:count])


def solution_of(item: Item) -> str:
    """Return a right answer, as a chat model gives it."""
    return f"Here it is:\n```python\n{item.constraint['solution']}```\nIt works."


def code_row(item: Item, output: str, sample: int = 0, **changes: Any) -> CodeRow:
    """Return an answer of three tokens."""
    arguments: dict[str, Any] = {
        "item": item.id, "sample": sample, "form": "chat", "prompt_tokens": 9, "output": output, "output_tokens": 3,
        "truncated": False, "finish": "eos", "answer_ids": (1, 2, 3),
    }  # fmt: skip
    return CodeRow.model_validate(arguments | changes)


def code_evidence(
    folder: Path, rows: Sequence[CodeRow] | None = None, items: Sequence[Item] | None = None, **parameters: Any
) -> Evidence:
    """Return the evidence of answers; without any, one right answer to each of three problems."""
    items = items or problems()
    rows = [code_row(item, solution_of(item)) for item in items] if rows is None else rows
    counts = {"seconds": 2, "memory_mb": 128, **parameters}
    inputs = {"model": "model", "items": "data.problems"}
    stage = CODE_EVAL.stage(name="code", kind="code_eval", inputs=inputs, parameters=counts)
    evidence = evidence_with(folder, stage, tuple(items), list(rows))
    task_file.allow(evidence.resolved.programs())
    path = write_rows(folder / "problems.jsonl", [item.model_dump(mode="json") for item in items])
    return replace(evidence, inputs=evidence.inputs | {"items": path}, grant=_granted(evidence, path))


def _granted(evidence: Evidence, items: Path) -> Any:
    assert evidence.grant is not None
    inputs = evidence.grant.inputs | {"items": digest_path(items)}
    return evidence.grant.model_copy(update={"kind": "code_eval", "inputs": inputs})
