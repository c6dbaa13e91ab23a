"""The nodes that judge: design_gate, measure, check, review, decide, human. They use nothing but the trail.

Metrics come from raw rows, checks from evidence, the packet from both, the verdict from the packet alone, and the
decision is computed from packet and verdict.
"""

from __future__ import annotations

from langgraph.types import interrupt

from reviews.checks.measuring_code import measuring_code
from reviews.gate.check_list import run_checks
from reviews.gate.gate_decision import looked_up, settle, summarise_conditions
from reviews.gate.grants import opened_by
from reviews.gate.measurer import measure as measure_rows
from reviews.gate.packet import build_design_packet
from reviews.gate.packet_derivation import check_design, derive_packet
from reviews.history.people import design_attempt, last_question
from reviews.trail.chain.envelope import as_entry_of
from sessions.nodes.budget import follow_answer
from sessions.nodes.position import after_decision
from sessions.pages.diagnosis.diagnosis import gate_line
from sessions.requests.reviewer_call import ask
from sessions.run.money import ledger
from sessions.session import Session, State
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import ChecksEntry, DecisionEntry, MetricsEntry, PlanEntry, RetractionEntry, VerdictEntry
from specs.trail.session_bodies import BudgetEntry
from specs.trail.verdict import CheckResult, Packet, Status, Verdict


def design_gate(session: Session, state: State) -> State:
    """Judge the design before anything is spent: power, overlap of the splits, independence, cost."""
    session.display.say("design gate: power, overlap of training and held-out data, independence, cost")
    resolved, attempt = session.resolved, design_attempt(session.history)
    results = check_design(resolved, session.store, resolved.attempt_costs())
    session.display.checks(results)
    digest = keep_checks(session, DESIGN, attempt, results)
    packet = build_design_packet(resolved, results, checks_digest=digest)
    ask(session, DESIGN, attempt, packet)
    return after_decision(_record_decision(session, DESIGN, None, attempt))


def measure(session: Session, state: State) -> State:
    """Compute the metrics of the attempt from its raw rows."""
    stage, attempt = _where(state)
    try:
        measured = measure_rows(session.evidence(*_where(state)))
        digest, why = session.store.put_value(measured), ""
        session.display.metrics(measured)
    except EvidenceMissing as error:
        digest, why = None, str(error)
        session.display.say(f"  not measured: {error.message}")
    code = measuring_code(session.resolved)
    session.trail.append(MetricsEntry(stage=stage, attempt=attempt, metrics=digest, why=why, code=code))
    return {"route": "go"}


def check(session: Session, state: State) -> State:
    """Run the deterministic checks of the stage's kind."""
    results = run_checks(session.evidence(*_where(state)), session.metrics(*_where(state)))
    session.display.checks(results)
    stage, attempt = _where(state)
    keep_checks(session, stage, attempt, results)
    if kind_of(session.resolved.spec.stage(stage)).trains:
        session.display.say(gate_line(stage, results, session.name))
    return {"route": "go"}


def review(session: Session, state: State) -> State:
    """Build the packet and ask the reviewer."""
    stage, attempt = _where(state)
    checked = session.entry(ChecksEntry, stage, attempt).checks
    history = session.history
    packet = derive_packet(
        history,
        session.evidence(stage, attempt),
        session.metrics(stage, attempt),
        history.attempt(stage, attempt).check_results,
        checked,
    )
    ask(session, stage, attempt, packet)
    return {"route": "go"}


def decide(session: Session, state: State) -> State:
    """Compute the decision and record what it opens."""
    stage, attempt = _where(state)
    return after_decision(_record_decision(session, stage, stage, attempt))


def human(session: Session, state: State) -> State:
    """Ask a person. Nothing before the interrupt has an effect, because it runs again when the answer comes."""
    newest = last_question(session.history)
    request = as_entry_of(newest, BudgetEntry, DecisionEntry, PlanEntry, RetractionEntry)
    reasons = () if isinstance(request.body, PlanEntry) else request.body.reasons
    answer = interrupt({"session": session.name, "question": request.key, "reasons": list(reasons)})
    return follow_answer(session, request, answer)


def _record_decision(session: Session, stage: str, recorded_stage: str | None, attempt: int) -> DecisionEntry:
    """Compute the decision of the recorded packet and verdict and record it."""
    judged = session.entry(VerdictEntry, stage, attempt)
    packet = session.store.read(judged.packet, Packet.model_validate_json)
    verdict = session.store.read(judged.verdict, Verdict.model_validate_json)
    history = session.history
    decision = settle(session.resolved, packet, verdict, attempt, looked_up(history, stage))
    body = {
        "stage": recorded_stage,
        "attempt": attempt,
        "outcome": decision.outcome,
        "reasons": list(decision.reasons),
        "required": {
            change.parameter: change.value
            for change in decision.required_changes
            if change.parameter is not None and change.value is not None
        },
        "decision": session.store.put_value(decision),
        "code": measuring_code(session.resolved),
        "opens": opened_by(session.resolved, history, recorded_stage, decision.outcome),
    } | summarise_conditions(decision)
    recorded = session.trail.append(DecisionEntry.model_validate(body)).body
    session.display.decision(decision, ledger.balance(session.trail, session.resolved.spec.budget))
    return recorded


def keep_checks(session: Session, stage: str, attempt: int, results: tuple[CheckResult, ...]) -> str:
    """Record check results and return the digest they are kept under."""
    digest = session.store.put_value([result.model_dump(mode="json") for result in results])
    summary: dict[str, Status] = {result.id: result.status for result in results}
    body = ChecksEntry(stage=stage, attempt=attempt, checks=digest, summary=summary)
    return session.trail.append(body).body.checks


def _where(state: State) -> tuple[str, int]:
    return state.get("stage", ""), state.get("attempt", 0)
