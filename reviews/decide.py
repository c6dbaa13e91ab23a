"""Interim."""
from specs.verdicts import Decision
def decide(*, stage, attempt, checks, criteria, verdict, packet_digest, resolvable, allowed_ranges, current, attempts_left):
    reasons = []; outcome = "approve"; changes = []
    bad = [c for c in checks if c.blocking and c.status in ("FAIL", "BLOCKED", "ERROR")]
    unmet = [c for c in criteria if not c.met and not c.hypothesis]
    if any(c.status == "FAIL" and not c.repairable for c in bad): outcome = "reject"
    elif bad: outcome = "escalate"
    elif unmet:
        for f in verdict.findings:
            if f.severity == "blocking" and f.required_change: changes.append(f.required_change)
        outcome = "revise" if len(changes) >= len(unmet) and attempts_left > 0 else "escalate"
    elif any(not c.met for c in criteria): outcome = "null"
    reasons = [f"check {c.id} is {c.status}: {c.detail}" for c in bad] + [f"{c.criterion} is not met: {c.value}" for c in criteria if not c.met]
    return Decision(stage=stage, attempt=attempt, outcome=outcome, reasons=tuple(reasons) or ("all hold",), required_changes=tuple(changes), packet=packet_digest, verdict=verdict.content_digest())
