"""The state of each acceptance criterion, computed from trail and store: no one types it.

A criterion is open, until the gate of its stage approves and finds what the criterion asks for. It is retracted when
that no longer holds: the approval was taken back, a later attempt shows otherwise, or further seeds do not replicate
the comparison. What a builder, a job or a person says changes nothing, nor does a gate that a person lifted.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from reviews.evidence.defect_waves import SHIP_CHECKS
from reviews.history.attempt import Attempt
from reviews.history.history import History
from reviews.history.people import lifted_checks
from specs.session.acceptance import AcceptanceCriterion
from specs.session.session_spec import SessionSpec
from specs.stages.metric_catalog import metrics_of
from specs.system.text import one_line
from specs.trail.entry import EntryKind
from specs.trail.session_bodies import OpenEntry, ReplicationEntry

State = Literal["open", "discharged", "retracted", "not_applicable"]
_MOVING: tuple[EntryKind, ...] = ("decision", "retraction", "replication")
"""The entries after which a state may be another one."""
_NO = (None, False, 0, "no", "")


class CriterionProof(NamedTuple):
    """What discharges a criterion, on record."""

    entry: int
    """The number of the approving decision."""
    digest: str
    """The digest of that entry."""
    evidence: str
    """The digest of the stored metrics, checks or decision that show it."""
    description: str


class StateChange(NamedTuple):
    """A change of state, and the entry that made it."""

    entry: int
    state: State
    why: str
    percent: float | None
    """ship-% after the entry."""


class CriterionState(NamedTuple):
    """A criterion and what has come of it."""

    criterion: AcceptanceCriterion
    state: State
    why: str
    """Why it has this state."""
    proof: CriterionProof | None
    """The proof of a discharged criterion."""
    history: tuple[StateChange, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as the report and ``status --json`` show it."""
        criterion = self.criterion
        return {
            "id": criterion.id,
            "text": criterion.text,
            "needs": criterion.needs(),
            "weight": criterion.weight,
            "state": self.state,
            "why": self.why,
            **{name: statement for name in ("model", "issue") if (statement := getattr(criterion, name)) is not None},
            "proof": self.proof._asdict() if self.proof else None,
            "history": [step._asdict() for step in self.history],
        }


class Acceptance(NamedTuple):
    """All criteria of a session."""

    criteria: tuple[CriterionState, ...]

    @property
    def percent(self) -> float | None:
        """Return ship-%: the discharged share of the weights that apply. None if none applies."""
        return percent(
            {criterion.criterion.id: criterion.state for criterion in self.criteria},
            [criterion.criterion for criterion in self.criteria],
        )

    @property
    def by_model(self) -> dict[str, float | None]:
        """Return ship-% of each model that criteria name; empty where they name none."""
        names = dict.fromkeys(
            criterion.criterion.model for criterion in self.criteria if criterion.criterion.model is not None
        )
        of = {
            name: Acceptance(tuple(criterion for criterion in self.criteria if criterion.criterion.model == name))
            for name in names
        }
        return {name: acceptance.percent for name, acceptance in of.items()}

    def as_json(self) -> dict[str, Any]:
        """Return ship-%, that of each model where there are several, and every criterion."""
        models = {"models": by_model} if (by_model := self.by_model) else {}
        return {
            "ship_percent": self.percent,
            **models,
            "criteria": [criterion.as_json() for criterion in self.criteria],
        }

    def line(self) -> str:
        """Return it in one line."""
        counts = {state: sum(criterion.state == state for criterion in self.criteria) for state in _ORDER}
        message = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in counts.items() if count)
        if self.percent is None:
            return f"no criterion applies: {message}"
        percentages = [f"{name} {value:.1f} %" for name, value in self.by_model.items() if value is not None]
        return f"ship {self.percent:.1f} %{' (' + ', '.join(percentages) + ')' if percentages else ''}: {message}"


_ORDER: tuple[State, ...] = ("discharged", "open", "retracted", "not_applicable")


def percent(states: dict[str, State], criteria: Sequence[AcceptanceCriterion]) -> float | None:
    """Return the share of the weights that is discharged, in percent, of what applies by registration."""
    applying = [criterion for criterion in criteria if states[criterion.id] != "not_applicable"]
    total = sum(criterion.weight for criterion in applying)
    done = sum(criterion.weight for criterion in applying if states[criterion.id] == "discharged")
    return float(round(Fraction(100 * done, total), 6)) if total else None


def acceptance_of(history: History) -> Acceptance:
    """Return the state of every criterion at the end of these entries, by the registration that opened the session.

    Raises:
        EvidenceMissing: the session has no ``open`` entry, or what the trail names is not in the store.
    """
    opened = history.find(OpenEntry)
    # Of the first registration: no amendment excuses a criterion.
    spec = history[: opened.seq + 1].resolved.spec if opened else history.resolved.spec
    if not spec.criteria:
        return Acceptance(())
    states: dict[str, State] = {
        criterion.id: "open" if _applies(spec, criterion) else "not_applicable" for criterion in spec.criteria
    }
    whys = {criterion.id: _explain_initial_state(criterion, states[criterion.id]) for criterion in spec.criteria}
    proofs: dict[str, CriterionProof] = {}
    steps: dict[str, list[StateChange]] = {criterion.id: [] for criterion in spec.criteria}
    for end, moving in enumerate(history, 1):
        if moving.kind not in _MOVING:
            continue
        seen_values = _TrailView(history[:end])
        changed: list[str] = []
        for criterion in spec.criteria:
            if states[criterion.id] == "not_applicable":
                continue
            result = seen_values.proof(criterion)
            before = states[criterion.id]
            if isinstance(result, CriterionProof):
                states[criterion.id], whys[criterion.id], proofs[criterion.id] = (
                    "discharged",
                    result.description,
                    result,
                )
            else:
                states[criterion.id] = "open" if before == "open" else "retracted"
                whys[criterion.id] = result
            changed += [criterion.id] if states[criterion.id] != before else []
        now = percent(states, spec.criteria)
        for id in changed:
            steps[id].append(StateChange(moving.seq, states[id], whys[id], now))
    return Acceptance(
        tuple(
            CriterionState(
                criterion,
                states[criterion.id],
                whys[criterion.id],
                proofs[criterion.id] if states[criterion.id] == "discharged" else None,
                tuple(steps[criterion.id]),
            )
            for criterion in spec.criteria
        )
    )


def _applies(spec: SessionSpec, criterion: AcceptanceCriterion) -> bool:
    if criterion.applies_if is None:
        return True
    stage, _, parameter = criterion.applies_if.partition(".")
    return getattr(spec.stage(stage).parameters, parameter) not in _NO


def _explain_initial_state(criterion: AcceptanceCriterion, state: State) -> str:
    if state == "not_applicable":
        return f"by registration it does not apply: {criterion.applies_if} is off"
    return f"the gate of '{criterion.stage}' has not decided"


class _TrailView:
    """What the trail shows up to an entry."""

    def __init__(self, history: History) -> None:
        self._history = history

    def proof(self, criterion: AcceptanceCriterion) -> CriterionProof | str:
        """Return what discharges a criterion, or why nothing does."""
        decided = self._history.newest_decision(criterion.stage)
        if decided is None:
            return f"the gate of '{criterion.stage}' has not decided"
        attempt, outcome = self._history.attempt_of(decided.body), decided.body.outcome
        at = attempt.name
        if decided.seq in self._history.retracted:
            return f"the approval of {at} was taken back"
        if outcome != "approve":
            return f"the gate of {at} decided '{outcome}'"
        if lifted := lifted_checks(self._history.before(decided), criterion.stage, decided.time_ns):
            return f"a person lifted {', '.join(sorted(lifted))} at {at}, so the gate proves nothing"
        if criterion.metric is not None and (why := self._not_replicated(criterion.metric.metric)):
            return why
        results = _find_evidence(criterion, attempt)
        if isinstance(results, str):
            return results
        evidence, reason = results
        return CriterionProof(decided.seq, decided.digest, evidence or decided.body.decision, f"{reason} at {at}")

    def _not_replicated(self, metric: str) -> str:
        counted = self._history.find(ReplicationEntry)
        if counted is None or metric not in metrics_of("comparison"):
            return ""
        result = self._history.store.get_value(counted.body.result)
        return "" if result["replicated"] else f"entry {counted.seq}: {one_line(str(result['summary']), 200)}"


def _find_evidence(criterion: AcceptanceCriterion, attempt: Attempt) -> tuple[str, str] | str:
    """Return the digest of what shows it, and in words what that is; or why it is not shown."""
    at = attempt.name
    if criterion.metric is not None:
        digest = attempt.metrics.body.metrics if attempt.metrics else None
        value = attempt.metric_set.metrics.get(criterion.metric.metric) if attempt.metric_set else None
        if value is None:
            return f"{criterion.metric.metric} was not measured at {at}"
        if not criterion.metric.met(value.exact()):
            return f"{criterion.metric.metric} is {value.value:.4g} at {at}, not {criterion.metric}"
        return digest or "", f"{criterion.metric.metric} is {value.value:.4g}"
    if criterion.check is None and not criterion.ship:
        return "", "the gate approved"
    checks = attempt.checks.body if attempt.checks else None
    summary = checks.summary if checks else {}
    texts = [criterion.check] if criterion.check else [id for id in summary if id.startswith(SHIP_CHECKS)]
    if not texts:
        return f"no check of the ship gate ran at {at}"
    for id in texts:
        if summary.get(id) != "PASS":
            return f"check {id} {'is ' + summary[id] if id in summary else 'did not run'} at {at}"
    return checks.checks if checks else "", f"{', '.join(texts)} passed"
