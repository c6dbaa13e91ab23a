"""The model of a diagnosis: terminal, JSON, report and plots all render this one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reviews.checks.definition import Check, apply
from reviews.checks.remedies import remedy_of_result
from reviews.evidence.gather import gather, registered_spec
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.diagnosis.actions import Action, actions_for
from sessions.diagnosis.attempts import Attempt, Curves, attempt_of, newest_of
from sessions.diagnosis.causes import CAUSES, DETECTORS, IN_WORDS, Cause, binding, detector_of, fired, steps_in
from sessions.diagnosis.five_whys import Why, whys_of
from sessions.diagnosis.hypotheses import Hypothesis, hypotheses_of
from sessions.run.run_layout import STORE, TRAIL
from specs.errors import EvidenceMissing, PeergateError, UserError
from specs.session.session_spec import ResolvedSpec
from specs.stages.registry import kind_of
from specs.trail.verdict import CheckResult


class Reading(NamedTuple):
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
    """Of the stage's rows, counted from 1, as far as they were shown: line n is step n."""
    shown: tuple[dict[str, Any], ...]
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
    told: str
    readings: tuple[Reading, ...]
    absent: tuple[str, ...]
    """Detectors without a result: the attempt did not end, or this version cannot read its record."""
    whys: tuple[Why, ...]
    actions: tuple[Action, ...]
    hypotheses: tuple[Hypothesis, ...]
    """What the attempts up to this one show of each other's causes."""
    curves: Curves

    @property
    def place(self) -> str:
        """Return ``stage.attempt``."""
        return f"{self.stage}.{self.attempt}"

    def marks(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return the detectors that fired with the steps that show it."""
        return [(one.check, one.lines) for one in self.readings if one.status in ("FAIL", "WARN") and one.lines]

    def as_json(self, *, curves: bool = True) -> dict[str, Any]:
        """Return the form of `diagnose --json`; a report holds it without the points of the curves."""
        found = self._asdict() | {
            "readings": [one._asdict() for one in self.readings],
            "whys": [one._asdict() for one in self.whys],
            "actions": [one._asdict() | {"worth": round(one.worth, 4)} for one in self.actions],
            "hypotheses": [one._asdict() for one in self.hypotheses],
            "curves": self.curves._asdict(),
        }
        if not self.hypotheses:
            # Reports of sessions that tested none stay as they were.
            del found["hypotheses"]
        return found if curves else {name: value for name, value in found.items() if name != "curves"}


def diagnose(run: Path, stage: str | None = None, number: int | None = None) -> list[Diagnosis]:
    """Diagnose the newest attempt of each stage that trains, or of the one that is named.

    Detectors that the gate did not run, in an older session or before its end, are computed now where an exit is on
    record. Nothing is written.

    Raises:
        UserError: no such attempt of a stage that trains was planned.
    """
    entries, store = read_entries(run / TRAIL), Store(run / STORE)
    resolved, _ = registered_spec(entries, store)
    return [
        _of(entries, store, resolved, one, _computed(run, entries, store, resolved, one))
        for one in (
            attempt_of(entries, store, resolved, *place, run) for place in _chosen(entries, resolved, stage, number)
        )
    ]


def recorded(entries: Sequence[Recorded], store: Store, resolved: ResolvedSpec) -> list[Diagnosis]:
    """Diagnose the newest attempts from trail and store alone: the same entries give the same diagnosis."""
    found = (attempt_of(entries, store, resolved, *place) for place in newest_of(entries, resolved))
    return [_of(entries, store, resolved, one, one.checks) for one in found if one.checks or one.launched]


def nothing_begun(run: Path) -> str:
    """Return why a session without a begun training has nothing to diagnose."""
    stages = registered_spec(read_entries(run / TRAIL), Store(run / STORE))[0].spec.stages
    if training := [one.name for one in stages if kind_of(one).trains]:
        return f"nothing to diagnose: no training was begun ({', '.join(training)})"
    scripts = [one.name for one in stages if kind_of(one).runs_code]
    why = f"; a script, as in {', '.join(scripts)}, is judged by what it leaves: peergate report" if scripts else ""
    return f"nothing to diagnose: no stage of this session trains by itself{why}"


def gate_line(stage: str, results: Sequence[CheckResult], session: str) -> str:
    """Return what the detectors say at the gate of a training, in one line."""
    message = _in_words(results)
    return f"  diagnosis of {stage}: {message}; `peergate diagnose {session} --stage {stage}` shows why"


def _chosen(
    entries: Sequence[Recorded], resolved: ResolvedSpec, stage: str | None, number: int | None
) -> list[tuple[str, int]]:
    newest = newest_of(entries, resolved)
    if number is not None and stage is None:
        raise UserError("--attempt needs --stage", hint="numbers of attempts are counted within a stage")
    if stage is None:
        return newest
    planned = [one.body["attempt"] for one in entries if one.entry.kind == "plan" and one.body["stage"] == stage]
    training = [one.name for one in resolved.spec.stages if kind_of(one).trains]
    if stage not in training:
        raise UserError(f"'{stage}' is no stage that trains", hint=f"stages that do: {', '.join(training) or 'none'}")
    if not planned or number not in (None, *planned):
        what = f"attempt {number} of '{stage}'" if number is not None else f"'{stage}'"
        known = ", ".join(map(str, planned)) or "none yet"
        raise UserError(f"{what} was not begun", hint=f"attempts on record: {known}")
    return [(stage, number or max(planned))]


def _computed(
    run: Path, entries: list[Recorded], store: Store, resolved: ResolvedSpec, attempt: Attempt
) -> tuple[CheckResult, ...]:
    """Return the recorded results and, of an attempt that ended, those of detectors that the gate did not run."""
    have = {one.id for one in attempt.checks}
    if not attempt.ended:
        return attempt.checks
    missing = [one for one in _detectors(resolved, attempt.stage) if one.id not in have]
    if not missing:
        return attempt.checks
    from reviews.gate.measurer import measure

    try:
        evidence = gather(run, entries, store, attempt.stage, attempt.attempt)
    except PeergateError:
        return attempt.checks
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    now = (apply(one, evidence, metrics) for one in missing)
    # A witness that has not ended is no lost one: only a gate says that.
    return (*attempt.checks, *(one for one in now if one.status != "BLOCKED" or not one.id.startswith("witness.")))


def _detectors(resolved: ResolvedSpec, stage: str) -> list[Check]:
    # Imported here: all checks together take longer to import than `peergate status` takes otherwise.
    from reviews.gate.check_list import all_checks

    kind = kind_of(resolved.spec.stage(stage))
    return [one for one in all_checks(resolved) if one.id in DETECTORS and one.belongs_to(kind)]


def _of(
    entries: Sequence[Recorded],
    store: Store,
    resolved: ResolvedSpec,
    attempt: Attempt,
    results: Sequence[CheckResult],
) -> Diagnosis:
    sources = {one.id: one.source for one in _detectors(resolved, attempt.stage)}
    seen = {one.id for one in attempt.checks}
    every = [one for one in results if one.id in DETECTORS]
    every.sort(key=lambda one: (not fired(one), one.status == "WARN", CAUSES.index(detector_of(one).cause)))
    first = binding(every)
    numbers = sorted(
        one.body["attempt"]
        for one in entries
        if one.entry.kind == "plan" and one.body["stage"] == attempt.stage and one.body["attempt"] <= attempt.attempt
    )
    return Diagnosis(
        stage=attempt.stage,
        attempt=attempt.attempt,
        state=_state(attempt),
        cause=detector_of(first).cause if first else None,
        check=first.id if first else None,
        told=_in_words(every) if every else "no check has run: the attempt has not come to its gate",
        readings=tuple(_reading(one, sources.get(one.id, ""), one.id in seen) for one in every),
        absent=tuple(sorted(sources.keys() - {one.id for one in every})),
        whys=whys_of(entries, store, resolved, attempt, every),
        actions=actions_for(entries, resolved, attempt, every),
        hypotheses=tuple(
            hypotheses_of([attempt_of(entries, store, resolved, attempt.stage, number) for number in numbers])
        ),
        curves=attempt.curves,
    )


def _state(attempt: Attempt) -> str:
    if attempt.checks:
        return "judged" if attempt.ended else "judged without an end"
    return "ended" if attempt.ended else "launched, without an end on record" if attempt.launched else "not launched"


def _in_words(results: Sequence[CheckResult]) -> str:
    first = binding(results)
    if first is None:
        return "no detector fired"
    return f"{IN_WORDS[detector_of(first).cause]} ({first.id}, {first.status})"


def _reading(found: CheckResult, source: str, recorded: bool) -> Reading:
    return Reading(
        check=found.id,
        title=found.title,
        cause=detector_of(found).cause,
        status=found.status,
        blocking=found.blocking,
        detail=found.detail,
        figure=found.figure,
        threshold=found.threshold,
        source=source,
        lines=steps_in(found),
        shown=found.shown,
        remedy=remedy_of_result(found) if fired(found) else "",
        recorded=recorded,
    )
