"""A defect schedules the checks of its family at other stages: there a warning is not enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.defect_waves import due_at
from reviews.history.history import History
from tests.reviews.acceptance.test_criterion_state import Scenario, registered
from tests.reviews.gate.test_decide import MOVE, check, decided


def test_a_family_is_due_at_every_stage_but_that_of_the_defect(tmp_path: Path) -> None:
    answer = Scenario(*registered(tmp_path))
    answer.check("train", 1, {"checkpoint.files": "PASS", "training.loss": "WARN", "jobs.exit": "BLOCKED"})
    assert due_at(History(answer.entries, answer.store), "ship") == {}, "only a failure is a defect"
    answer.check("train", 2, {"checkpoint.files": "FAIL", "training.loss": "FAIL"})
    answer.check("train", 3, {"checkpoint.files": "PASS", "training.loss": "PASS"})
    answer.check("ship", 1, {"package.probes": "FAIL"})
    families = {"ship": "checkpoint.files at train.2", "training": "training.loss at train.2"}
    assert due_at(History(answer.entries, answer.store), "ship") == families
    assert due_at(History(answer.entries, answer.store), "train") == {"ship": "package.probes at ship.1"}
    assert due_at(History(answer.entries[:2], answer.store), "ship") == {}, "what came later is not known"


def test_advice_that_failed_is_no_defect(tmp_path: Path) -> None:
    answer = Scenario(*registered(tmp_path))
    result = {"id": "power.margin", "title": "t", "status": "FAIL", "blocking": False, "detail": ""}
    at = {"stage": "base", "attempt": 1, "summary": {"power.margin": "FAIL"}}
    answer.add("checks", "checks/base.1", checks=answer.store.put_value([result]), **at)
    assert due_at(History(answer.entries, answer.store), "tuned") == {}


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({"scheduled_by": "package.probes at ship.1"}, "escalate"),
        ({"scheduled_by": "package.probes at ship.1", "required_change": MOVE}, "revise"),
        # Advice stays advice, and a warning that nothing scheduled is one.
        ({"scheduled_by": "package.probes at ship.1", "blocking": False}, "approve"),
        ({}, "approve"),
    ],
)
def test_a_check_that_a_defect_elsewhere_scheduled_has_to_pass(more: dict[str, Any], outcome: str) -> None:
    decision = decided((check("WARN", **more),))
    assert decision.outcome == outcome
    if outcome == "escalate":
        assert decision.reasons == ("check c is WARN and must pass because of package.probes at ship.1: d",)
    passing = (check("PASS", **more), check("NOT_APPLICABLE", **more))
    assert decided(passing).outcome == "approve"
    assert decided((check("WARN", **more),), lifted={"c": "ada: seen"}).outcome == "approve"
