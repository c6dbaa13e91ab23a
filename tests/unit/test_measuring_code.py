"""The code that measures is registered with the spec: a change of it on the way closes the gate, the audit sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews import measure
from reviews.audit import verify_run
from reviews.checks import registration
from reviews.collect import gather
from reviews.events import code_damage
from reviews.store import Store
from reviews.trail import Recorded, read_entries
from sessions.amend import amend
from sessions.overview import overview
from tests.fixtures.quick_session import Silent, drive, open_quick, quick_session
from tests.unit.evidence_on_disk import evidence_of

CHANGED = "training/text/cleaning.py"
REST = measure._own_code()  # pyright: ignore[reportPrivateUsage]


def other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the process measure with another version of one file."""
    monkeypatch.setattr(measure, "_own_code", lambda: REST | {CHANGED: "sha256:" + "1" * 64})


def checked(run: Path, stage: str) -> dict[str, Any]:
    key = f"checks/{stage}.1"
    entry = next(one for one in read_entries(run / "trail.sqlite") if one.entry.key == key)
    results = Store(run / "store").get_value(entry.body["checks"])
    return next(one for one in results if one["id"] == "registration.code")


def damage(run: Path) -> list[str]:
    return verify_run(run, "trail.sqlite", "store").damage


@pytest.fixture
def changed_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a session whose second gate was judged by other code than its first."""
    run = open_quick(tmp_path)
    session = quick_session(run)

    def at_the_second(*_: Any) -> None:
        if any(one.entry.key == "decision/base.1" for one in session.trail.iterate("decision")):
            other_code(monkeypatch)

    launcher: Any = session.launcher
    before = launcher.start

    def start(folder: Path) -> None:
        at_the_second()
        before(folder)

    launcher.start = start
    drive(session)
    return run


def test_failure_18_a_metric_that_is_changed_on_the_way_closes_the_gate(changed_on_the_way: Path) -> None:
    run = changed_on_the_way
    assert (checked(run, "base")["status"], checked(run, "sample")["status"]) == ("PASS", "FAIL")
    # It says which file it was, and a person is asked: the evidence is there, and nobody may judge it by this code.
    assert [row["file"] for row in checked(run, "sample")["shown"]] == [CHANGED]
    assert overview(run).state == "waiting" and any("registration.code" in one for one in overview(run).reasons)
    assert damage(run) == []


def test_an_amendment_puts_the_change_before_the_reviewer_and_makes_the_result_exploratory(
    changed_on_the_way: Path,
) -> None:
    run = changed_on_the_way
    display: Any = Silent()
    recorded = amend(run, run.parents[1] / "spec.yaml", "ada", "a fault in the cleaning was mended", False, display)
    (change,) = recorded.body["changes"]
    assert (change["pointer"], change["after"]) == ("/measuring_code", measure.measuring_code())
    assert recorded.body["outcome"] == "approve" and recorded.body["exploratory"]
    drive(quick_session(run), {"answer": "retry", "reason": "amended", "by": "ada", "expires": None})
    entries = read_entries(run / "trail.sqlite")
    again = gather(run, entries, Store(run / "store"), "sample", 2)
    assert registration._code(again, None).status == "PASS"  # pyright: ignore[reportPrivateUsage]
    assert overview(run).state == "closed" and damage(run) == []


def told(one: Recorded, body: dict[str, Any]) -> Recorded:
    return one._replace(entry=one.entry.model_copy(update={"body": body}))


def forged(entries: list[Recorded], change: Callable[[dict[str, Any]], None]) -> list[Recorded]:
    """Return entries in which each decision has another body."""
    found: list[Recorded] = []
    for one in entries:
        body = dict(one.body)
        if one.entry.kind == "decision" and body["stage"] is not None:
            change(body)
        found.append(told(one, body))
    return found


def test_the_audit_sees_an_approval_by_code_that_nobody_registered(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run))
    entries = read_entries(run / "trail.sqlite")
    assert overview(run).state == "closed" and [*code_damage(entries)] == []
    other = forged(entries, lambda body: body.update(code="sha256:" + "2" * 64))
    assert len([*code_damage(other)]) == sum(one.entry.key.startswith("decision/") for one in entries) - 1
    assert "approves by the measuring code sha256:222" in next(code_damage(other))
    # What closes nothing, and trails of before, are not asked.
    assert [*code_damage(forged(other, lambda body: body.update(outcome="escalate")))] == []
    opened = dict(entries[0].body)
    del opened["measured_by"]
    assert [*code_damage([told(entries[0], opened), *other[1:]])] == []


def test_a_trail_that_does_not_tell_its_code_is_not_judged_by_it(tmp_path: Path) -> None:
    found = registration._code(evidence_of(tmp_path, "base"), None)  # pyright: ignore[reportPrivateUsage]
    assert found.status == "NOT_APPLICABLE"
