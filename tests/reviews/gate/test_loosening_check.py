"""What just failed is not loosened by a rule: a person does that, with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reviews.gate.loosening_check import amendment_checks
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from specs.jobs.job_records import JobOrder
from specs.session.session_spec import ResolvedSpec
from specs.trail.verdict import CheckResult
from testing.factories.bodies import append_json, body_of
from testing.factories.evidence_on_disk import N, answers
from testing.fixtures.quick_session import QuickLauncher, drive, healthy_rows, open_quick, quick_session, rows_with


def cut_off(order: JobOrder) -> list[dict[str, Any]]:
    return answers([False] * N, truncated=True) if order.kind == "evaluate" else healthy_rows(order)


class EndedAttempt:
    """A session that ended at a closed gate."""

    def __init__(self, folder: Path, rows: Any) -> None:
        self.run = open_quick(folder)
        drive(quick_session(self.run, launcher=QuickLauncher(rows)))
        self.entries: list[RecordedEntry] = list(read_entries(self.run / "trail.sqlite"))
        self.store = Store(self.run / "store")
        self.old = History(self.entries, self.store).resolved

    def loosens(self, section: str, **values: Any) -> CheckResult:
        """Return what is found of an amendment of some values of a section of the spec."""
        part = getattr(self.old.spec, section).model_copy(update=values)
        new: ResolvedSpec = self.old.model_copy(update={"spec": self.old.spec.model_copy(update={section: part})})
        return amendment_checks(History(self.entries, self.store), self.old, new, new.attempt_costs())[-1]


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> EndedAttempt:
    return EndedAttempt(tmp_path_factory.mktemp("cut"), cut_off)


@pytest.fixture(scope="module")
def null(tmp_path_factory: pytest.TempPathFactory) -> EndedAttempt:
    return EndedAttempt(tmp_path_factory.mktemp("null"), rows_with(1))


def test_a_threshold_that_just_failed_is_not_loosened_by_a_rule(cut: EndedAttempt) -> None:
    check = cut.loosens("thresholds", truncated_answers=0.99)
    assert (check.id, check.status, check.blocking, check.repairable) == ("amendment.loosens", "FAIL", True, False)
    assert "thresholds.truncated_answers from 0.25 to 0.99 after health.truncation at base" in check.detail
    assert "--override" in check.detail


@pytest.mark.parametrize("values", [{"truncated_answers": 0.1}, {"copies": 900}, {}], ids=["stricter", "other", "none"])
def test_what_is_stricter_or_did_not_fail_may_be_amended(cut: EndedAttempt, values: dict[str, Any]) -> None:
    assert cut.loosens("thresholds", **values).status == "PASS"


@pytest.mark.parametrize(
    ("values", "status"),
    [({"alpha": 0.5}, "FAIL"), ({"alpha": 0.01}, "PASS"), ({"minimum_effect": 0.05}, "FAIL"), ({"power": 0.5}, "FAIL")],
)
def test_the_analysis_is_not_loosened_after_a_null(null: EndedAttempt, values: dict[str, Any], status: str) -> None:
    assert null.loosens("analysis", **values).status == status
    assert null.loosens("thresholds", truncated_answers=0.99).status == "PASS"


def test_what_a_person_let_pass_has_not_just_failed(tmp_path: Path) -> None:
    ended = EndedAttempt(tmp_path, cut_off)
    trail = Trail(ended.run / "trail.sqlite", ended.run.name)
    question = ended.entries[-1].digest
    append_json(
        trail, "human", "human/99", body_of("human", stage="base", attempt=1, answer="approve", question=question)
    )
    ended.entries = list(trail.iterate())
    trail.close()
    assert ended.loosens("thresholds", truncated_answers=0.99).status == "PASS"


def test_an_opened_gate_is_no_failure(tmp_path: Path) -> None:
    healthy = EndedAttempt(tmp_path, healthy_rows)
    assert healthy.loosens("thresholds", truncated_answers=0.99).status == "PASS"
    assert healthy.loosens("analysis", alpha=0.5).status == "PASS"
