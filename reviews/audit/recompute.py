"""Judge again: metrics, checks, packet, the embedded reviewer's verdict and the decision, from the stored raw rows.

A decision made by other code than this (an older run, a newer Peergate) is not compared, and the audit says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reviews.audit.lookup_check import lookup_damage
from reviews.checks.definition import GateCheck
from reviews.checks.measuring_code import measuring_code
from reviews.evidence.gather import gather
from reviews.evidence.registered_evidence import find, registered_spec
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
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from reviews.trail.chain.store import Store
from specs.loading.loading import read_resolved
from specs.session.session_spec import ResolvedSpec
from specs.stages.base.metric import MetricSet
from specs.stages.base.stage import TASKS
from specs.stages.registry import kind_of
from specs.system.confinement.task_file import is_trusted
from specs.system.confinement.verifier_process import describe_task
from specs.system.digests import digest_value
from specs.system.errors import EvidenceMissing, PeergateError, PluginFault, UnconfinedTask
from specs.trail.entry import AMENDMENT, DESIGN
from specs.trail.gate_bodies import VerdictEntry
from specs.trail.verdict import CheckResult, Decision, Packet, Verdict


def rederive(run: Path, entries: list[RecordedEntry], store: Store, damage: list[str], notes: list[str]) -> int:
    """Derive every decision again; append what differs to ``damage``. Returns how many were derived."""
    count = 0
    for recorded in entries:
        kind = recorded.kind
        if kind not in ("decision", "amendment"):
            continue
        where = f"entry {recorded.seq} ({kind} {recorded.key.partition('/')[2]})"
        try:
            code = recorded.raw["code"]
            resolved = spec_at_hand(entries[: recorded.seq + 1], store, code)
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
            if kind == "amendment":
                damage += [f"{where}: {problem}" for problem in _amendment(entries, store, recorded)]
            else:
                texts = _differences(run, entries, store, recorded, notes)
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


def spec_at_hand(entries: Sequence[RecordedEntry], store: Store, code: str | None) -> ResolvedSpec | None:
    """Return the registered spec if the measuring code of that digest is the code at hand.

    Other code may have registered a spec that this version cannot read; under the code at hand that is damage: a
    PeergateError.
    """
    try:
        resolved = registered_spec(entries, store)[0]
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
    run: Path, entries: list[RecordedEntry], store: Store, decision: RecordedEntry, notes: list[str]
) -> list[str]:
    """Return what is derived otherwise; the first difference explains those after it."""
    stage, attempt = decision.raw["stage"], decision.raw["attempt"]
    stated = Decision.model_validate_json(store.get(decision.raw["decision"]))
    packet = Packet.model_validate_json(store.get(stated.packet))
    recorded_entry = find(entries, f"packet/{stage or DESIGN}.{attempt}")
    if recorded_entry is None or recorded_entry.raw["packet"] != stated.packet:
        return ["the decision names a different packet from the recorded packet"]
    # What came later cannot have been known: everything is derived from the trail as it was.
    then = entries[: recorded_entry.seq]
    if stage is None:
        texts = _design_packet(then, store, packet)
    else:
        texts = _attempt_packet(run, then, store, stage, attempt, packet, notes)
    before, name = entries[: decision.seq], stage or DESIGN
    texts += lookup_damage(run, before, store, name, attempt, is_design=stage is None)
    return texts or _verdict_and_decision(before, store, decision, stated, packet)


def _amendment(entries: list[RecordedEntry], store: Store, recorded: RecordedEntry) -> list[str]:
    """Judge an amendment again: its changes, its design checks, and what packet and verdict give."""
    body, number = recorded.raw, int(recorded.key.partition("/")[2])
    recorded_entry, judged = (
        find(entries, f"packet/{AMENDMENT}.{number}"),
        find(entries, f"verdict/{AMENDMENT}.{number}"),
    )
    on_record = recorded_entry and judged and (recorded_entry.raw["packet"], judged.raw["verdict"])
    if recorded_entry is None or on_record != (body["packet"], body["verdict"]):
        return ["packet and verdict are not those on record"]
    checked = find(entries, f"checks/{AMENDMENT}.{number}")
    before = entries[: checked.seq if checked else recorded_entry.seq]
    old, _ = registered_spec(before, store)
    new = read_resolved(store.get(body["spec"]))
    changes = list_amended_values(History(before), old, new)
    checks = amendment_checks(History(before, store), old, new, new.attempt_costs())
    packet = Packet.model_validate_json(store.get(body["packet"]))
    again = amendment_packet(History(before), old, new, checks, checks_digest=_digest_of(checks), reason=body["reason"])
    verdict = Verdict.model_validate_json(store.get(body["verdict"]))
    seen_recorded_entries = entries[: recorded.seq]
    decision = settle(new, packet, verdict, number, looked_up(History(seen_recorded_entries, store), AMENDMENT))
    problems = list(lookup_damage(Path(), seen_recorded_entries, store, AMENDMENT, number, is_design=True))
    if again != packet:
        problems.append(_other_checks(packet.checks, checks) or "the amended design gives another packet")
    if explain_refusals(History(before), old, changes):
        problems.append(f"amends what cannot be amended: {'; '.join(explain_refusals(History(before), old, changes))}")
    facts = {
        "changes": [change._asdict() for change in changes],
        "exploratory": is_exploratory(History(before), changes),
    }
    facts |= {"outcome": decision.outcome, "reasons": list(decision.reasons), "registration": new.registration()}
    problems += [f"{name} is {body[name]}, derived {value}" for name, value in facts.items() if body[name] != value]
    return problems


def _design_packet(entries: list[RecordedEntry], store: Store, packet: Packet) -> list[str]:
    resolved, _ = registered_spec(entries, store)
    checks = check_design(resolved, store, resolved.attempt_costs())
    digest = _digest_of(checks)
    if build_design_packet(resolved, checks, checks_digest=digest) != packet:
        return [_other_checks(packet.checks, checks) or "the design gives another packet than the recorded one"]
    return []


def _attempt_packet(
    run: Path, entries: list[RecordedEntry], store: Store, stage: str, attempt: int, packet: Packet, notes: list[str]
) -> list[str]:
    evidence = gather(run, History(entries, store), stage, attempt)
    measured = find(entries, f"metrics/{stage}.{attempt}")
    if measured is None:
        return ["was decided without metrics"]
    digest = measured.raw["metrics"]
    recorded = MetricSet.model_validate_json(store.get(digest)) if digest else None
    try:
        again: MetricSet | None = measure(evidence)
    except EvidenceMissing:
        again = None
    if again != recorded:
        return [f"the metrics computed from the raw rows are not the recorded ones{_which(again, recorded)}"]
    checks = run_checks(evidence, again)
    if not all(path.exists() for path in (*evidence.inputs.values(), *evidence.outputs.values())):
        checks = _as_with_weights(all_checks(evidence.resolved), checks, packet, f"{stage}.{attempt}", notes)
    if derive_packet(History(entries, store), evidence, again, checks, _digest_of(checks)) != packet:
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


def _verdict_and_decision(
    entries: list[RecordedEntry], store: Store, recorded: RecordedEntry, decision: Decision, packet: Packet
) -> list[str]:
    problems: list[str] = []
    stage, attempt = recorded.raw["stage"], recorded.raw["attempt"]
    resolved, _ = registered_spec(entries, store)
    verdict = Verdict.model_validate_json(store.get(decision.verdict))
    entry = find(entries, f"verdict/{stage or DESIGN}.{attempt}")
    if entry is None or (entry.raw["packet"], entry.raw["verdict"]) != (decision.packet, decision.verdict):
        problems.append(
            "the decision names a different verdict, or one on a different packet, from the recorded verdict"
        )
    if entry is not None and entry.raw.get("members") is not None and _merge_panel(entries, store, entry) != verdict:
        problems.append("the members' verdicts give another panel verdict than the recorded one")
    why = verdict.no_verdict
    stated = (entry.raw["error"], entry.raw.get("cause")) if entry is not None else None
    if stated is not None and stated != ((str(why), why.cause) if why else ("", None)):
        problems.append("the entry of the verdict does not say of its absence what the stored verdict says")
    before = verdict_again(History(entries, store), packet)
    if before is not None and before != verdict:
        problems.append(f"the evidence is that of attempt {packet.unchanged_since}, the verdict is another")
    if verdict.reviewer == Checklist.name and before is None:
        # A repeated verdict is compared above: its words hold the figures of then. If the reviewer's process was
        # killed, the verdict in its place approves nothing.
        lost = verdict.no_verdict
        if verdict != (no_verdict(verdict.reviewer, lost) if lost else Checklist().review(packet, decision.packet)):
            problems.append("the checklist gives another verdict than the recorded one")
    again = settle(resolved, packet, verdict, attempt, looked_up(History(entries, store), packet.stage))
    if again != decision:
        problems.append(f"packet and verdict give '{again.outcome}', recorded is '{decision.outcome}'")
    if recorded.raw["outcome"] != decision.outcome or list(decision.reasons) != recorded.raw["reasons"]:
        problems.append("the entry does not say what the stored decision says")
    if summarise_conditions(decision) != {name: recorded.raw.get(name) for name in ("conditions", "met")}:
        problems.append("the entry does not carry the conditions of the stored decision")
    opens = opened_by(resolved, History(entries), stage, decision.outcome)
    if opens != recorded.raw["opens"]:
        problems.append(f"opens {recorded.raw['opens']}, but '{decision.outcome}' opens {opens}")
    return problems


def _merge_panel(entries: list[RecordedEntry], store: Store, entry: RecordedEntry) -> Verdict:
    """Merge the verdicts of a panel's members again."""
    recorded_entries = [find(entries, f"{entry.key}/{number}") for number in range(1, entry.raw["members"] + 1)]
    recorded = Verdict.model_validate_json(store.get(entry.raw["verdict"]))
    answers = [
        member_answer(store, as_entry_of(recorded_entry, VerdictEntry))
        for recorded_entry in recorded_entries
        if recorded_entry is not None
    ]
    return merge(answers, recorded.quorum)


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
    return f"checks come out otherwise: {', '.join(parts)}" if parts else ""
