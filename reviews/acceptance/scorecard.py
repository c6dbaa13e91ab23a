"""The scorecard of a session: each registered claim, how much of it is shown, by what, and of what that holds.

Rows are computed from trail and store; no one types them. What limits a claim takes it down to ``partly``: an override,
an amendment after data, a check that could close a gate and only warned, training that no witness repeated, further
looks at the held-out split. What no gate approved is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from reviews.acceptance.criterion_state import acceptance_of
from reviews.evidence.gather import evaluating, evaluations
from reviews.history.history import History
from reviews.history.people import count_overrides, lifted_checks
from reviews.trail.chain.envelope import RecordedEntry
from specs.session.acceptance import AcceptanceCriterion
from specs.session.session_spec import SessionSpec
from specs.stages.metric_catalog import metrics_of
from specs.system.text import one_line
from specs.trail.gate_bodies import DecisionEntry
from specs.trail.verdict import CheckResult, CriterionResult, Packet

Status = Literal["shown", "partly", "not shown"]
STATUSES: tuple[Status, ...] = ("shown", "partly", "not shown")
PROSE = (
    "The objective is prose: only these rows were registered in a form that code can decide. Nothing here was tried "
    "with another model, seed or split."
)


class ScorecardRow(NamedTuple):
    """A claim and what became of it."""

    id: str
    """``H-1``, ``AC-...``, ``STAGE.thresholds`` or ``builder``."""
    claim: str
    status: Status
    why: str
    limits: tuple[str, ...]
    """What takes it down from *shown*."""
    entry: int | None
    """The number of the deciding entry; None where no gate decided."""
    evidence: str
    """The digest of what shows it, in the store; empty where nothing does."""
    scope: str


class Scorecard(NamedTuple):
    """All rows, the hypothesis first."""

    rows: tuple[ScorecardRow, ...]

    def counts(self) -> dict[Status, int]:
        """Return how many rows have each status."""
        return {status: sum(row.status == status for row in self.rows) for status in STATUSES}

    def line(self) -> str:
        """Return it in one line."""
        return ", ".join(f"{count} {status}" for status, count in self.counts().items())

    def as_json(self) -> dict[str, Any]:
        """Return it as report and pages show it."""
        rows = [row._asdict() | {"limits": list(row.limits)} for row in self.rows]
        return {"summary": self.line(), "rows": rows, "not_judged": PROSE}


def scorecard_of(history: History) -> Scorecard:
    """Return the scorecard at the end of these entries.

    Raises:
        EvidenceMissing: the session has no ``open`` entry, or what the trail names is not in the store.
    """
    seen_values = _ScorecardReader(history)
    return Scorecard(
        (
            *seen_values.hypothesis(),
            *seen_values.criteria(),
            *seen_values.thresholds(),
            *seen_values.list_stated_numbers(),
        )
    )


class _Gate(NamedTuple):
    """The last decision of a stage's gate."""

    entry: RecordedEntry[DecisionEntry]
    attempt: int
    why_not: str
    """Why it shows nothing; empty for an approval that holds."""


class _ScorecardReader:
    def __init__(self, history: History) -> None:
        self._history = history
        self._resolved = history.resolved
        self._spec: SessionSpec = self._resolved.spec

    def hypothesis(self) -> Iterator[ScorecardRow]:
        """Yield the registered comparison, and what each kind or control has to show next to it."""
        analysis, stage = self._spec.analysis, self._spec.analysis.treatment
        gate = self._gate(stage)
        results = [result for result in self._results(stage, gate) if result.hypothesis]
        word = analysis.primary_metric.replace("_", " ")
        claim = (
            f"'{stage}' is better than '{analysis.baseline}' in held-out {word}: a measured gain of "
            f"{analysis.minimum_effect:g} or more, with p < {analysis.alpha:g}"
        )
        main = [result for result in results if result.criterion.metric in (analysis.p_metric, "accuracy_gain")]
        yield self._build_comparison_row("H-1", claim, stage, gate, main)
        others = [result for result in results if result not in main]
        for number, criterion_result in enumerate(others, 2):
            yield self._build_comparison_row(
                f"H-{number}", str(criterion_result.criterion), stage, gate, [criterion_result]
            )

    def _build_comparison_row(
        self, id: str, claim: str, stage: str, gate: _Gate | None, results: Sequence[CriterionResult]
    ) -> ScorecardRow:
        message = "; ".join(f"{result.criterion}: {result.describe_measurement()}" for result in results)
        values = {result.criterion.metric: result for result in results}
        limits = list(self._limits(self._path(stage), whole=True))
        status: Status = "shown"
        if gate is None or not results:
            status, message = "not shown", f"the gate of '{stage}' has not decided"
        elif not all(result.met for result in results):
            p, gain = values.get(self._spec.analysis.p_metric), values.get("accuracy_gain")
            smaller = p is not None and p.met and gain is not None and (gain.value or 0) > 0
            # A gate that finds the hypothesis unmet on sound evidence says *null*; any other refusal voids the numbers.
            status = "partly" if smaller and gate.entry.body.outcome == "null" else "not shown"
            limits = [*limits, "the gain is smaller than the registered minimum"] if status == "partly" else limits
        elif gate.why_not:
            status, message = "not shown", f"{gate.why_not}; {message}"
        return self._row(id, claim, status, message, limits, gate, self._scope(stage, gate, compared=True))

    def criteria(self) -> Iterator[ScorecardRow]:
        """Yield the acceptance criteria."""
        for state in acceptance_of(self._history).criteria:
            criterion, gate = state.criterion, self._gate(state.criterion.stage)
            status: Status = "shown" if state.state == "discharged" else "not shown"
            row = self._row(
                criterion.id,
                criterion.text.removesuffix("."),
                status,
                state.why,
                list(self._criterion_limits(criterion)),
                gate,
                self._scope(criterion.stage, gate),
            )
            yield row._replace(evidence=state.proof.evidence if state.proof else "")

    def _criterion_limits(self, acceptance_criterion: AcceptanceCriterion) -> Iterator[str]:
        compares = acceptance_criterion.metric is not None and acceptance_criterion.metric.metric in metrics_of(
            "comparison"
        )
        yield from self._limits(
            self._path(acceptance_criterion.stage) if compares else [acceptance_criterion.stage],
            whole=acceptance_criterion.metric is not None,
        )

    def thresholds(self) -> Iterator[ScorecardRow]:
        """Yield for each stage whether its registered thresholds are met."""
        for stage in self._spec.stages:
            if not stage.gate.criteria:
                continue
            gate = self._gate(stage.name)
            results = [result for result in self._results(stage.name, gate) if not result.hypothesis]
            met = sum(result.met for result in results)
            status: Status = "shown" if met == len(results) else "partly" if met else "not shown"
            why = "; ".join(f"{result.criterion}: {result.describe_measurement()}" for result in results)
            if gate is None or not results:
                status, why = "not shown", f"the gate of '{stage.name}' has not decided"
            elif gate.why_not and gate.entry.body.outcome != "null":
                status, why = "not shown", f"{gate.why_not}; {why}"
            claim = f"the registered thresholds of '{stage.name}' are met"
            limits = list(self._limits([stage.name], whole=False))
            yield self._row(f"{stage.name}.thresholds", claim, status, why, limits, gate, self._scope(stage.name, gate))

    def list_stated_numbers(self) -> Iterator[ScorecardRow]:
        """Yield the numbers that the builder stated, where it stated any."""
        claims = [claim for stage in self._spec.stages for claim in self._claims(stage.name)]
        if not claims:
            return
        right = sum(status == "supported" for status in claims)
        status: Status = "shown" if right == len(claims) else "partly" if right else "not shown"
        why = f"{right} of {len(claims)} agree with Peergate's measurements"
        yield ScorecardRow(
            "builder", "the numbers that the builder stated are right", status, why, (), None, "", "this session"
        )

    def _row(
        self, id: str, claim: str, status: Status, why: str, limits: list[str], gate: _Gate | None, scope: str
    ) -> ScorecardRow:
        """Return a row; what limits it takes it down, and never up."""
        texts = tuple(dict.fromkeys(limits)) if status != "not shown" else ()
        lowered: Status = "partly" if status == "shown" and texts else status
        seq = gate.entry.seq if gate else None
        evidence = gate.entry.body.decision if gate and status != "not shown" else ""
        return ScorecardRow(id, one_line(claim, 500), lowered, one_line(why, 800), texts, seq, evidence, scope)

    def _gate(self, stage: str) -> _Gate | None:
        result = self._history.newest_decision(stage)
        if result is None:
            return None
        at, outcome = f"{stage}.{result.body.attempt}", result.body.outcome
        why = f"the gate of {at} decided '{outcome}'" if outcome != "approve" else ""
        if result.seq in self._history.retracted:
            why = f"the approval of {at} was taken back"
        return _Gate(result, result.body.attempt, why)

    def _packet(self, stage: str, gate: _Gate | None) -> Packet | None:
        return self._history.attempt(stage, gate.attempt).packet_value if gate else None

    def _results(self, stage: str, gate: _Gate | None) -> Sequence[CriterionResult]:
        packet = self._packet(stage, gate)
        return packet.criteria if packet else ()

    def _claims(self, stage: str) -> list[str]:
        packet = self._packet(stage, self._gate(stage))
        return [claim.status for claim in packet.claims] if packet else []

    def _path(self, stage: str) -> list[str]:
        """Return a stage with all that it is made from, and the arm that it is compared with."""
        names = {stage.name: stage for stage in self._spec.stages}
        texts: list[str] = []
        remaining_texts = [stage, *([self._spec.analysis.baseline] if stage == self._spec.analysis.treatment else [])]
        while remaining_texts:
            name = remaining_texts.pop()
            if name in names and name not in texts:
                texts.append(name)
                remaining_texts += [reference.partition(".")[0] for reference in names[name].inputs.values()]
        return texts

    def _limits(self, stages: Sequence[str], *, whole: bool) -> Iterator[str]:
        """Yield what limits a claim about stages; of a ``whole`` one, all that was found on the way to it."""
        if self._history.is_exploratory:
            yield "exploratory: amended after data had been seen"
        for stage in stages:
            gate = self._gate(stage)
            moment = gate.entry.time_ns if gate else self._history[-1].time_ns
            before = self._history.before(gate.entry) if gate else self._history
            if lifted := lifted_checks(before, stage, moment):
                yield f"a person lifted {', '.join(sorted(lifted))} of '{stage}'"
        if not whole:
            return
        if people := count_overrides(self._history):
            yield f"a person decided {people} time{'' if people == 1 else 's'} over a gate or check"
        for stage in stages:
            if self._spec.stage(stage).witness == "weights_only":
                yield f"no witness repeated the training of '{stage}'"
            for check_result in self._list_warnings(stage):
                yield f"{check_result.id} of '{stage}' warned: {one_line(check_result.detail, 160)}"
        looked, count = evaluations(self._history), len(evaluating(self._spec))
        if looked > count and self._spec.analysis.treatment in stages:
            yield f"the held-out split was evaluated {looked} times, {count} were planned"

    def _list_warnings(self, stage: str) -> list[CheckResult]:
        """Return the checks of a stage that could have closed its gate and only warned."""
        gate = self._gate(stage)
        every = self._history.attempt(stage, gate.attempt).check_results if gate else ()
        return [check_result for check_result in every if check_result.status == "WARN" and check_result.blocking]

    def _scope(self, stage: str, gate: _Gate | None, *, compared: bool = False) -> str:
        """Return the scope of a row; a device is named only where a job recorded it."""
        spec = self._spec
        of = f"{spec.analysis.n} registered held-out items" if compared else f"stage '{stage}'"
        if gate is not None and not compared:
            of += f", attempt {gate.attempt}"
        where = self._device(stage, gate)
        return f"{of}; {spec.model.source}, seed {spec.analysis.seeds[0]}{f', {where}' if where else ''}"

    def _device(self, stage: str, gate: _Gate | None) -> str:
        manifest = self._history.attempt(stage, gate.attempt).manifest if gate else None
        return manifest.device if manifest else ""
