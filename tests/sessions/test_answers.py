"""What answers to a waiting session do: one on record is carried out, a design without a verdict is judged again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.event_order import order_damage
from reviews.audit.verify import verify_run
from reviews.gate.human_answers import answer_effect
from reviews.history.history import History
from reviews.history.people import last_question
from reviews.reviewers.checklist import Checklist
from reviews.reviewers.process import reviewer_proxy
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions.jobs.launcher import JobState
from sessions.pages.overview import is_waiting
from sessions.pages.report.next_steps import answers_to
from specs.system.digests import Digest
from specs.system.errors import ReviewerUnavailable, UserError
from specs.trail.entry import DESIGN
from specs.trail.verdict import Packet, Verdict
from testing.factories.bodies import append_json
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session

pytestmark = pytest.mark.integration

DIGEST = "sha256:" + "0" * 64


def answer(word: str) -> dict[str, Any]:
    return {"answer": word, "reason": "it was lost", "by": "ada", "expires": None}


class Away(Checklist):
    """Gives no verdict on the design the first times it is asked, as if it had been killed each time."""

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def review(self, packet: Packet, packet_digest: Digest) -> Verdict:
        if packet.stage == DESIGN and self.times:
            self.times -= 1
            raise ReviewerUnavailable("killed by signal 9", where="the reviewer's process")
        return super().review(packet, packet_digest)


class Unwilling(Checklist):
    """Judges the design and does not approve it."""

    def review(self, packet: Packet, packet_digest: Digest) -> Verdict:
        return super().review(packet, packet_digest).model_copy(update={"approve": False})


def entries_of(run: Path) -> list[RecordedEntry]:
    return read_entries(run / "trail.sqlite")


def keys(run: Path) -> list[str]:
    return [entry.key for entry in entries_of(run)]


def outcomes(run: Path) -> dict[str, str]:
    return {entry.key: entry.raw["outcome"] for entry in entries_of(run) if entry.kind == "decision"}


# ---- the design, judged again -------------------------------------------------------------------------------


def test_a_design_without_a_verdict_is_judged_again(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    reviewer = Away(2)
    drive(quick_session(run, reviewer=reviewer))
    drive(quick_session(run, reviewer=reviewer), answer("retry"))
    assert is_waiting(History(entries_of(run)))
    drive(quick_session(run, reviewer=reviewer), answer("retry"))
    assert entries_of(run)[-1].raw["decision"] == "approve"
    results = outcomes(run)
    assert [results[f"decision/design.{number}"] for number in (1, 2, 3)] == ["escalate", "escalate", "approve"]
    # No one has overridden anything, and all of it is derived again.
    assert not [key for key in keys(run) if key.startswith("override/")]
    audit = verify_run(run, "trail.sqlite", "store")
    assert (audit.exit_code, audit.damage) == (0, [])
    text = (run / "report" / "report.json").read_text(encoding="utf-8")
    assert '"overrides": 0' in text and '"outcome": "escalate"' not in text


def test_the_question_about_a_design_opens_nothing_by_itself(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, reviewer=Away()))
    entries = entries_of(run)
    resolved = History(entries, Store(run / "store")).resolved
    entry = last_question(History(entries))
    ways_out = answers_to(History(entries, Store(run / "store")), entry, "small")
    assert ways_out[0].effect.startswith("has the design reviewed once more") and len(ways_out) == 3
    # As older trails have it too, where such an answer ended the session.
    assert answer_effect(resolved, History(entries), entry, "retry") == {"opens": None, "waives": []}


def test_a_design_that_was_judged_is_not_judged_again(tmp_path: Path) -> None:
    """Otherwise asking often enough would find a mild reviewer."""
    run = open_quick(tmp_path)
    drive(quick_session(run, reviewer=Unwilling()))
    assert outcomes(run) == {"decision/design.1": "escalate"}
    before = keys(run)
    entries, store = entries_of(run), Store(run / "store")
    ways_out = answers_to(History(entries, store), last_question(History(entries)), "small")
    assert not [out for out in ways_out if "retry" in out.commands[0]]
    with pytest.raises(UserError, match=r"cannot answer 'retry': the design was judged"):
        drive(quick_session(run, reviewer=Unwilling()), answer("retry"))
    assert keys(run) == before
    drive(quick_session(run, reviewer=Checklist()), answer("stop"))
    assert entries_of(run)[-1].raw["decision"] == "stop"


def without_error(verdict: RecordedEntry) -> RecordedEntry:
    return replace(verdict, entry=verdict.entry.model_copy(update={"body": verdict.raw | {"error": ""}}))


def packets(*made: tuple[str, str, dict[str, Any]], of: list[RecordedEntry]) -> list[str]:
    """Return what the audit says of a trail with these entries at its end, in the place of those that are there."""
    entries = [
        recorded_entry
        for recorded_entry in of
        if recorded_entry.kind not in ("human", "close") and not recorded_entry.key.endswith("/design.2")
    ]
    for kind, key, body in made:
        entry = entries[-1].entry.model_copy(update={"kind": kind, "key": key, "seq": len(entries), "body": body})
        entries.append(replace(entries[-1], entry=entry))
    return list(order_damage(History(entries)))


def test_the_audit_finds_a_design_that_was_judged_again_without_need(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, reviewer=Away()))
    lost = entries_of(run)
    again = ("packet", "packet/design.2", {"stage": "design", "attempt": 2, "packet": DIGEST})
    answered = {"stage": None, "attempt": 1, "question": DIGEST, "reason": "", "by": "ada", "opens": None}
    wanted = ("human", "human/decision/design.1", answered | {"answer": "retry"})
    other = ("human", "human/decision/design.1", answered | {"answer": "approve"})
    assert packets(wanted, again, of=lost) == []
    for made in ((again,), (other, again)):
        (result,) = packets(*made, of=lost)
        assert result.endswith("no person wanted the design to be judged again")
    judged = [without_error(entry) if entry.key == "verdict/design.1" else entry for entry in lost]
    (result,) = packets(wanted, again, of=judged)
    assert result.endswith("the design had a verdict and was judged again")


# ---- the same evidence again --------------------------------------------------------------------------------


class LosingLauncher(QuickLauncher):
    """The first attempts at a stage are lost."""

    def __init__(self, stage: str, attempts: int) -> None:
        super().__init__()
        self.lost = {f"small.{stage}.{number}" for number in range(1, attempts + 1)}

    def poll(self, folder: Path) -> JobState:
        return JobState("lost") if folder.name in self.lost else super().poll(folder)


def repeated(run: Path) -> dict[str, int]:
    """Return the verdicts that repeat one of an earlier attempt, with its number."""
    results = {entry.key: entry.raw.get("same_as") for entry in entries_of(run) if entry.kind == "verdict"}
    return {key: same for key, same in results.items() if same is not None}


def test_a_verdict_that_is_repeated_verifies_though_figures_in_its_words_have_moved(tmp_path: Path) -> None:
    """The checks of an evaluation count how often the held-out split was evaluated; the evidence is the same."""
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=LosingLauncher("tuned", 3)))
    for _ in range(3):
        drive(quick_session(run, launcher=LosingLauncher("tuned", 3)), answer("retry"))
    assert repeated(run) == {"verdict/tuned.3": 2}
    audit = verify_run(run, "trail.sqlite", "store")
    assert (audit.exit_code, audit.damage) == (0, [])


@pytest.mark.parametrize(("times", "gives_up"), [(1, False), pytest.param(2, False, marks=pytest.mark.more), (3, True)])
def test_a_process_that_is_killed_while_a_verdict_is_repeated_is_replaced(
    tmp_path: Path, times: int, gives_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=LosingLauncher("base", 2)))
    real, remaining = reviewer_proxy.repeat, [times]

    def killed(*values: Any) -> Verdict:
        if remaining[0]:
            remaining[0] -= 1
            raise ReviewerUnavailable("the reviewer's process gave no answer: it ended")
        return real(*values)

    monkeypatch.setattr(reviewer_proxy, "repeat", killed)
    if gives_up:
        with pytest.raises(ReviewerUnavailable, match="it ended"):
            drive(quick_session(run, launcher=LosingLauncher("base", 2)), answer("retry"))
        # What is not signed is not recorded, and the next resume asks again.
        drive(quick_session(run, launcher=LosingLauncher("base", 2)))
    else:
        drive(quick_session(run, launcher=LosingLauncher("base", 2)), answer("retry"))
    assert repeated(run) == {"verdict/base.2": 1} and is_waiting(History(entries_of(run)))
    assert verify_run(run, "trail.sqlite", "store").damage == []


# ---- an answer that was recorded, and no more ---------------------------------------------------------------


def killed_after_the_answer(run: Path, word: str) -> None:
    """Leave what a kill leaves between the entry of an answer and what it opens."""
    session = quick_session(run, reviewer=Away())
    drive(session)
    entries = entries_of(run)
    entry = last_question(History(entries))
    resolved = History(entries, Store(run / "store")).resolved
    trail = Trail(run / "trail.sqlite", "small")
    body = {"stage": None, "attempt": 1, "question": entry.digest, **answer(word)}
    append_json(trail, "human", f"human/{entry.key}", body | answer_effect(resolved, History(entries), entry, word))
    trail.close()


@pytest.mark.parametrize(
    ("word", "closed"),
    [("retry", "approve"), pytest.param("approve", "overridden", marks=pytest.mark.more), ("stop", "stop")],
)
def test_an_answer_on_record_is_carried_out_by_the_next_resume(tmp_path: Path, word: str, closed: str) -> None:
    run = open_quick(tmp_path)
    killed_after_the_answer(run, word)
    assert not is_waiting(History(entries_of(run)))
    drive(quick_session(run))
    assert entries_of(run)[-1].raw["decision"] == closed
    assert keys(run).count("human/decision/design.1") == 1
    assert verify_run(run, "trail.sqlite", "store").damage == []


def test_an_answer_on_record_is_not_replaced_by_another(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    killed_after_the_answer(run, "approve")
    with pytest.raises(UserError, match=r"the answer is 'approve' already, given by ada"):
        drive(quick_session(run), answer("stop"))
    drive(quick_session(run), answer("approve"))
    assert entries_of(run)[-1].raw["decision"] == "overridden"
    assert list(order_damage(History(entries_of(run)))) == []
    *before, close = entries_of(run)
    lie = replace(close, entry=close.entry.model_copy(update={"body": close.raw | {"decision": "approve"}}))
    assert [text.partition(": ")[2] for text in order_damage(History([*before, lie]))] == [
        "says 'approve', and people decided over 1 gates or checks"
    ]
    report = json.loads((run / "report" / "report.json").read_bytes())
    assert report["result"].startswith("not accepted by every gate, ada decided 1 time over a gate or check: held-out")
    assert report["why"] == ["ada answered 'approve' at design.1: it was lost"]
