"""What a report says of pauses, kills, take-overs, lost jobs and trainings that went on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reviews.history.history import History
from reviews.trail.trail import Trail
from sessions.pages.report.timeline import interruptions
from specs.system.digests import digest_bytes
from specs.trail.entry import EntryKind
from testing.factories.bodies import append_json, body_of

OVER = {"epoch": 1, "by": "ada", "host": "pod-1", "pid": 7, "silent_s": 61.5}
LEASE: dict[str, Any] = {"epoch": 2, "host": "pod-2", "pid": 8, "over": None}
STEP = {"attempt": 1, "step": 6, "path": "jobs/small.sft.1/trainer/checkpoint-6", "digest": digest_bytes(b"step")}
ENDED = "the previous process was killed, or its machine stopped"


@pytest.fixture
def trail(tmp_path: Path) -> Trail:
    trail = Trail(tmp_path / "runs" / "small" / "trail.sqlite", "small")
    put(trail, "open")
    put(trail, "plan")
    return trail


def put(trail: Trail, kind: EntryKind, **answers: Any) -> None:
    append_json(trail, kind, f"{kind}/{trail.head().size if trail.find('open/0') else 0}", body_of(kind, **answers))


def list_interruptions(trail: Trail) -> list[str]:
    return [what for _, what in interruptions(History(trail.iterate()))]


def test_an_undisturbed_session_has_none(trail: Trail) -> None:
    put(trail, "launch")
    put(trail, "exit")
    assert list_interruptions(trail) == []


def test_a_pause_is_no_kill(trail: Trail) -> None:
    put(trail, "pause", by="bob")
    put(trail, "resume", by="ada", lease=LEASE)
    assert list_interruptions(trail) == ["paused by bob", "resumed by ada"]


@pytest.mark.parametrize("kind", ["decision", "budget"])
def test_neither_is_a_question_to_a_person(trail: Trail, kind: EntryKind) -> None:
    put(trail, kind, **({"outcome": "escalate"} if kind == "decision" else {}))
    put(trail, "resume", by="ada", lease=LEASE)
    put(trail, "human", answer="retry")
    assert list_interruptions(trail) == ["resumed by ada"]
    # The answer was recorded, and then nothing more was heard.
    put(trail, "resume", by="ada", lease=LEASE)
    assert ENDED in list_interruptions(trail)[1]


def test_a_killed_orchestrator_is_recognised_by_what_came_last(trail: Trail) -> None:
    put(trail, "resume", by="ada", lease=LEASE)
    assert list_interruptions(trail) == [f"resumed by ada: {ENDED}, after 'plan/1'"]


def test_what_people_record_meanwhile_does_not_hide_a_kill(trail: Trail) -> None:
    put(trail, "override")
    put(trail, "resume", by="ada", lease=LEASE)
    assert ENDED in list_interruptions(trail)[0] and "plan/1" in list_interruptions(trail)[0]


def test_a_take_over_says_from_whom(trail: Trail) -> None:
    put(trail, "resume", by="bob", lease=LEASE | {"over": OVER})
    assert list_interruptions(trail) == [
        "resumed by bob, taken over from ada, process 7 on pod-1, after 61.5 s without a sign of life"
    ]


def test_a_lost_job_says_why_in_harmless_words(trail: Trail) -> None:
    put(trail, "lost", why="the node \u001b[31mdied")
    assert list_interruptions(trail) == ["job small.sft.1 was lost: the node died"]


def test_a_training_that_goes_on_says_from_where(trail: Trail) -> None:
    put(trail, "launch", resumes=STEP)
    assert list_interruptions(trail) == ["job small.sft.1 resumes from step 6 of attempt 1"]
