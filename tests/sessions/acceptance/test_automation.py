"""Who decided at the gates of sessions that code, a model and a person decided, and what people gave."""

from __future__ import annotations

import json
from pathlib import Path

from reviews.gate.measurer import measure
from reviews.history.history import History
from sessions.pages.acceptance.automation import automation_of, count_labels
from sessions.run.run_layout import STORE, TRAIL
from specs.stages.registry import STAGE_KINDS
from specs.trail.gate_bodies import DecisionEntry
from testing.factories.critic_evidence import critic_evidence
from testing.fixtures.hostile_trail import Critical
from testing.fixtures.quick_session import drive, open_quick, quick_session

MODEL = (
    "reviewer: {vendor: checklist}",
    'reviewer: {vendor: openai, model: tiny, base_url: "http://127.0.0.1:1", '
    "usd_per_million_tokens: {input: 0, output: 0}}",
)


def read(run: Path) -> History:
    return History.read(run / TRAIL, run / STORE)


def gates(history: History) -> int:
    return len(history.of(DecisionEntry))


def test_code_decides_where_no_model_reviews(closed_quick: Path) -> None:
    history = read(closed_quick)
    automation = automation_of(history)
    assert automation == (gates(history), 0, 0, 0, 0.0, 0)
    report = json.loads((closed_quick / "report" / "report.json").read_bytes())
    assert report["automation"]["line"] == automation.line()
    assert f"| who decided | of {gates(history)} gates {gates(history)} decided by code, 0 by" in (
        closed_quick / "report" / "report.md"
    ).read_text(encoding="utf-8")


def test_a_model_decides_where_it_reviews_and_no_check_failed(tmp_path: Path) -> None:
    run = open_quick(tmp_path, MODEL)
    drive(quick_session(run))
    history = read(run)
    assert automation_of(history)[:3] == (0, gates(history), 0)


def test_a_person_decides_over_a_gate_and_the_wait_is_counted(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, reviewer=Critical()))
    before = automation_of(read(run))
    assert (before.by_person, before.overrides, before.waited_minutes) == (0, 0, 0.0)
    drive(quick_session(run), {"answer": "approve", "reason": "a reason", "by": "ada", "expires": None})
    history = read(run)
    after = automation_of(history)
    assert (after.by_code + after.by_model + after.by_person, after.by_person) == (gates(history), 1)
    assert after.overrides == 1 and 0 < after.waited_minutes < 5


def test_labels_are_those_of_the_sample_that_admitted_the_critic(tmp_path: Path) -> None:
    evidence = critic_evidence(tmp_path, "critique_instructions")
    metrics = measure(evidence)
    labelled = evidence.outputs["calibration"].read_bytes().count(b"\n")
    assert count_labels(STAGE_KINDS["critique_instructions"], metrics) == labelled > 0
    assert count_labels(STAGE_KINDS["evaluate"], metrics) == 0
