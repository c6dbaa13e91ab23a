"""Lift a check, waive a condition, retract a judgement, amend: entries in a person's name. No model can make one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from reviews.checks.measuring_code import measuring_files
from reviews.gate.amendments import amendment_packet, explain_refusals, is_exploratory, list_amended_values
from reviews.gate.check_list import all_checks
from reviews.gate.gate_decision import looked_up, settle, summarise_conditions
from reviews.gate.loosening_check import amendment_checks
from reviews.history.history import History
from reviews.history.people import obligations
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.nodes import act
from sessions.nodes.judge import keep_checks
from sessions.nodes.witness import end_witnesses
from sessions.pages.report.live_display import Terminal
from sessions.requests.reviewer_call import ask, without_review
from sessions.run.lease import lease, stand_by
from sessions.run.money import ledger
from sessions.run.money.estimate import require_disk_limit
from sessions.run.run_layout import STORE, TRAIL, require_run
from sessions.run.signed_specs import needs_signature, trust_spec
from sessions.runtime.wiring import make_session
from specs.lint.rules import lint
from specs.loading.loading import load_spec
from specs.session.session_spec import ResolvedSpec
from specs.system.errors import BudgetExceeded, UserError
from specs.system.masking import current
from specs.system.regular_files import read_regular
from specs.system.text import json_text, plural
from specs.trail.entry import AMENDMENT
from specs.trail.gate_bodies import AmendmentEntry, ChecksEntry, GrantEntry, OverrideEntry, RetractionEntry
from specs.trail.verdict import Packet, Verdict

_DURATION = re.compile(r"(\d{1,4})([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 86400}


def expiry(text: str | None, now: float) -> float | None:
    """Return when a duration such as ``90m``, ``12h`` or ``2d`` ends, None without one, or raise UserError."""
    if text is None:
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise UserError(f"invalid duration '{text}'", hint="write minutes, hours or days: 90m, 12h, 2d")
    return round(now + int(match[1]) * _SECONDS[match[2]], 3)


def lift_check(run: Path, check: str, stage: str, by: str, reason: str, expires: str | None) -> RecordedEntry:
    """Lift a check for the later gates of a stage, or raise UserError if the stage is not checked by it."""
    with _trail(run) as (trail, resolved):
        names = [stage.name for stage in resolved.spec.stages]
        if stage not in names:
            raise UserError(f"unknown stage '{stage}'", where=str(run), hint=f"stages: {', '.join(names)}")
        kind = resolved.spec.stage(stage).kind
        texts = [check.id for check in all_checks(resolved) if kind in check.kind_names()]
        if check not in texts:
            hint = f"its checks: {', '.join(texts)}"
            raise UserError(f"check '{check}' does not apply to stage '{stage}' ({kind})", where=str(run), hint=hint)
        return _override(trail, by, reason, expires, {"check": check, "stage": stage, "condition": None})


def waive_condition(run: Path, condition: str, by: str, reason: str, expires: str | None) -> RecordedEntry:
    """Waive an open condition of an earlier approval; raise UserError if no such condition is open."""
    with _trail(run) as (trail, _):
        still = [
            obligation.id
            for obligation in obligations(History(trail.iterate()), time.time_ns())
            if obligation.state == "open"
        ]
        if condition not in still:
            hint = f"open are: {', '.join(still)}" if still else "no condition is open"
            raise UserError(f"condition '{condition}' is not open", where=str(run), hint=hint)
        return _override(trail, by, reason, expires, {"check": None, "stage": None, "condition": condition})


@contextmanager
def _trail(run: Path) -> Generator[tuple[Trail, ResolvedSpec]]:
    """Open the trail of a session that is not closed. It may be running: another entry does no harm."""
    path = require_run(run) / TRAIL
    trail = Trail(path, run.resolve().name)
    try:
        trail.verify_chain()
        history = History(trail.iterate(), Store(run / STORE))
        if history.is_closed:
            raise UserError("a closed session cannot be overridden", where=str(run))
        yield trail, history.resolved
    finally:
        trail.close()


def _override(trail: Trail, by: str, reason: str, expires: str | None, lifted: dict[str, Any]) -> RecordedEntry:
    number = sum(1 for _ in trail.iterate(OverrideEntry)) + 1
    body = OverrideEntry(**lifted, by=by, reason=reason, expires=expiry(expires, time.time()))
    return trail.append(body, OverrideEntry.key_of(number))


def retract(run: Path, wanted: str, by: str, reason: str, display: Terminal) -> RecordedEntry[RetractionEntry]:
    """Retract a judgement, and every later judgement and grant; end the jobs that those granted.

    An open session then asks a person about the stage of the judgement. A closed one stays closed, and reports that its
    result was taken back.

    Raises:
        UserError: the entry is not a judgement in force.
        LeaseHeld: the session runs.
    """
    with lease(require_run(run)) as current:
        session = make_session(run, display)
        try:
            stand_by(session.trail, current)
            history = session.history
            standing = history.judgements
            used = next((entry for entry in standing if wanted in (str(entry.seq), entry.key)), None)
            if used is None:
                known = ", ".join(f"{value.seq} ({value.key})" for value in standing) or "none"
                raise UserError(f"no judgement '{wanted}' in force", where=str(run), hint=f"in force: {known}")
            since = history[used.seq :]
            act.end_jobs(session, since, "the judgement that granted it was taken back")
            end_witnesses(session, since, "the judgement that granted its job was taken back")
            body = RetractionEntry(
                since=used.seq,
                stage=used.body.stage,
                attempt=used.body.attempt,
                judgements=tuple(entry.key for entry in standing if entry.seq >= used.seq),
                grants=tuple(entry.key for entry in since.of(GrantEntry)),
                by=by,
                reason=reason,
                reasons=(f"{by} took {used.key} back: {reason}",),
            )
            return session.trail.append(body, RetractionEntry.key_of(len(history.of(RetractionEntry)) + 1))
        finally:
            session.trail.close()


def amend(
    run: Path, spec_path: Path, by: str, reason: str, override: bool, display: Terminal
) -> RecordedEntry[AmendmentEntry]:
    """Have a changed spec reviewed and, if it is approved, register it in place of the old one.

    With ``override`` it is registered after any review, and counted as an override. Every try is recorded.

    Raises:
        SpecError: the changed spec is wrong.
        UserError: nothing is changed, a change is not allowed, or the session is closed.
        BudgetExceeded: the shares for reviews and teardown do not pay for its review.
        LeaseHeld: the session runs.
    """

    def load_amended_spec(old: ResolvedSpec) -> tuple[ResolvedSpec, bytes]:
        unconfined = "trusted" if needs_signature(spec_path) else "named"
        new = load_spec(spec_path, old.spec.profile, unconfined=unconfined)
        require_disk_limit(new, spec_path, old.spec.profile)
        trust_spec(new, sandbox=unconfined == "trusted" or new.spec.verifier.sandbox)
        return new, read_regular(spec_path)

    return _amend(run, load_amended_spec, str(spec_path), by, reason, override, display)


def raise_budget(
    run: Path, usd: float, by: str, reason: str, override: bool, display: Terminal
) -> RecordedEntry[AmendmentEntry]:
    """Have the registered spec reviewed with a larger ``max_cost_usd`` and nothing else changed, as :func:`amend` does.

    Raises:
        UserError: it is not larger, or the rules of specs speak against it.
    """

    def apply_budget(old: ResolvedSpec) -> tuple[ResolvedSpec, bytes]:
        most = old.spec.budget.max_cost_usd
        if not isfinite(usd) or usd <= most:
            raise UserError(f"must be more than {most:g} USD, got {usd:g}", where="budget.max_cost_usd")
        spec = old.spec.model_copy(update={"budget": old.spec.budget.model_copy(update={"max_cost_usd": usd})})
        if problems := lint(spec):
            raise UserError(problems[0].message, where="budget.max_cost_usd", hint=problems[0].hint)
        return old.model_copy(update={"spec": spec}), json_text(spec.model_dump(mode="json")).encode()

    return _amend(run, apply_budget, "budget.max_cost_usd", by, reason, override, display)


def _amend(
    run: Path,
    changed: Callable[[ResolvedSpec], tuple[ResolvedSpec, bytes]],
    where: str,
    by: str,
    reason: str,
    override: bool,
    display: Terminal,
) -> RecordedEntry[AmendmentEntry]:
    """Review and record a change; ``changed`` gives the new spec and its text."""
    # Masked as in the trail, because the packet quotes it and is rebuilt from the trail.
    reason = current().text(reason)
    with lease(require_run(run)) as stored_value:
        session = make_session(run, display)
        try:
            stand_by(session.trail, stored_value)
            history = session.history
            if history.is_closed:
                raise UserError("a closed session cannot be amended", where=str(run))
            old = session.resolved
            new, source = changed(old)
            changes = list_amended_values(history, old, new)
            if not changes:
                raise UserError("the spec is unchanged", where=where)
            if problems := explain_refusals(history, old, changes):
                raise UserError("; ".join(problems), where=where)
            # Counted by checks, the first entry of a try: a killed try does not continue.
            number = sum(entry.body.stage == AMENDMENT for entry in history.of(ChecksEntry)) + 1
            checks = amendment_checks(history, old, new, new.attempt_costs())
            display.say(f"amendment {number}: {plural(len(changes), 'change')}, reviewed like a design")
            display.checks(checks)
            text = keep_checks(session, AMENDMENT, number, checks)
            packet = amendment_packet(history, old, new, checks, checks_digest=text, reason=reason)
            try:
                judged = ask(session, AMENDMENT, number, packet)
            except BudgetExceeded as error:
                if not override:
                    hint = "`peergate amend --override` puts it in force without a review, in your name"
                    raise BudgetExceeded(error.message, where=error.where, hint=hint) from error
                judged = without_review(session, AMENDMENT, number, error)
            verdict = Verdict.model_validate(session.store.get_value(judged.body.verdict))
            displayed_packet = Packet.model_validate(session.store.get_value(judged.body.packet))
            looked = looked_up(session.history, AMENDMENT)
            decision = settle(new, displayed_packet, verdict, number, looked)
            if new.spec.constitution is not None:
                # Stages read the kept constitution.
                session.store.put(read_regular(new.path(new.spec.constitution)))
            display.decision(decision, ledger.balance(session.trail, new.spec.budget))
            body = {
                "outcome": decision.outcome,
                "reasons": list(decision.reasons),
                "registration": new.registration(),
                "spec": session.store.put_value(new),
                "source": session.store.put(source),
                "changes": [change._asdict() for change in changes],
                "exploratory": is_exploratory(history, changes),
                "packet": judged.body.packet,
                "verdict": judged.body.verdict,
                "by": by,
                "reason": reason,
                "overridden": override and decision.outcome != "approve",
                "code": session.store.put_value(dict(measuring_files(new))),
            } | summarise_conditions(decision.model_copy(update={"stage": AMENDMENT}))
            return session.trail.append(AmendmentEntry.model_validate(body), AmendmentEntry.key_of(number))
        finally:
            session.trail.close()
