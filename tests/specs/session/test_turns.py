"""Rows with turns before their prompt: for the stages that read them, refused elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testing.factories.spec_files import loads, problems_of, write_spec

BEFORE = [{"role": "system", "content": "Be brief."}]


def with_turns(path: Path) -> None:
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("".join(json.dumps(row | {"before": BEFORE}) + "\n" for row in rows), encoding="utf-8")


def test_a_stage_that_would_ask_the_last_turn_alone_is_an_error(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    loads(spec)
    with_turns(tmp_path / "prompts.jsonl")
    (problem,) = problems_of(spec)
    assert problem.keys == "stages[1].inputs.prompts" and "a generate stage would ask the last" in problem.message
    assert "sft, dpo, grpo, sdpo, composer, evaluate" in problem.hint


def test_held_out_items_may_have_them(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    with_turns(tmp_path / "heldout.jsonl")
    text = spec.read_text(encoding="utf-8")
    digest = next(line for line in text.splitlines() if line.startswith("  digest: "))
    spec.write_text(text.replace(f"{digest}\n", ""), encoding="utf-8")
    assert b'"before"' in loads(spec).read_data()["heldout"]
