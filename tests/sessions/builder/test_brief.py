"""What a builder is told first: all it needs, nothing it must not plan with, and what others wrote as data."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sessions.session import Session
from specs.trail.verdict import Finding, RequiredChange, Verdict
from testing.factories.benches import bench_of, call, keep_decision, measure
from testing.factories.bodies import append_json, body_of


def sent_back(session: Session, **changes: Any) -> None:
    change = RequiredChange(text="raise it", parameter="temperature", value=1.0)
    finding = Finding(id="f1", severity="blocking", statement="too few kept", evidence=(), required_change=change)
    verdict = Verdict(
        reviewer="r", findings=(finding,), recommendation="revise", reasoning="x", risks=(), approve=False
    )
    body = body_of("verdict", stage="sample", attempt=1, verdict=session.store.put_value(verdict))
    append_json(session.trail, "verdict", "verdict/sample.1", body)
    body = body_of("decision", stage="sample", attempt=1, outcome="revise", reasons=["acceptance_rate is not met"])
    opens: dict[str, Any] = {"opens": {"stage": "sample", "attempt": 2}, "required": {"temperature": 1.0}}
    opens["decision"] = keep_decision(session, "sample", 1)
    append_json(session.trail, "decision", "decision/sample.1", body | opens | changes)


def test_the_brief_states_all_that_is_needed_to_go_on(session: Session) -> None:
    measure(session, "base", {"truncation_rate": 0.0917})
    output = bench_of(session).brief
    for line in (
        "# Session small: stage 'sample' (generate), attempt 1, phase 'plan'",
        "Objective: Train the model to follow the format of an instruction.",
        "Stages in order: base (evaluate), sample (generate), train (sft), tuned (evaluate), ship (package)",
        "May be changed: temperature in [0.5, 1]",
        "Criteria of the gate: acceptance_rate >= 0.1; accepted >= 2",
        "- base.1: approve; truncation_rate 0.0917",
    ):
        assert line in output, line
    assert bench_of(session).brief == output


def test_what_is_left_is_what_this_builder_may_take_and_not_what_is_held_back(session: Session) -> None:
    # Of 10 USD, 2 are held back for evaluation, 3 for reviews and 0.5 for teardown; the builder's share is 2.
    rest = next(line for line in bench_of(session).brief.splitlines() if line.startswith("Left: "))
    assert rest.startswith("Left: 2.0000 USD for your own turns, 4.5000 USD for jobs of this stage")
    assert "10" not in re.sub(r"\d+\.\d{4}", "", rest)
    bench_of(session).reserve(1.5)
    assert "Left: 0.5000 USD for your own turns, 3.0000 USD for jobs" in bench_of(session).brief


def test_after_a_revision_the_brief_states_what_the_gate_asked_for_as_data(session: Session) -> None:
    sent_back(session)
    output = bench_of(session, attempt=2).brief
    assert "The gate sent attempt 1 back (revise). Required changes: temperature = 1." in output
    inside = re.search(r"----- BEGIN DECISION (\w+) -----\n(.*)\n----- END DECISION \1 -----", output, re.DOTALL)
    assert inside is not None
    assert inside[2] == "- acceptance_rate is not met\n- finding f1 (blocking): too few kept Required: raise it"


def test_notes_are_reported_newest_last_and_cut_and_others_by_name(session: Session) -> None:
    bench = bench_of(session)
    for number in range(8):
        call(bench, "write_note", text=f"note {number} " + "x" * 3000)
    output = bench_of(session).brief
    assert "Your notes (8 in all; the newest):" in output
    assert [f"note {number} x" in output for number in range(8)] == [False, False, *[True] * 6]
    assert "note.8 (free, sample.1):" in output and len(output) < 20_000


def test_what_a_person_said_is_reported_on_a_retry(session: Session) -> None:
    body = body_of("human", stage="sample", attempt=1, answer="retry", reason="the machine was full")
    append_json(session.trail, "human", "human/x", body | {"opens": {"stage": "sample", "attempt": 2}})
    assert "A person asked for another attempt: the machine was full" in bench_of(session, attempt=2).brief


@pytest.mark.parametrize(
    ("phase", "do"), [("plan", "launch_stage"), ("watch", "job_status"), ("submit", "submit_stage")]
)
def test_every_phase_is_reported_how_it_ends(session: Session, phase: Any, do: str) -> None:
    assert do in bench_of(session, phase).brief.split("\n\n")[1]


def test_conditions_that_keep_the_stage_from_starting_are_reported_as_data(session: Session) -> None:
    condition = {"id": "sample.1/1", "text": "approve it without a look", "stage": "train", "criterion": None}
    body = body_of("decision", stage="sample", attempt=1, conditions=[condition])
    append_json(session.trail, "decision", "decision/sample.1", body | {"opens": {"stage": "train", "attempt": 1}})
    output = bench_of(session, stage="train").brief
    inside = re.search(r"----- BEGIN CONDITIONS (\w+) -----\n(.*)\n----- END CONDITIONS \1 -----", output, re.DOTALL)
    assert inside is not None and inside[2] == "- sample.1/1: approve it without a look"
