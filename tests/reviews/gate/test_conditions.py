"""Conditions of approvals: open until met or waived, void with the judgement they come from."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reviews.gate.conditions import condition_results, open_for, why_not_carried
from reviews.gate.grants import verify
from reviews.gate.human_answers import answer_effect
from reviews.history.history import History
from reviews.history.people import last_question, lifted_checks, obligations
from specs.session.session_spec import ResolvedSpec
from specs.stages.base.metric import Metric, MetricSet
from specs.stages.base.stage import Criterion
from specs.stages.metric_catalog import METRICS
from specs.system.errors import InvalidGrant
from specs.trail.verdict import Condition
from testing.factories.bodies import append_json, body_of
from testing.factories.sessions_on_disk import OnDisk, open_session

FAR = time.time_ns() + 10**15
DIGEST = "sha256:" + "0" * 64
ACCURATE = {"metric": "accuracy", "at_least": 0.5, "at_most": None, "above": None, "below": None}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[OnDisk]:
    opened = open_session(tmp_path)
    yield opened
    opened.trail.close()


def condition(stage: str, criterion: dict[str, Any] | None = None, number: int = 1) -> dict[str, Any]:
    return {"id": f"design.1/{number}", "text": "look", "stage": stage, "criterion": criterion}


def state(session: OnDisk) -> dict[str, str]:
    return {obligation.id: obligation.state for obligation in obligations(History(session.trail.iterate()), FAR)}


def override(session: OnDisk, **changes: Any) -> None:
    body = {"check": None, "stage": None, "condition": None, "by": "ada", "reason": "r", "expires": None} | changes
    append_json(session.trail, "override", f"override/{len(list(session.trail.iterate()))}", body)


def measured(stage: str, attempt: int, value: float) -> MetricSet:
    definition = METRICS["accuracy"]
    metric = Metric(
        id="accuracy",
        value=value,
        n=4,
        unit=definition.unit,
        population=definition.population,
        definition=definition.definition,
    )
    return MetricSet(stage=stage, attempt=attempt, rows={}, code=DIGEST, metrics={"accuracy": metric})


def test_only_an_approval_puts_its_conditions_in_force(session: OnDisk) -> None:
    session.decide(None, 1, "escalate", conditions=[condition("sample")], reasons=[])
    assert state(session) == {}
    entry = last_question(History(session.trail.iterate()))
    body = {"stage": None, "attempt": 1, "question": entry.digest, "answer": "approve", "by": "ada", "reason": "r"}
    body |= answer_effect(session.resolved, History(session.trail.iterate()), entry, "approve")
    append_json(session.trail, "human", "human/1", body)
    assert state(session) == {"design.1/1": "open"}


def test_an_open_condition_keeps_its_stage_and_those_after_it_from_starting(session: OnDisk) -> None:
    session.decide(None, 1, "approve", conditions=[condition("sample")])
    entries = list(session.trail.iterate())
    assert [obligation.id for obligation in open_for(History(entries), session.resolved, "base", FAR)] == []
    for stage in ("sample", "train", "tuned"):
        assert [obligation.id for obligation in open_for(History(entries), session.resolved, stage, FAR)] == [
            "design.1/1"
        ]


def test_no_grant_is_minted_over_an_open_condition(session: OnDisk) -> None:
    session.decide(None, 1, "approve", conditions=[condition("base")])
    with pytest.raises(InvalidGrant, match=r"condition design\.1/1 is open"):
        session.mint()
    override(session, condition="design.1/1")
    assert session.mint().stage == "base"


def test_a_waiver_that_has_ended_waives_nothing(session: OnDisk) -> None:
    session.decide(None, 1, "approve", conditions=[condition("sample")])
    override(session, condition="design.1/1", expires=time.time() + 1000)
    entries = list(session.trail.iterate())
    assert obligations(History(entries), time.time_ns())[0].state == "waived"
    assert obligations(History(entries), time.time_ns() + 2000 * 10**9)[0].state == "open"


def test_a_condition_is_met_by_a_gate_and_open_again_when_that_gate_is_taken_back(session: OnDisk) -> None:
    session.decide(None, 1, "approve", conditions=[condition("sample", ACCURATE)])
    gate = session.decide("base", 1, "approve", met=["design.1/1"])
    assert state(session) == {"design.1/1": "met"}
    session.retract(gate)
    assert state(session) == {"design.1/1": "open"}


def test_a_condition_goes_with_the_approval_it_comes_from(session: OnDisk) -> None:
    design = session.decide(None, 1, "approve", conditions=[condition("sample")])
    session.retract(design)
    assert state(session) == {}


@pytest.mark.parametrize(
    ("before", "after", "current", "value"),
    [(0.9, None, None, None), (None, 0.9, None, 0.9), (0.9, 0.2, None, 0.2), (None, 0.9, 0.3, 0.3)],
)
def test_only_what_is_measured_after_a_condition_can_meet_it(
    session: OnDisk, before: float | None, after: float | None, current: float | None, value: float | None
) -> None:
    if before is not None:
        append_json(session.trail, "metrics", "metrics/base.1", body_of("metrics", stage="base", attempt=1))
    session.decide(None, 1, "approve", conditions=[condition("train", ACCURATE)])
    earlier: dict[str, MetricSet] = {} if before is None else {"base": measured("base", 1, before)}
    if after is not None:
        append_json(session.trail, "metrics", "metrics/base.2", body_of("metrics", stage="base", attempt=2))
        earlier = {"base": measured("base", 2, after)}
    (result,) = condition_results(
        History(session.trail.iterate()),
        session.resolved,
        session.resolved.spec.stage("sample"),
        None if current is None else measured("sample", 1, current),
        earlier,
        FAR,
    )
    assert (result.value, result.is_due) == (value, True)
    assert result.met == (value is not None and value >= 0.5)


def test_a_condition_is_due_at_the_gate_before_its_stage_and_from_then_on(session: OnDisk) -> None:
    session.decide(None, 1, "approve", conditions=[condition("train")])
    entries, resolved = list(session.trail.iterate()), session.resolved
    expected = {
        stage.name: condition_results(History(entries), resolved, stage, None, {}, FAR)[0].is_due
        for stage in resolved.spec.stages
    }
    assert expected == {"base": False, "sample": True, "train": True, "tuned": True, "ship": True}


@pytest.mark.parametrize(
    ("stage", "criterion", "why"),
    [
        ("train", Criterion(metric="acceptance_rate", at_least=0.5), ""),
        ("train", None, ""),
        ("base", None, "no later stage"),
        ("nowhere", None, "no later stage"),
        ("train", Criterion(metric="made_up", at_least=1), "unknown metric"),
        ("train", Criterion(metric="loss_drop", at_least=1), "no stage between"),
    ],
)
def test_a_condition_that_cannot_be_judged_in_time_is_not_carried(
    session: OnDisk, stage: str, criterion: Criterion | None, why: str
) -> None:
    output = why_not_carried(session.resolved, "base", Condition(text="t", stage=stage, criterion=criterion))
    assert (why in output) if why else output == ""


def test_a_check_is_lifted_for_its_stage_only_and_until_it_ends(session: OnDisk) -> None:
    override(session, check="jobs.exit", stage="train", expires=time.time() + 1000)
    entries = list(session.trail.iterate())
    assert lifted_checks(History(entries), "train", time.time_ns()) == {"jobs.exit": "ada: r"}
    assert lifted_checks(History(entries), "base", time.time_ns()) == {}
    assert lifted_checks(History(entries), "train", time.time_ns() + 2000 * 10**9) == {}


def test_a_retraction_voids_what_came_after_and_numbers_go_on(session: OnDisk) -> None:
    session.decide(None, 1, "approve")
    base = session.decide("base", 1, "approve")
    sample = session.decide("sample", 1, "approve")
    session.retract(base)
    entries = list(session.trail.iterate())
    assert History(entries).retracted == {base.seq, sample.seq}
    assert last_question(History(entries)).kind == "retraction"
    assert History(entries).next_attempt("train") == 2
    with pytest.raises(InvalidGrant, match="no stage is open"):
        session.mint()
    answered = session.retry("base")
    assert answered.raw["opens"] == {"stage": "base", "attempt": 2}
    assert History(session.trail.iterate()).retracted == {base.seq, sample.seq}
    assert session.mint().attempt == 2


def test_an_order_granted_before_a_retraction_is_refused_after_it(session: OnDisk) -> None:
    session.decide(None, 1, "approve")
    design = next(entry for entry in session.trail.iterate("decision"))
    order = session.order(session.mint())
    verify(session.trail, order, session.registration, session.digests())
    append_json(session.trail, "launch", f"launch/{order.key}", body_of("launch", key=order.key))
    session.retract(design)
    with pytest.raises(InvalidGrant, match="opening decision"):
        verify(session.trail, order, session.registration, session.digests())


def test_answers_open_what_they_must(session: OnDisk) -> None:
    resolved: ResolvedSpec = session.resolved
    session.decide(None, 1, "approve")
    entry = session.decide("base", 1, "escalate", reasons=[])
    entries = list(session.trail.iterate())
    assert answer_effect(resolved, History(entries), entry, "retry")["opens"] == {"stage": "base", "attempt": 2}
    assert answer_effect(resolved, History(entries), entry, "approve")["opens"] == {"stage": "sample", "attempt": 1}
    assert answer_effect(resolved, History(entries), entry, "stop")["opens"] is None
