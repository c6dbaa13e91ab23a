"""The scorecard of a session: each registered claim, how much of it is shown, by what, and of what that holds.

Rows are computed from trail and store; nobody types them. What limits a claim takes it down to ``partly``: an override,
an amendment after data, a check that could close a gate and only warned, training that no witness repeated, further
looks at the held-out split. What no gate approved is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from reviews.acceptance.criterion_state import acceptance_of
from reviews.evidence.gather import evaluating, evaluations, find, is_in_force, registered_spec
from reviews.gate.conditions import lifted_checks
from reviews.gate.human_answers import is_override
from reviews.trail.envelope import Recorded
from reviews.trail.retractions import retracted
from reviews.trail.store import Store
from specs.job_records import Manifest
from specs.session.acceptance import AcceptanceCriterion
from specs.session.session_spec import SessionSpec
from specs.stages.metric_catalog import metrics_of
from specs.text import one_line
from specs.trail.verdict import CheckResult, CriterionResult, Packet

Status = Literal["shown", "partly", "not shown"]
STATUSES: tuple[Status, ...] = ("shown", "partly", "not shown")
PROSE = (
    "The objective is prose: only these rows were registered in a form that code can decide. Nothing here was tried "
    "with another model, seed or split."
)


class Row(NamedTuple):
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

    rows: tuple[Row, ...]

    def counts(self) -> dict[Status, int]:
        """Return how many rows have each status."""
        return {status: sum(one.status == status for one in self.rows) for status in STATUSES}

    def line(self) -> str:
        """Return it in one line."""
        return ", ".join(f"{count} {status}" for status, count in self.counts().items())

    def as_json(self) -> dict[str, Any]:
        """Return it as report and pages show it."""
        rows = [one._asdict() | {"limits": list(one.limits)} for one in self.rows]
        return {"told": self.line(), "rows": rows, "not_judged": PROSE}


def scorecard_of(entries: Sequence[Recorded], store: Store) -> Scorecard:
    """Return the scorecard at the end of these entries.

    Raises:
        EvidenceMissing: the session has no ``open`` entry, or what the trail names is not in the store.
    """
    seen = _Seen(entries, store)
    return Scorecard((*seen.hypothesis(), *seen.criteria(), *seen.thresholds(), *seen.stated()))


class _Gate(NamedTuple):
    """The last decision of a stage's gate."""

    entry: Recorded
    attempt: int
    why_not: str
    """Why it shows nothing; empty for an approval that holds."""


class _Seen:
    def __init__(self, entries: Sequence[Recorded], store: Store) -> None:
        self._entries, self._store = entries, store
        self._resolved, _ = registered_spec(entries, store)
        self._spec: SessionSpec = self._resolved.spec
        self._void = retracted(entries)

    def hypothesis(self) -> Iterator[Row]:
        """Yield the registered comparison, and what each kind or control has to show beside it."""
        analysis, stage = self._spec.analysis, self._spec.analysis.treatment
        gate = self._gate(stage)
        results = [one for one in self._results(stage, gate) if one.hypothesis]
        word = analysis.primary_metric.replace("_", " ")
        claim = (
            f"'{stage}' is better than '{analysis.baseline}' in held-out {word}: a measured gain of "
            f"{analysis.minimum_effect:g} or more, with p < {analysis.alpha:g}"
        )
        main = [one for one in results if one.criterion.metric in ("mcnemar_p", "accuracy_gain")]
        yield self._compared("H-1", claim, stage, gate, main)
        others = [one for one in results if one not in main]
        for number, one in enumerate(others, 2):
            yield self._compared(f"H-{number}", str(one.criterion), stage, gate, [one])

    def _compared(self, id: str, claim: str, stage: str, gate: _Gate | None, results: Sequence[CriterionResult]) -> Row:
        message = "; ".join(f"{one.criterion}: {one.measured()}" for one in results)
        values = {one.criterion.metric: one for one in results}
        limits = list(self._limits(self._path(stage), whole=True))
        status: Status = "shown"
        if gate is None or not results:
            status, message = "not shown", f"the gate of '{stage}' has not decided"
        elif not all(one.met for one in results):
            p, gain = values.get("mcnemar_p"), values.get("accuracy_gain")
            smaller = p is not None and p.met and gain is not None and (gain.value or 0) > 0
            # A gate that finds the hypothesis unmet on sound evidence says *null*; any other refusal voids the numbers.
            status = "partly" if smaller and gate.entry.body["outcome"] == "null" else "not shown"
            limits = [*limits, "the gain is smaller than the registered one"] if status == "partly" else limits
        elif gate.why_not:
            status, message = "not shown", f"{gate.why_not}; {message}"
        return self._row(id, claim, status, message, limits, gate, self._scope(stage, gate, compared=True))

    def criteria(self) -> Iterator[Row]:
        """Yield the acceptance criteria."""
        for state in acceptance_of(self._entries, self._store).criteria:
            one, gate = state.criterion, self._gate(state.criterion.stage)
            status: Status = "shown" if state.state == "discharged" else "not shown"
            row = self._row(
                one.id,
                one.text.removesuffix("."),
                status,
                state.why,
                list(self._criterion_limits(one)),
                gate,
                self._scope(one.stage, gate),
            )
            yield row._replace(evidence=state.proof.evidence if state.proof else "")

    def _criterion_limits(self, one: AcceptanceCriterion) -> Iterator[str]:
        compares = one.metric is not None and one.metric.metric in metrics_of("comparison")
        yield from self._limits(self._path(one.stage) if compares else [one.stage], whole=one.metric is not None)

    def thresholds(self) -> Iterator[Row]:
        """Yield for each stage whether its registered thresholds are met."""
        for stage in self._spec.stages:
            if not stage.gate.criteria:
                continue
            gate = self._gate(stage.name)
            results = [one for one in self._results(stage.name, gate) if not one.hypothesis]
            met = sum(one.met for one in results)
            status: Status = "shown" if met == len(results) else "partly" if met else "not shown"
            why = "; ".join(f"{one.criterion}: {one.measured()}" for one in results)
            if gate is None or not results:
                status, why = "not shown", f"the gate of '{stage.name}' has not decided"
            elif gate.why_not and gate.entry.body["outcome"] != "null":
                status, why = "not shown", f"{gate.why_not}; {why}"
            claim = f"the registered thresholds of '{stage.name}' are met"
            limits = list(self._limits([stage.name], whole=False))
            yield self._row(f"{stage.name}.thresholds", claim, status, why, limits, gate, self._scope(stage.name, gate))

    def stated(self) -> Iterator[Row]:
        """Yield the numbers that the builder stated, where it stated any."""
        claims = [one for stage in self._spec.stages for one in self._claims(stage.name)]
        if not claims:
            return
        right = sum(status == "supported" for status in claims)
        status: Status = "shown" if right == len(claims) else "partly" if right else "not shown"
        why = f"{right} of {len(claims)} are those that Peergate measured"
        yield Row("builder", "the numbers that the builder stated are right", status, why, (), None, "", "this session")

    def _row(
        self, id: str, claim: str, status: Status, why: str, limits: list[str], gate: _Gate | None, scope: str
    ) -> Row:
        """Return a row; what limits it takes it down, and never up."""
        kept = tuple(dict.fromkeys(limits)) if status != "not shown" else ()
        lowered: Status = "partly" if status == "shown" and kept else status
        seq = gate.entry.entry.seq if gate else None
        evidence = str(gate.entry.body["decision"]) if gate and status != "not shown" else ""
        return Row(id, one_line(claim, 500), lowered, one_line(why, 800), kept, seq, evidence, scope)

    def _gate(self, stage: str) -> _Gate | None:
        found = next(
            (one for one in reversed(self._entries) if one.entry.kind == "decision" and one.body["stage"] == stage),
            None,
        )
        if found is None:
            return None
        at, outcome = f"{stage}.{found.body['attempt']}", found.body["outcome"]
        why = f"the gate of {at} decided '{outcome}'" if outcome != "approve" else ""
        if found.entry.seq in self._void:
            why = f"the approval of {at} was taken back"
        return _Gate(found, found.body["attempt"], why)

    def _packet(self, stage: str, gate: _Gate | None) -> Packet | None:
        entry = find(self._entries, f"packet/{stage}.{gate.attempt}") if gate else None
        return Packet.model_validate(self._store.get_value(entry.body["packet"])) if entry else None

    def _results(self, stage: str, gate: _Gate | None) -> Sequence[CriterionResult]:
        packet = self._packet(stage, gate)
        return packet.criteria if packet else ()

    def _claims(self, stage: str) -> list[str]:
        packet = self._packet(stage, self._gate(stage))
        return [one.status for one in packet.claims] if packet else []

    def _path(self, stage: str) -> list[str]:
        """Return a stage with all that it is made from, and the arm that it is compared with."""
        names = {one.name: one for one in self._spec.stages}
        found: list[str] = []
        left = [stage, *([self._spec.analysis.baseline] if stage == self._spec.analysis.treatment else [])]
        while left:
            name = left.pop()
            if name in names and name not in found:
                found.append(name)
                left += [reference.partition(".")[0] for reference in names[name].inputs.values()]
        return found

    def _limits(self, stages: Sequence[str], *, whole: bool) -> Iterator[str]:
        """Yield what limits a claim about stages; of a ``whole`` one, all that was found on the way to it."""
        if any(is_in_force(one) and one.body["exploratory"] for one in self._entries):
            yield "exploratory: amended after data had been seen"
        for stage in stages:
            gate = self._gate(stage)
            moment = int(gate.entry.entry.time_ns) if gate else int(self._entries[-1].entry.time_ns)
            before = self._entries[: gate.entry.entry.seq] if gate else self._entries
            if lifted := lifted_checks(before, stage, moment):
                yield f"a person lifted {', '.join(sorted(lifted))} of '{stage}'"
        if not whole:
            return
        if people := sum(is_override(one) for one in self._entries):
            yield f"a person decided {people} time{'' if people == 1 else 's'} over a gate or check"
        for stage in stages:
            if self._spec.stage(stage).witness == "weights_only":
                yield f"no witness repeated the training of '{stage}'"
            for one in self._warned(stage):
                yield f"{one.id} of '{stage}' warned: {one_line(one.detail, 160)}"
        looked, due = evaluations(self._entries, self._resolved), len(evaluating(self._spec))
        if looked > due and self._spec.analysis.treatment in stages:
            yield f"the held-out split was evaluated {looked} times, {due} were planned"

    def _warned(self, stage: str) -> list[CheckResult]:
        """Return the checks of a stage that could have closed its gate and only warned."""
        gate = self._gate(stage)
        recorded = find(self._entries, f"checks/{stage}.{gate.attempt}") if gate else None
        found = self._store.get_value(recorded.body["checks"]) if recorded else []
        every = [CheckResult.model_validate(one) for one in found] if isinstance(found, list) else []
        return [one for one in every if one.status == "WARN" and one.blocking]

    def _scope(self, stage: str, gate: _Gate | None, *, compared: bool = False) -> str:
        """Say of what a row holds; a device is named only where a job recorded it."""
        spec = self._spec
        of = f"{spec.analysis.n} registered held-out items" if compared else f"stage '{stage}'"
        if gate is not None and not compared:
            of += f", attempt {gate.attempt}"
        where = self._device(stage, gate)
        return f"{of}; {spec.model.source}, seed {spec.analysis.seeds[0]}{f', {where}' if where else ''}"

    def _device(self, stage: str, gate: _Gate | None) -> str:
        ended = find(self._entries, f"exit/{self._entries[0].entry.session}.{stage}.{gate.attempt}") if gate else None
        digest = ended.body.get("manifest") if ended else None
        return Manifest.model_validate_json(self._store.get(digest)).device if digest else ""
