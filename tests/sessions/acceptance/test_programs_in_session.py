"""A session that has its model write programs and times it: gates, criteria and audit find the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages.acceptance.backlog import backlog_of
from sessions.runtime.wiring import require_machine
from specs.jobs.job_records import JobOrder
from specs.system.confinement import program_process
from specs.system.errors import BlockedError
from testing.factories.evidence_on_disk import resolved_spec
from testing.factories.programs_evidence import SHIPPED, code_row, problems, solution_of
from testing.fixtures.quick_session import QuickLauncher, drive, healthy_rows, open_quick, quick_session
from testing.fixtures.sandbox import needs_sandbox
from tests.stages.packaging.test_bench import HEALTHY

STAGES = """
        - {metric: identical_outputs, at_least: 1}
  - name: programs
    kind: code_eval
    inputs: {model: train.checkpoint, items: data.problems}
    parameters: {max_problems: 3, seconds: 2, seed: 7}
  - name: speed
    kind: bench
    inputs: {model: train.checkpoint, items: heldout}
    parameters: {rounds: 3, seed: 7}
criteria:
  - {id: AC-1, text: It solves a third of the problems., stage: programs, metric: {metric: pass_at_1, at_least: 0.3}}
  - {id: AC-2, text: It solves every problem., stage: programs, metric: {metric: pass_at_1, at_least: 1}}
  - {id: AC-3, text: It is fast enough., stage: speed, check: bench.ratio, weight: 2}
"""
CHANGES = (
    ("\n        - {metric: identical_outputs, at_least: 1}\n", STAGES),
    ("  prompts: {path: prompts.jsonl}\n", "  prompts: {path: prompts.jsonl}\n  problems: {path: problems.jsonl}\n"),
    ("  max_hours: 2\n", "  max_hours: 9\n"),
)


def rows(order: JobOrder) -> list[dict[str, Any]]:
    if order.grant.stage == "programs":
        items = problems()
        code_rows = [code_row(item, solution_of(item) if place else "no code") for place, item in enumerate(items)]
        return [row.model_dump(mode="json") for row in code_rows]
    if order.grant.stage == "speed":
        return [row.model_dump(mode="json") for row in HEALTHY]
    return healthy_rows(order)


@needs_sandbox
def test_criteria_on_programs_and_speed_are_discharged_by_their_gates(tmp_path: Path) -> None:
    shutil.copy(SHIPPED, tmp_path / "problems.jsonl")
    run = open_quick(tmp_path, *CHANGES)
    drive(quick_session(run, launcher=QuickLauncher(rows=rows)))
    report = json.loads((run / "report" / "report.json").read_bytes())
    assert report["outcome"] == "approve", report["why"]
    states = {criterion["id"]: criterion["state"] for criterion in report["acceptance"]["criteria"]}
    assert states == {"AC-1": "discharged", "AC-2": "open", "AC-3": "discharged"}
    assert report["acceptance"]["ship_percent"] == 75.0
    (item,) = backlog_of(History(read_entries(run / "trail.sqlite"), Store(run / "store"))).items
    assert item.missing == "pass_at_1 is 0.6667 at programs.1, not pass_at_1 >= 1"
    audit = verify_run(run, "trail.sqlite", "store")
    assert (audit.damage, audit.exit_code) == ([], 0), audit.damage


@needs_sandbox
def test_a_session_whose_gate_could_run_no_program_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(SHIPPED, tmp_path / "problems.jsonl")
    spec = resolved_spec(tmp_path, *CHANGES).spec
    require_machine(spec)

    def nothing(*_: Any) -> None:
        return None

    monkeypatch.setattr(program_process.bubblewrap, "this_host", nothing)
    with pytest.raises(BlockedError, match="its gate runs programs in a sandbox: bubblewrap"):
        require_machine(spec)
