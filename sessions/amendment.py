"""`peergate amend`: changes the registered spec of an open session, after a separate review."""

from __future__ import annotations

from pathlib import Path

from reviews.checks.measuring_code import measuring_files
from reviews.gate.amendments import AMENDMENT, amended, amendment_packet, is_exploratory, refused
from reviews.gate.gate_decision import carried, settle
from reviews.gate.packet_derivation import check_design
from reviews.trail.envelope import Recorded
from sessions.money import ledger
from sessions.nodes.judge import keep_checks
from sessions.nodes.reviewer_call import ask, without_review
from sessions.run.lease import lease, stand_by
from sessions.run.run_layout import require_run
from sessions.session import Display
from sessions.wiring import make_session
from specs.errors import BudgetExceeded, UserError
from specs.masking import current
from specs.session.loading import load_spec
from specs.trail.verdict import Packet, Verdict


def amend(run: Path, spec_path: Path, by: str, reason: str, override: bool, display: Display) -> Recorded:
    """Have a changed spec reviewed and, if it is approved, register it in place of the old one.

    With ``override`` it is registered after any review, and counted as an override. Every try is recorded.

    Raises:
        SpecError: the changed spec is wrong.
        UserError: nothing is changed, a change is not allowed, or the session is closed.
        BudgetExceeded: the shares for reviews and teardown do not pay for its review.
        LeaseHeld: the session runs.
    """
    # Masked as in the trail, because the packet quotes it and is rebuilt from the trail.
    reason = current().text(reason)
    with lease(require_run(run)) as held:
        session = make_session(run, display)
        try:
            stand_by(session.trail, held)
            if session.trail.find("close") is not None:
                raise UserError("the session is closed, nothing can be amended any more", where=str(run))
            entries = list(session.trail.iterate())
            old = session.resolved
            new = load_spec(spec_path, old.spec.profile)
            found = amended(entries, old, new)
            if not found:
                raise UserError("the spec is the registered one, nothing is amended", where=str(spec_path))
            if problems := refused(entries, old, found):
                raise UserError("; ".join(problems), where=str(spec_path))
            # Counted by checks, the first entry of a try: a killed try does not continue.
            number = sum(one.entry.key.startswith(f"checks/{AMENDMENT}.") for one in entries) + 1
            checks = check_design(new, session.store)
            display.say(f"amendment {number}: {len(found)} changes, reviewed like a design")
            display.checks(checks)
            kept = keep_checks(session, AMENDMENT, number, checks)
            packet = amendment_packet(entries, old, new, checks, checks_digest=kept, reason=reason)
            try:
                judged = ask(session, AMENDMENT, number, packet)
            except BudgetExceeded as error:
                if not override:
                    hint = "`peergate amend --override` puts it in force without a review, in your name"
                    raise BudgetExceeded(error.message, where=error.where, hint=hint) from error
                judged = without_review(session, AMENDMENT, number, error)
            verdict = Verdict.model_validate(session.store.get_value(judged.body["verdict"]))
            shown = Packet.model_validate(session.store.get_value(judged.body["packet"]))
            decision = settle(new, shown, verdict, number)
            # Stages read the kept constitution.
            session.store.put(new.path(new.spec.constitution).read_bytes())
            display.decision(decision, ledger.balance(session.trail, new.spec.budget))
            body = {
                "outcome": decision.outcome,
                "reasons": list(decision.reasons),
                "registration": new.registration(),
                "spec": session.store.put_value(new),
                "source": session.store.put(spec_path.read_bytes()),
                "changes": [change._asdict() for change in found],
                "exploratory": is_exploratory(entries, found),
                "packet": judged.body["packet"],
                "verdict": judged.body["verdict"],
                "by": by,
                "reason": reason,
                "overridden": override and decision.outcome != "approve",
                "code": session.store.put_value(dict(measuring_files(new))),
            } | carried(decision.model_copy(update={"stage": AMENDMENT}))
            return session.trail.append("amendment", f"amendment/{number}", body)
        finally:
            session.trail.close()
