"""Which attempt may go on from what another one saved, and that the audit notices one that did and may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reviews.audit.event_order import launch_damage
from reviews.evidence.resumable_steps import same_work, sources, takeover_damage
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from reviews.trail.chain.store import Store
from specs.jobs.grant_and_claim import Grant
from specs.jobs.job_records import Artifact, ExitRecord, JobOrder, ResumeStep
from specs.system.digests import digest_bytes
from specs.trail.entry import GENESIS, Entry
from specs.trail.session_bodies import LaunchEntry
from training.running_code import code_digest

STEP = ResumeStep(attempt=1, step=6, path="jobs/small.train.1/trainer/checkpoint-6", digest=digest_bytes(b"step"))


def order(attempt: int, *, resumes: ResumeStep | None = None, **changes: Any) -> JobOrder:
    inputs = changes.pop("inputs", {"model": digest_bytes(b"model"), "examples": digest_bytes(b"examples")})
    grant = Grant(
        session="small",
        stage="train",
        attempt=attempt,
        kind=changes.pop("kind", "sft"),
        task="format_instructions",
        registration=changes.pop("registration", digest_bytes(b"registered")),
        parameters=changes.pop("granted", digest_bytes(b"parameters")),
        inputs=inputs,
        model=inputs["model"],
        price_cap_usd=0.1 * attempt,
        max_seconds=60,
        decision=digest_bytes(f"decision {attempt}".encode()),
        issued=float(attempt),
        expires=attempt + 1.0,
    )
    return JobOrder(
        key=grant.key(),
        kind=grant.kind,
        parameters=changes.pop("parameters", {"seed": 7}),
        inputs={
            role: Artifact(name=role, path=f"{attempt}/{role}", digest=digest, bytes=attempt)
            for role, digest in inputs.items()
        },
        task=grant.task,
        grant=grant,
        code=code_digest(),
        max_seconds=60,
        resumes=resumes,
        **changes,
    )


class Scenario:
    """A trail that is only said."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.entries: list[RecordedEntry] = []

    def add(self, kind: Any, key: str, body: dict[str, Any]) -> RecordedEntry:
        seq = len(self.entries)
        entry = Entry(seq=seq, kind=kind, session="small", key=key, time_ns=str(seq), previous=GENESIS, body=body)
        self.entries.append(RecordedEntry(entry, digest_bytes(key.encode())))
        return self.entries[-1]

    def launch(self, job_order: JobOrder, **changes: Any) -> RecordedEntry:
        report = {} if job_order.resumes is None else {"resumes": job_order.resumes.model_dump(mode="json")}
        body = (
            self.at(job_order)
            | {"order": self.store.put_value(job_order), "grant": job_order.grant.content_digest(), "launcher": "local"}
            | report
            | changes
        )
        self.add("grant", f"grant/{job_order.key}", job_order.grant.model_dump(mode="json"))
        return self.add("launch", f"launch/{job_order.key}", body)

    def lost(self, job_order: JobOrder) -> None:
        self.add("lost", f"lost/{job_order.key}", self.at(job_order))

    def ended(self, job_order: JobOrder, reason: Any, code: int) -> None:
        record = ExitRecord(
            key=job_order.key, code=code, reason=reason, started=1.0, ended=2.0, host="here", log=digest_bytes(b"")
        )
        remaining = {"exit": self.store.put_value(record), "manifest": None, "outputs": {}, "log": digest_bytes(b"")}
        self.add("exit", f"exit/{job_order.key}", self.at(job_order) | remaining)

    def at(self, job_order: JobOrder) -> dict[str, Any]:
        return {"key": job_order.key, "stage": job_order.grant.stage, "attempt": job_order.grant.attempt}

    def attempts(self, now: JobOrder) -> list[int]:
        return [job_order.grant.attempt for job_order in sources(History(self.entries, self.store), now)]


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path / "store")


def test_a_lost_attempt_with_the_same_work_may_be_taken_over(scenario: Scenario) -> None:
    scenario.launch(order(1))
    assert scenario.attempts(order(2)) == [], "it has not ended"
    scenario.lost(order(1))
    assert scenario.attempts(order(2)) == [1]


@pytest.mark.parametrize(
    ("reason", "code", "allowed"),
    [
        ("signal", -9, True),
        ("cancelled", -15, True),
        ("dead_man", -15, True),
        # What failed by itself would fail again, and what used up its time would have more than was registered.
        ("exited", 1, False),
        ("exited", 0, False),
        ("timeout", -15, False),
        # Scenario to end, it ended well: what it left was judged.
        ("cancelled", 0, False),
    ],
)
def test_only_what_was_ended_from_outside_leaves_something(
    scenario: Scenario, reason: str, code: int, allowed: bool
) -> None:
    scenario.launch(order(1))
    scenario.ended(order(1), reason, code)
    assert scenario.attempts(order(2)) == ([1] if allowed else [])


@pytest.mark.parametrize(
    "changed",
    [
        {"granted": digest_bytes(b"other parameters")},
        {"parameters": {"seed": 8}},
        {"inputs": {"model": digest_bytes(b"other"), "examples": digest_bytes(b"examples")}},
        {"inputs": {"model": digest_bytes(b"model"), "examples": digest_bytes(b"other")}},
        {"registration": digest_bytes(b"amended")},
        {"model_kind": "base"},
    ],
)
def test_other_work_takes_nothing_over(scenario: Scenario, changed: dict[str, Any]) -> None:
    assert same_work(order(1), order(2)) and not same_work(order(1), order(2, **changed))
    scenario.launch(order(1))
    scenario.lost(order(1))
    assert scenario.attempts(order(2, **changed)) == []


def test_a_kind_that_saves_no_steps_takes_nothing_over(scenario: Scenario) -> None:
    scenario.launch(order(1, kind="evaluate"))
    scenario.lost(order(1, kind="evaluate"))
    assert scenario.attempts(order(2, kind="evaluate")) == []


def test_attempts_in_a_row_may_be_taken_over_and_nothing_before_a_gap(scenario: Scenario) -> None:
    scenario.launch(order(1))
    scenario.ended(order(1), "exited", 1)
    for attempt in (2, 3):
        scenario.launch(order(attempt))
        scenario.lost(order(attempt))
    # Granted, and never launched: nothing was saved there, and nothing stands between.
    scenario.add("grant", "grant/small.train.4", order(4).grant.model_dump(mode="json"))
    assert scenario.attempts(order(5)) == [3, 2]


def test_the_audit_notices_what_was_taken_over_and_may_not(scenario: Scenario) -> None:
    scenario.launch(order(1))
    scenario.lost(order(1))
    good = order(2, resumes=STEP)
    launch = scenario.launch(good)
    assert (
        list(takeover_damage(History(scenario.entries, scenario.store), as_entry_of(launch, LaunchEntry), good)) == []
    )
    assert launch_damage_of(scenario) == []
    for wrong, told_resumes, expected in (
        (order(3, resumes=STEP), {}, "allowed: none"),
        (good, {"resumes": STEP.model_copy(update={"step": 3}).model_dump(mode="json")}, "its order says"),
        (order(2), {"resumes": STEP.model_dump(mode="json")}, "its order says None"),
        (good, {"resumes": None}, "says that the job continues from None"),
        (order(2, resumes=STEP.model_copy(update={"attempt": 2})), {}, "continues from attempt 2; allowed: [1]"),
    ):
        other = Scenario(scenario.store.root)
        other.launch(order(1))
        if wrong.grant.attempt == 2:
            other.lost(order(1))
        entry = other.launch(wrong, **told_resumes)
        results = list(takeover_damage(History(other.entries, other.store), as_entry_of(entry, LaunchEntry), wrong))
        assert len(results) == 1 and expected in results[0], results
        assert results[0] in launch_damage_of(other)


def launch_damage_of(scenario: Scenario) -> list[str]:
    """Return what the audit has against takeovers; its other questions need a registered spec."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(History, "resolved", None)
        patched.setattr(History, "registration", order(1).grant.registration)

        def nothing(*_: object) -> list[str]:
            return []

        patched.setattr("reviews.audit.event_order._grant_damage", nothing)
        return [
            text for text in launch_damage(History(scenario.entries, scenario.store)) if "was ordered with" not in text
        ]
