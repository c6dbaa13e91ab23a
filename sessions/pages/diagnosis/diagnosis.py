"""The model of a diagnosis: terminal, JSON, report and plots all render this one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reviews.checks.definition import GateCheck, apply
from reviews.checks.remedies import remedy_of_result
from reviews.evidence.gather import gather
from reviews.history.history import History
from sessions.pages.diagnosis.actions import SuggestedAction, actions_for
from sessions.pages.diagnosis.attempts import Curves, TrainingAttempt, attempt_of, newest_of
from sessions.pages.diagnosis.causes import (
    CAUSES,
    DETECTORS,
    IN_WORDS,
    Cause,
    binding,
    detector_of,
    has_fired,
    steps_in,
)
from sessions.pages.diagnosis.five_whys import Why, whys_of
from sessions.pages.diagnosis.hypotheses import Hypothesis, hypotheses_of
from sessions.run.run_layout import STORE, TRAIL
from specs.session.session_spec import ResolvedSpec
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing, PeergateError, UserError
from specs.trail.verdict import CheckResult


class DetectorReading(NamedTuple):
    """What one detector found."""

    check: str
    title: str
    cause: Cause
    status: str
    blocking: bool
    detail: str
    figure: float | None
    threshold: str | None
    source: str
    lines: tuple[int, ...]
    """The visible lines of the stage's rows, counted from 1: line n is step n."""
    rows: tuple[dict[str, Any], ...]
    remedy: str
    recorded: bool
    """Whether the gate saw it; otherwise it was computed now, from the saved evidence."""


class Diagnosis(NamedTuple):
    """One attempt of a stage that trains."""

    stage: str
    attempt: int
    state: str
    cause: Cause | None
    """The class that binds; None where no detector fired."""
    check: str | None
    """The detector that says so."""
    description: str
    readings: tuple[DetectorReading, ...]
    absent: tuple[str, ...]
    """Detectors without a result: the attempt did not end, or this version cannot read its record."""
    whys: tuple[Why, ...]
    actions: tuple[SuggestedAction, ...]
    hypotheses: tuple[Hypothesis, ...]
    """What the attempts up to this one show of each other's causes."""
    curves: Curves

    @property
    def place(self) -> str:
        """Return ``stage.attempt``."""
        return f"{self.stage}.{self.attempt}"

    def marks(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return the detectors that fired with the steps that show it."""
        return [
            (reading.check, reading.lines)
            for reading in self.readings
            if reading.status in ("FAIL", "WARN") and reading.lines
        ]

    def as_json(self, *, curves: bool = True) -> dict[str, Any]:
        """Return the form of `diagnose --json`; a report holds it without the points of the curves."""
        results = self._asdict() | {
            "readings": [reading._asdict() for reading in self.readings],
            "whys": [why._asdict() for why in self.whys],
            "actions": [action._asdict() | {"worth": round(action.worth, 4)} for action in self.actions],
            "hypotheses": [hypothesis._asdict() for hypothesis in self.hypotheses],
            "curves": self.curves._asdict(),
        }
        if not self.hypotheses:
            # Reports of sessions that tested none stay as they were.
            del results["hypotheses"]
        return results if curves else {name: value for name, value in results.items() if name != "curves"}


def diagnose(run: Path, stage: str | None = None, number: int | None = None) -> list[Diagnosis]:
    """Diagnose the newest attempt of each stage that trains, or of the named stage.

    Detectors that the gate did not run, as before its end, are computed now where an exit is on
    record. Nothing is written.

    Raises:
        UserError: no such attempt of a stage that trains was planned.
    """
    history = History.read(run / TRAIL, run / STORE)
    return [
        _of(
            history,
            attempt_transcript,
            _complete_checks(run, history, attempt_transcript),
        )
        for attempt_transcript in (attempt_of(history, *place, run) for place in _chosen(history, stage, number))
    ]


def diagnose_from_trail(history: History) -> list[Diagnosis]:
    """Diagnose the newest attempts from trail and store alone: the same entries give the same diagnosis."""
    attempt_transcripts = (attempt_of(history, *place) for place in newest_of(history))
    return [
        _of(history, attempt_transcript, attempt_transcript.checks)
        for attempt_transcript in attempt_transcripts
        if attempt_transcript.checks or attempt_transcript.launched
    ]


def nothing_begun(run: Path) -> str:
    """Return why a session without a begun training has nothing to diagnose."""
    stages = History.read(run / TRAIL, run / STORE).resolved.spec.stages
    if training := [stage.name for stage in stages if kind_of(stage).trains]:
        return f"nothing to diagnose: no training was begun ({', '.join(training)})"
    scripts = [stage.name for stage in stages if kind_of(stage).runs_code]
    why = f"; a script, as in {', '.join(scripts)}, is judged by what it leaves: peergate report" if scripts else ""
    return f"nothing to diagnose: no stage of this session trains with a built-in trainer{why}"


def gate_line(stage: str, results: Sequence[CheckResult], session: str) -> str:
    """Return what the detectors say at the gate of a training, in one line."""
    message = _in_words(results)
    return f"  diagnosis of {stage}: {message}; `peergate diagnose {session} --stage {stage}` shows why"


def _chosen(history: History, stage: str | None, number: int | None) -> list[tuple[str, int]]:
    newest = newest_of(history)
    if number is not None and stage is None:
        raise UserError("--attempt needs --stage", hint="numbers of attempts are counted within a stage")
    if stage is None:
        return newest
    planned = [attempt.number for attempt in history.attempts(stage)]
    training = [stage.name for stage in history.resolved.spec.stages if kind_of(stage).trains]
    if stage not in training:
        raise UserError(
            f"'{stage}' is not a stage that trains", hint=f"stages that do: {', '.join(training) or 'none'}"
        )
    if not planned or number not in (None, *planned):
        what = f"attempt {number} of '{stage}'" if number is not None else f"'{stage}'"
        known = ", ".join(map(str, planned)) or "none yet"
        raise UserError(f"{what} was not begun", hint=f"attempts on record: {known}")
    return [(stage, number or max(planned))]


def _complete_checks(run: Path, history: History, attempt: TrainingAttempt) -> tuple[CheckResult, ...]:
    """Return the recorded results and, of an attempt that ended, those of detectors that the gate did not run."""
    have = {check.id for check in attempt.checks}
    if not attempt.ended:
        return attempt.checks
    missing = [gate_check for gate_check in _detectors(history.resolved, attempt.stage) if gate_check.id not in have]
    if not missing:
        return attempt.checks
    from reviews.gate.measurer import measure

    try:
        evidence = gather(run, history, attempt.stage, attempt.attempt)
    except PeergateError:
        return attempt.checks
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    now = (apply(check, evidence, metrics) for check in missing)
    # A witness that has not ended is not a lost one: only a gate says that.
    return (
        *attempt.checks,
        *(
            check_result
            for check_result in now
            if check_result.status != "BLOCKED" or not check_result.id.startswith("witness.")
        ),
    )


def _detectors(resolved: ResolvedSpec, stage: str) -> list[GateCheck]:
    # Imported here: all checks together take longer to import than `peergate status` takes otherwise.
    from reviews.gate.check_list import all_checks

    kind = kind_of(resolved.spec.stage(stage))
    return [check for check in all_checks(resolved) if check.id in DETECTORS and check.belongs_to(kind)]


def _of(history: History, attempt: TrainingAttempt, results: Sequence[CheckResult]) -> Diagnosis:
    sources = {gate_check.id: gate_check.source for gate_check in _detectors(history.resolved, attempt.stage)}
    seen_texts = {check.id for check in attempt.checks}
    every = [result for result in results if result.id in DETECTORS]
    every.sort(
        key=lambda check_result: (
            not has_fired(check_result),
            check_result.status == "WARN",
            CAUSES.index(detector_of(check_result).cause),
        )
    )
    first = binding(every)
    planned = sorted(planned_attempt.number for planned_attempt in history.attempts(attempt.stage))
    numbers = [number for number in planned if number <= attempt.attempt]
    return Diagnosis(
        stage=attempt.stage,
        attempt=attempt.attempt,
        state=_state(attempt),
        cause=detector_of(first).cause if first else None,
        check=first.id if first else None,
        description=_in_words(every) if every else "no check has run: the attempt has not reached its gate",
        readings=tuple(
            _reading(check_result, sources.get(check_result.id, ""), check_result.id in seen_texts)
            for check_result in every
        ),
        absent=tuple(sorted(sources.keys() - {check_result.id for check_result in every})),
        whys=whys_of(history, attempt, every),
        actions=actions_for(history, attempt, every),
        hypotheses=tuple(hypotheses_of([attempt_of(history, attempt.stage, number) for number in numbers])),
        curves=attempt.curves,
    )


def _state(attempt: TrainingAttempt) -> str:
    if attempt.checks:
        return "judged" if attempt.ended else "judged without an end"
    return "ended" if attempt.ended else "launched, without an end on record" if attempt.launched else "not launched"


def _in_words(results: Sequence[CheckResult]) -> str:
    first = binding(results)
    if first is None:
        return "no detector fired"
    suspected = "suspected: " if first.status == "WARN" else ""
    return f"{suspected}{IN_WORDS[detector_of(first).cause]} ({first.id}, {first.status})"


def _reading(check_result: CheckResult, source: str, recorded: bool) -> DetectorReading:
    return DetectorReading(
        check=check_result.id,
        title=check_result.title,
        cause=detector_of(check_result).cause,
        status=check_result.status,
        blocking=check_result.blocking,
        detail=check_result.detail,
        figure=check_result.figure,
        threshold=check_result.threshold,
        source=source,
        lines=steps_in(check_result),
        rows=check_result.rows,
        remedy=remedy_of_result(check_result) if has_fired(check_result) else "",
        recorded=recorded,
    )
