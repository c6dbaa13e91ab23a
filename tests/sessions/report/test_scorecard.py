"""The scorecard says of each registered claim how much is shown, and never more than the trail does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reviews.acceptance.scorecard import Scorecard, scorecard_of
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages.report.consult_context import ConsultContext
from sessions.pages.report.page_result import page_scorecard
from sessions.pages.report.report_check import ReportCheck
from sessions.requests.review_functions import adversarial_review
from sessions.run.run_layout import STORE, TRAIL
from specs.system.digests import digest_bytes
from specs.trail.entry import Entry, EntryKind
from specs.trail.requested_review import AdversarialAnswer, AdversarialRequest
from testing.factories.bodies import body_of
from testing.fixtures.command_sessions import called

CLAIMS = ["H-1", "base.thresholds", "sample.thresholds", "train.thresholds", "ship.thresholds"]


class Copied(NamedTuple):
    """The trail of an accepted session, to change in memory, with a store of its own."""

    entries: list[RecordedEntry]
    store: Store

    def card(self) -> Scorecard:
        return scorecard_of(History(self.entries, self.store))

    def statuses(self) -> dict[str, str]:
        return {row.id: row.status for row in self.card().rows}

    def at(self, key: str) -> int:
        return next(place for place, entry in enumerate(self.entries) if entry.key == key)

    def change(self, key: str, **body: Any) -> None:
        place = self.at(key)
        entry = self.entries[place].entry
        self.entries[place] = _recorded(entry.model_copy(update={"body": {**entry.body, **body}}))

    def change_stored(self, key: str, name: str, change: Callable[[Any], Any]) -> None:
        value = self.store.get_value(self.entries[self.at(key)].raw[name])
        self.change(key, **{name: self.store.put_value(change(value))})

    def add(self, kind: EntryKind, before: str, **body: Any) -> None:
        """Put an entry in front of another, whose number moves."""
        place, last = self.at(before), self.entries[self.at(before)].entry
        made = last.model_copy(update={"kind": kind, "key": f"{kind}/new", "body": body_of(kind, **body)})
        later = [entry.entry.model_copy(update={"seq": entry.seq + 1}) for entry in self.entries[place:]]
        self.entries[place:] = [_recorded(made), *map(_recorded, later)]


def _recorded(entry: Entry) -> RecordedEntry:
    return RecordedEntry(entry, digest_bytes(entry.canonical()))


@pytest.fixture(scope="module")
def recorded(closed_quick: Path, tmp_path_factory: pytest.TempPathFactory) -> Copied:
    """The entries of a closed session and a copy of its store, in which changed values have names of their own."""
    store = shutil.copytree(closed_quick / STORE, tmp_path_factory.mktemp("scorecard") / STORE)
    return Copied(list(read_entries(closed_quick / TRAIL)), Store(store))


@pytest.fixture
def copied(recorded: Copied) -> Copied:
    return Copied(list(recorded.entries), recorded.store)


def _warned(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    id = next(result["id"] for result in results if result["blocking"] and result["status"] == "PASS")
    return [result | {"status": "WARN"} if result["id"] == id else result for result in results]


def _missed(metric: str, value: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(packet: dict[str, Any]) -> dict[str, Any]:
        rows = packet["criteria"]
        changed = {"value": value, "met": False, "counts": None}
        return packet | {"criteria": [row | changed if row["criterion"]["metric"] == metric else row for row in rows]}

    return change


def test_an_accepted_session_shows_what_it_registered_and_names_the_entry_that_decided(copied: Copied) -> None:
    card = copied.card()
    assert [row.id for row in card.rows] == CLAIMS and set(copied.statuses().values()) == {"shown"}
    assert card.line() == "5 shown, 0 partly, 0 not shown"
    first = card.rows[0]
    decided = copied.entries[copied.at("decision/tuned.1")]
    assert (first.entry, first.evidence) == (decided.seq, decided.raw["decision"])
    assert "accuracy_gain >= 0.8: 12 of 12" in first.why and first.scope.endswith("seed 7, cpu")


def _lift(copy: Copied) -> None:
    checks = {"check": "training.gradient", "condition": None, "stage": "train", "by": "me", "reason": "I know better"}
    copy.add("override", "decision/train.1", expires=None, **checks)


LIMITS: dict[str, tuple[Callable[[Copied], None], set[str]]] = {
    "a check that was lifted": (_lift, {"H-1", "train.thresholds"}),
    "a check that only warned": (lambda copy: copy.change_stored("checks/train.1", "checks", _warned), {"H-1"}),
    "a gate that a person opened": (
        lambda copy: copy.add("human", "decision/tuned.1", answer="approve", stage="sample", attempt=1),
        {"H-1"},
    ),
    "an amendment after data": (
        lambda copy: copy.add(
            "amendment",
            "decision/tuned.1",
            exploratory=True,
            outcome="approve",
            overridden=False,
            spec=copy.entries[0].raw["spec"],
        ),
        set(CLAIMS),
    ),
    "a further look at the held-out split": (
        lambda copy: copy.add("launch", "decision/tuned.1", stage="tuned", attempt=2),
        {"H-1"},
    ),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_what_limits_a_claim_takes_it_down(copied: Copied, limit: str) -> None:
    change, lowered = LIMITS[limit]
    change(copied)
    assert {id for id, status in copied.statuses().items() if status == "partly"} == lowered
    assert "not shown" not in copied.statuses().values()
    assert all(bool(row.limits) == (row.id in lowered) for row in copied.card().rows)


@pytest.mark.parametrize("outcome", ["reject", "escalate", "revise", "null"])
@pytest.mark.parametrize("stage", ["base", "sample", "train", "tuned", "ship"])
def test_what_no_gate_approved_is_not_shown(copied: Copied, stage: str, outcome: str) -> None:
    copied.change(f"decision/{stage}.1", outcome=outcome)
    of_stage = "H-1" if stage == "tuned" else f"{stage}.thresholds"
    # Thresholds hold at a gate that found nothing but the hypothesis unmet.
    assert copied.statuses()[of_stage] == ("shown" if outcome == "null" and stage != "tuned" else "not shown")


def test_an_approval_that_was_taken_back_shows_nothing(copied: Copied) -> None:
    since = copied.entries[copied.at("decision/tuned.1")].seq
    copied.add("retraction", "report", since=since, stage="tuned", attempt=1)
    assert copied.statuses()["H-1"] == "not shown"


def test_a_smaller_gain_is_a_part_of_the_claim_only_where_the_evidence_was_sound(copied: Copied) -> None:
    copied.change_stored("packet/tuned.1", "packet", _missed("accuracy_gain", 0.5))
    copied.change("decision/tuned.1", outcome="null")
    assert copied.statuses()["H-1"] == "partly"
    copied.change("decision/tuned.1", outcome="reject")
    assert copied.statuses()["H-1"] == "not shown"
    copied.change("decision/tuned.1", outcome="null")
    copied.change_stored("packet/tuned.1", "packet", _missed("accuracy_gain", -0.5))
    assert copied.statuses()["H-1"] == "not shown"


def test_a_difference_without_significance_is_not_shown(copied: Copied) -> None:
    copied.change_stored("packet/tuned.1", "packet", _missed("mcnemar_p", 0.2))
    copied.change("decision/tuned.1", outcome="null")
    assert copied.statuses()["H-1"] == "not shown"


def test_thresholds_that_are_met_in_part_are_shown_in_part(copied: Copied) -> None:
    copied.change_stored("packet/sample.1", "packet", _missed("accepted", 0.0))
    assert copied.statuses()["sample.thresholds"] == "partly"


def test_the_device_is_that_of_the_jobs_record(copied: Copied) -> None:
    copied.change_stored("exit/small.tuned.1", "manifest", lambda report: report | {"device": "cuda:0"})
    scopes = {row.id: row.scope for row in copied.card().rows}
    assert scopes["H-1"].endswith("cuda:0") and scopes["train.thresholds"].endswith("cpu")
    del copied.entries[copied.at("exit/small.tuned.1")]
    assert copied.card().rows[0].scope.endswith("seed 7")


def test_report_page_and_status_show_one_scorecard(closed_quick: Path) -> None:
    entries, store = list(read_entries(closed_quick / TRAIL)), Store(closed_quick / STORE)
    data = json.loads(json.dumps(scorecard_of(History(entries, store)).as_json()))
    report = json.loads((closed_quick / "report" / "report.json").read_bytes())
    # The report's own entry, and the close behind it, add nothing.
    assert report["scorecard"] == page_scorecard(History(entries, store)) == data
    assert page_scorecard(History(entries[:-1], store)) is None
    process = called("status", closed_quick)
    assert "scorecard: 5 shown, 0 partly, 0 not shown" in process.stdout
    assert json.loads(called("status", closed_quick, "--json").stdout)["scorecard"] == data
    markdown = (closed_quick / "report" / "report.md").read_text(encoding="utf-8")
    assert "<b>5 shown, 0 partly, 0 not shown</b>" in markdown


def test_a_report_that_claims_more_is_found_by_the_audit_and_by_an_adversarial_review(
    closed_quick: Path, tmp_path: Path
) -> None:
    run = tmp_path / "small"
    shutil.copytree(closed_quick, run)
    path = run / "report" / "report.md"
    text = path.read_text(encoding="utf-8")
    assert ReportCheck(run, History.read(run / TRAIL, run / STORE), apart=True).problems == []
    path.write_text(text.replace(" is better than ", " is much better than "), encoding="utf-8")
    problems = ReportCheck(run, History.read(run / TRAIL, run / STORE), apart=True).problems
    assert any("is much better" in problem for problem in problems)
    answer = adversarial_review(AdversarialRequest(path=str(run)), ConsultContext(runs=tmp_path / "runs")).answer
    assert isinstance(answer, AdversarialAnswer)
    assert any(row.status == "contradicted" and "is much better" in row.claim for row in answer.scorecard)
