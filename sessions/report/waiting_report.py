"""The report of a session that waits for a person: what it asks, why, and what each answer does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reviews.gate.human_answers import last_question, waits_for_budget, why_no_retry
from reviews.trail.envelope import Recorded
from sessions.report.overview import is_waiting, waits_for_verdict
from specs.text import plain


def question(entries: Sequence[Recorded]) -> Recorded | None:
    """Return the entry a person is asked about; None where nobody is asked, or for a verdict."""
    every = list(entries)
    if not is_waiting(every) or waits_for_verdict(every) is not None:
        return None
    return waits_for_budget(every) or last_question(every, "")


def result_of(asked: Recorded) -> str:
    """Say in one sentence why the session waits."""
    stage = asked.body.get("stage") or "design"
    match asked.entry.kind:
        case "budget":
            return f"interim, after the gate of '{stage}': the session waits for a larger budget"
        case "retraction":
            return "interim: a judgement was taken back, and a person is asked how to go on"
        case "plan":
            return f"interim: at '{stage}' the builder asks a person how to go on"
        case _:
            return f"interim: the gate of '{stage}' stays closed, and a person is asked how to go on"


def answers_to(entries: Sequence[Recorded], asked: Recorded, name: str) -> list[dict[str, Any]]:
    """Return what a person can do: the commands, and what follows from them."""
    stop = _answer("ends the session here, with its report", f"peergate resume {name} --answer stop --reason WHY")
    if asked.entry.kind == "budget":
        amend = f"peergate amend {name} SPEC --reason WHY"
        return [_answer("gives it a larger budget, on record", amend, f"peergate resume {name}"), stop]
    again = (
        "runs the stage once more: for a job that broke or was lost. With the same parameters and seed the rows are "
        "the same, and what they closed stays closed"
        if asked.body.get("stage")
        else "has the design reviewed once more: there is no verdict on it"
    )
    retry = _answer(again, f"peergate resume {name} --answer retry --reason WHY")
    lift = _answer(
        "goes on over the gate in your name, which the trail and every report count as an override",
        f"peergate override {name} --gate --reason WHY",
    )
    return [*([] if why_no_retry(entries, asked) else [retry]), lift, stop]


def _answer(effect: str, *commands: str) -> dict[str, Any]:
    return {"commands": list(commands), "effect": effect}


def reasons_of(asked: Recorded) -> list[str]:
    """Return why a person is asked."""
    return [plain(str(reason), 500) for reason in asked.body.get("reasons") or [asked.body.get("reason", "")] if reason]
