"""What a person can do where a gate stays closed: commands with their effect, and what could be changed, by check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reviews.checks.job_endings import ending_of_record, log_lines
from reviews.checks.remedies import remedy_of
from reviews.evidence.weight_lineage import is_trained
from reviews.gate.decide import JOB_EXIT
from reviews.gate.human_answers import is_without_verdict, why_no_retry
from reviews.history.history import History
from reviews.history.people import Question
from reviews.history.recorded_history import is_in_force
from reviews.trail.chain.envelope import RecordedEntry
from sessions.pages.overview import waits_for_verdict
from sessions.pages.result import question
from specs.session_words import session_words
from specs.stages.registry import kind_of
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import AmendmentEntry, DecisionEntry, OverrideEntry
from specs.trail.session_bodies import BudgetEntry
from specs.trail.verdict import CheckResult


class WayOut(NamedTuple):
    """One thing that a person can do where a session stands still."""

    effect: str
    commands: tuple[str, ...]
    """The commands to type, one after the other; words in capitals are placeholders."""
    answer: str = ""
    """Names it where a page can have it done by a button."""

    def as_json(self) -> dict[str, Any]:
        """Return its form in reports and in `--json`."""
        return {"commands": list(self.commands), "effect": self.effect, "answer": self.answer}


class CheckRemedy(NamedTuple):
    """What could be changed against a check that closed a gate."""

    check: str
    remedy: str


_MAY_DIFFER = ("jobs", "witness", "provenance", "claims", "registration")
"""Groups of checks about what happened around the rows: another attempt may pass them with the same rows."""


def waiting_for(history: History, run: Path) -> dict[str, Any]:
    """Return whom an open session waits for, since which entry, and what can be done, as `peergate status` says it."""
    named, request, packet = session_words(run), question(history), waits_for_verdict(history)
    if packet is not None:
        show, give_it = f"peergate review show {named}", f"peergate review give {named} --file VERDICT.json"
        give = WayOut("judges the gate", (show, give_it))
        return {
            "whom": "a person, for a verdict",
            "since": packet.seq,
            "answers": [give],
            "packet": packet.body.packet,
        }
    if request is None:
        resume = WayOut("continues where it stopped", (f"peergate resume {named}",), "resume")
        return {"whom": "no one: no process runs it", "since": history[-1].seq, "answers": [resume]}
    since = request.seq
    return {"whom": "a person", "since": since, "answers": answers_to(history, request, named)}


def answers_to(history: History, request: RecordedEntry[Question], name: str) -> list[WayOut]:
    """Return what a person can do: commands, with the session as ``name`` in them, and their effect."""
    answer = f"peergate resume {name} --answer {{}} --reason WHY"
    stop = WayOut("ends the session here, with its report", (answer.format("stop"),), "stop")
    if isinstance(request.body, BudgetEntry):
        amend = f"peergate amend {name} --max-cost USD --reason WHY"
        return [WayOut("gives it a larger budget, on record", (amend, f"peergate resume {name}"), "budget"), stop]
    again = (
        "runs the stage once more: for a job that broke or was lost. With the same parameters and seed the rows are "
        "the same, and what they closed stays closed"
        if request.body.stage
        else "has the design reviewed once more: it has no verdict"
    )
    retry = WayOut(again, (answer.format("retry"),), "retry")
    lift = WayOut(
        "continues over the gate in your name, which the trail and every report count as an override",
        (f"peergate override {name} --gate --reason WHY",),
        "approve",
    )
    idle = why_no_retry(history, request) or why_the_same(history, request)
    return [*([] if idle else [retry]), lift, stop]


def why_the_same(history: History, request: RecordedEntry) -> str:
    """Return why another attempt would be judged as this one was; empty where it may be judged otherwise."""
    if not isinstance(request.body, DecisionEntry) or request.body.stage is None:
        return ""
    attempt = history.attempt(request.body.stage, request.body.attempt)
    record = attempt.exit_record
    if record is None or record.code != 0 or attempt.verdict is None or is_without_verdict(attempt.verdict):
        return ""
    later = history[request.seq + 1 :]
    if later.of(OverrideEntry) or any(map(is_in_force, later.of(AmendmentEntry))):
        return ""
    planned = history.resolved.spec.stage(attempt.stage)
    if planned.ranges or kind_of(planned).runs_code:
        return ""
    closing = _closing(attempt.check_results)
    if any(check_result.status != "FAIL" or check_result.id.split(".")[0] in _MAY_DIFFER for check_result in closing):
        return ""
    return "with the same parameters and seed the rows are the same, and what they closed stays closed"


def remedies(history: History) -> list[CheckRemedy]:
    """Return what could be changed, for each check that closed the last gate; empty if it was opened."""
    last = history.newest(DecisionEntry)
    if last is None or last.body.outcome not in ("reject", "escalate"):
        return []
    attempt = history.attempt(last.body.stage or DESIGN, last.body.attempt)
    closing = _closing(attempt.check_results)
    exit_check = next((check for check in closing if check.id == JOB_EXIT), None)
    if exit_check is not None and exit_check.status == "FAIL" and attempt.exit_record is not None:
        # All else follows from it.
        return [CheckRemedy(JOB_EXIT, ending_of_record(attempt.exit_record, "\n".join(log_lines(exit_check))).remedy)]
    trained = has_training(history, attempt.stage)
    return [CheckRemedy(check.id, remedy) for check in closing if (remedy := remedy_of(check.id, trained=trained))]


def has_training(history: History, stage: str) -> bool:
    """Return whether a stage is about weights that the session trains; the design gate is about all stages."""
    spec = history.resolved.spec
    return all(is_trained(spec, named) for named in spec.stages if named.name == stage)


def _closing(checks: Sequence[CheckResult]) -> list[CheckResult]:
    return [check for check in checks if check.closes]
