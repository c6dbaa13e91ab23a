"""Judge again: metrics, checks, packet, the embedded reviewer's verdict and the decision, from the stored raw rows.

A decision made by other code than this (an older run, a newer Peergate) is not compared, and the audit says so.
"""

from __future__ import annotations

from pathlib import Path

from reviews.audit.lookup_check import lookup_damage
from reviews.checks.definition import GateCheck
from reviews.checks.measuring_code import measuring_code
from reviews.evidence.gather import gather
from reviews.gate.amendments import amendment_packet, explain_refusals, is_exploratory, list_amended_values
from reviews.gate.check_list import all_checks, run_checks
from reviews.gate.gate_decision import looked_up, settle, summarise_conditions
from reviews.gate.grants import opened_by
from reviews.gate.loosening_check import amendment_checks
from reviews.gate.measurer import measure
from reviews.gate.packet import build_design_packet
from reviews.gate.packet_derivation import check_design, derive_packet, verdict_again
from reviews.gate.panel import member_answer, merge
from reviews.gate.reviewer import no_verdict
from reviews.history.history import History
from reviews.reviewers.checklist import Checklist
from reviews.stages.programs.code_eval import why_not_run
from reviews.trail.chain.envelope import RecordedEntry
from specs.loading.stored_spec import read_resolved
from specs.session.session_spec import ResolvedSpec
from specs.stages.base.metric import MetricSet
from specs.stages.base.stage import TASKS
from specs.stages.registry import kind_of
from specs.system.confinement.task_file import is_trusted
from specs.system.confinement.verifier_process import describe_task
from specs.system.digests import digest_value
from specs.system.errors import EvidenceMissing, PeergateError, PluginFault, UnconfinedTask
from specs.trail.entry import AMENDMENT
from specs.trail.gate_bodies import AmendmentEntry, ChecksEntry, DecisionEntry, PacketEntry, VerdictEntry
from specs.trail.verdict import CheckResult, Decision, Packet, Verdict


def rederive(run: Path, history: History, damage: list[str], notes: list[str]) -> int:
    """Derive every decision again; append what differs to ``damage``. Returns how many were derived."""
    count = 0
    for recorded in history.of(DecisionEntry, AmendmentEntry):
        if not recorded.fits:
            continue  # It is newer than this Peergate, as the walk notes; another misfit ends the audit before.
        where = f"entry {recorded.seq} ({recorded.kind} {recorded.key.partition('/')[2]})"
        try:
            code = recorded.body.code
            resolved = spec_at_hand(history[: recorded.seq + 1], code)
            if resolved is None:
                notes.append(f"{where}: was made by other code ({code}) and is not derived again")
                continue
            if not is_trusted(resolved.spec.task):
                why = "uses a task file that no spec checked here names"
                notes.append(f"{where}: {why}, and is not derived again; `peergate spec check` a spec with that file")
                continue
            if why := _cannot_judge(resolved):
                notes.append(f"{where}: {why}, and is not derived again")
                continue
            if isinstance(recorded.body, AmendmentEntry):
                texts = _amendment(history, recorded, recorded.body)
            else:
                texts = _differences(run, history, recorded, recorded.body, notes)
            damage += [f"{where}: {problem}" for problem in texts]
            count += 1
        except FORMLESS as error:
            damage.append(f"{where}: cannot be derived again: {formless(error)}")
    return count


def _cannot_judge(resolved: ResolvedSpec) -> str:
    """Return why a verifier or program of a session cannot be run on this machine; empty if all can."""
    if any(kind_of(stage).judged_in_sandbox for stage in resolved.spec.stages) and (why := why_not_run(resolved)):
        return f"programs that its model wrote are not run: {why}"
    for task in sorted(resolved.spec.tasks()):
        try:
            if task not in TASKS:
                describe_task(task)
        except UnconfinedTask as fault:
            return f"has a task whose {fault.message.removeprefix('its ')}"
        except PluginFault:
            # Any other fault is one of the task, and the checks have it.
            continue
    return ""


def spec_at_hand(history: History, code: str | None) -> ResolvedSpec | None:
    """Return the registered spec if the measuring code of that digest is the code at hand.

    Other code may have registered a spec that this version cannot read; under the code at hand that is damage: a
    PeergateError.
    """
    try:
        resolved = history.resolved
    except FORMLESS:
        if code == measuring_code():
            raise
        return None
    return resolved if code == measuring_code(resolved) else None


FORMLESS = (PeergateError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, OSError)
"""The errors that reading bodies and evidence of others may raise, however they are signed."""


def formless(error: Exception) -> str:
    """Return one line for an error of :data:`FORMLESS`."""
    first = next(iter(str(error).splitlines()), "")
    return first if isinstance(error, PeergateError) else f"not of its form: {type(error).__name__}: {first}"


def _differences(
    run: Path, history: History, decision: RecordedEntry, body: DecisionEntry, notes: list[str]
) -> list[str]:
    """Return what is derived otherwise; the first difference explains those after it."""
    store, attempt = history.store, history.attempt_of(body)
    stated = Decision.model_validate_json(store.get(body.decision))
    packet = Packet.model_validate_json(store.get(stated.packet))
    if attempt.packet is None or attempt.packet.body.packet != stated.packet:
        return ["the decision names a different packet from the recorded packet"]
    # What came later cannot have been known: everything is derived from the trail as it was.
    then, before = history.before(attempt.packet), history.before(decision)
    if body.stage is None:
        texts = _design_packet(then, packet)
    else:
        texts = _attempt_packet(run, then, body.stage, body.attempt, packet, notes)
    texts += lookup_damage(run, before, attempt.stage, attempt.number, is_design=body.stage is None)
    return texts or _verdict_and_decision(before, body, stated, packet)


def _amendment(history: History, recorded: RecordedEntry, body: AmendmentEntry) -> list[str]:
    """Judge an amendment again: its changes, its design checks, and what packet and verdict give."""
    store, number, then = history.store, int(recorded.key.partition("/")[2]), history.before(recorded)
    packet_entry, judged = history.find(PacketEntry, AMENDMENT, number), history.find(VerdictEntry, AMENDMENT, number)
    if not packet_entry or not judged or (packet_entry.body.packet, judged.body.verdict) != (body.packet, body.verdict):
        return ["packet and verdict are not those on record"]
    before = history.before(history.find(ChecksEntry, AMENDMENT, number) or packet_entry)
    old, new = before.resolved, read_resolved(store.get(body.spec))
    changes = list_amended_values(before, old, new)
    checks = amendment_checks(before, old, new, new.attempt_costs())
    packet = Packet.model_validate_json(store.get(body.packet))
    again = amendment_packet(before, old, new, checks, checks_digest=_digest_of(checks), reason=body.reason)
    verdict = Verdict.model_validate_json(store.get(body.verdict))
    decision = settle(new, packet, verdict, number, looked_up(then, AMENDMENT))
    problems = list(lookup_damage(Path(), then, AMENDMENT, number, is_design=True))
    if again != packet:
        problems.append(_other_checks(packet.checks, checks) or "the amended design gives another packet")
    if refusals := explain_refusals(before, old, changes):
        problems.append(f"amends what cannot be amended: {'; '.join(refusals)}")
    derived = {
        "changes": [change._asdict() for change in changes],
        "exploratory": is_exploratory(before, changes),
        "outcome": decision.outcome,
        "reasons": list(decision.reasons),
        "registration": new.registration(),
    }
    stated = body.model_dump(mode="json", include=set(derived))
    return problems + [
        f"{name} is {stated[name]}, derived {value}" for name, value in derived.items() if stated[name] != value
    ]


def _design_packet(history: History, packet: Packet) -> list[str]:
    resolved = history.resolved
    checks = check_design(resolved, history.store, resolved.attempt_costs())
    digest = _digest_of(checks)
    if build_design_packet(resolved, checks, checks_digest=digest) != packet:
        return [_other_checks(packet.checks, checks) or "the design gives another packet than the recorded one"]
    return []


def _attempt_packet(
    run: Path, history: History, stage: str, number: int, packet: Packet, notes: list[str]
) -> list[str]:
    evidence, attempt = gather(run, history, stage, number), history.attempt(stage, number)
    if attempt.metrics is None:
        return ["was decided without metrics"]
    recorded = attempt.metric_set
    try:
        again: MetricSet | None = measure(evidence)
    except EvidenceMissing:
        again = None
    if again != recorded:
        return [f"the metrics computed from the raw rows differ from the recorded metrics{_which(again, recorded)}"]
    checks = run_checks(evidence, again)
    if not all(path.exists() for path in (*evidence.inputs.values(), *evidence.outputs.values())):
        checks = _as_with_weights(all_checks(evidence.resolved), checks, packet, attempt.name, notes)
    if derive_packet(history, evidence, again, checks, _digest_of(checks)) != packet:
        return [_other_checks(packet.checks, checks) or "the evidence gives another packet than the recorded one"]
    return []


def _as_with_weights(
    known: tuple[GateCheck, ...], checks: tuple[CheckResult, ...], packet: Packet, attempt: str, notes: list[str]
) -> tuple[CheckResult, ...]:
    """Return results with the recorded ones for checks that compare weights, which are not here."""
    reading = {check.id for check in known if check.reads_weights}
    then = {check.id: check for check in packet.checks if check.id in reading}
    check_results = tuple(then.get(check.id, check) for check in checks)
    if check_results != checks:
        notes.append(f"{attempt}: {', '.join(sorted(then))} compared weights that are not here: taken as recorded")
    return check_results


def _verdict_and_decision(history: History, recorded: DecisionEntry, decision: Decision, packet: Packet) -> list[str]:
    problems: list[str] = []
    verdict = Verdict.model_validate_json(history.store.get(decision.verdict))
    judged = history.attempt_of(recorded).verdict
    if judged is None or (judged.body.packet, judged.body.verdict) != (decision.packet, decision.verdict):
        problems.append(
            "the decision names a different verdict, or one on a different packet, from the recorded verdict"
        )
    if judged is not None and judged.body.members is not None and _merge_panel(history, judged) != verdict:
        problems.append("the members' verdicts give another panel verdict than the recorded one")
    why = verdict.no_verdict
    if judged and (judged.body.error, judged.body.cause) != ((str(why), why.cause) if why else ("", None)):
        problems.append("the verdict's entry and the stored verdict disagree on why none was given")
    before = verdict_again(history, packet)
    if before is not None and before != verdict:
        problems.append(f"the evidence is that of attempt {packet.unchanged_since}, the verdict is another")
    # A repeated verdict is compared above: its words hold the figures of then. If the reviewer's process was killed,
    # the verdict in its place approves nothing.
    checklist = None if verdict.reviewer != Checklist.name or before else Checklist()
    if checklist and verdict != (no_verdict(checklist.name, why) if why else checklist.review(packet, decision.packet)):
        problems.append("the checklist gives another verdict than the recorded one")
    again = settle(history.resolved, packet, verdict, recorded.attempt, looked_up(history, packet.stage))
    if again != decision:
        problems.append(f"packet and verdict give '{again.outcome}', but '{decision.outcome}' is recorded")
    if (recorded.outcome, recorded.reasons) != (decision.outcome, decision.reasons):
        problems.append("the entry disagrees with the stored decision")
    if summarise_conditions(decision) != recorded.model_dump(mode="json", include={"conditions", "met"}):
        problems.append("the entry does not carry the conditions of the stored decision")
    opens = opened_by(history.resolved, history, recorded.stage, decision.outcome)
    opened = recorded.opens and recorded.opens.model_dump()
    if opens != opened:
        problems.append(f"opens {opened}, but '{decision.outcome}' opens {opens}")
    return problems


def _merge_panel(history: History, judged: RecordedEntry[VerdictEntry]) -> Verdict:
    """Merge the verdicts of a panel's members again."""
    body, store = judged.body, history.store
    numbers = range(1, (body.members or 0) + 1)
    members = [history.find(VerdictEntry, body.stage, f"{body.attempt}/{number}") for number in numbers]
    recorded = Verdict.model_validate_json(store.get(body.verdict))
    return merge([member_answer(store, member) for member in members if member is not None], recorded.quorum)


def _digest_of(checks: tuple[CheckResult, ...]) -> str:
    return digest_value([check.model_dump(mode="json") for check in checks])


def _which(again: MetricSet | None, recorded: MetricSet | None) -> str:
    if again is None or recorded is None:
        return f" ({'none' if again is None else 'some'} now, {'none' if recorded is None else 'some'} then)"
    names = sorted(again.metrics.keys() | recorded.metrics.keys())
    differing = [name for name in names if again.metrics.get(name) != recorded.metrics.get(name)]
    return f" ({', '.join(differing)})" if differing else ""


def _other_checks(recorded: tuple[CheckResult, ...], again: tuple[CheckResult, ...]) -> str:
    """Return which checks come out otherwise; empty when none does."""
    now, then = (
        {check_result.id: check_result for check_result in again},
        {check_result.id: check_result for check_result in recorded},
    )
    differing = [id for id in sorted(now.keys() | then.keys()) if now.get(id) != then.get(id)]
    parts = [
        f"{id} is {now[id].status if id in now else 'gone'}, recorded as {then[id].status if id in then else 'nothing'}"
        for id in differing
    ]
    return f"checks give other results: {', '.join(parts)}" if parts else ""
