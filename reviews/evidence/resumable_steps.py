"""Which saved steps of cut-off attempts a training may continue from.

Only attempts right before it count, each lost or ended from outside, with the same stage, parameters, inputs, model and
registration.
"""

from __future__ import annotations

from collections.abc import Iterator

from reviews.history.attempt import Attempt
from reviews.history.recorded_history import RecordedHistory
from reviews.trail.chain.envelope import RecordedEntry
from specs.jobs.job_records import JobOrder
from specs.stages.registry import STAGE_KINDS
from specs.trail.session_bodies import LaunchEntry

CUT_OFF = ("signal", "cancelled", "dead_man")
"""How jobs end that were ended from outside. One that used up its time is not among them: it would have more of it."""


def same_work(before: JobOrder, now: JobOrder) -> bool:
    """Return whether an order is for what another one was for."""
    unlike = {"attempt", "decision", "issued", "expires", "price_cap_usd"}
    # Inputs are in the grant, by their digests: where they lie may differ.
    other = {"key", "grant", "inputs", "resumes", "dead_man_minutes"}
    orders = [job_order.model_dump(mode="json", exclude=other) for job_order in (before, now)]
    grants = [job_order.grant.model_dump(mode="json", exclude=unlike) for job_order in (before, now)]
    return orders[0] == orders[1] and grants[0] == grants[1]


def sources(history: RecordedHistory, order: JobOrder) -> Iterator[JobOrder]:
    """Yield the orders of the earlier attempts that an order may continue from, the newest first.

    Raises:
        EvidenceMissing: an order or exit record is not in the store.
        AuditDamage: it was changed.
    """
    if not STAGE_KINDS[order.kind].resumable:
        return
    grant = order.grant
    for number in range(grant.attempt - 1, 0, -1):
        attempt = history.attempt(grant.stage, number)
        if attempt.order is None:
            continue
        if not (_cut_off(attempt) and same_work(attempt.order, order)):
            return
        yield attempt.order


def _cut_off(attempt: Attempt) -> bool:
    record = attempt.exit_record
    return attempt.lost is not None or (record is not None and record.reason in CUT_OFF and record.code != 0)


def takeover_damage(history: RecordedHistory, launch: RecordedEntry[LaunchEntry], order: JobOrder) -> Iterator[str]:
    """Check that a job continued from an allowed step, and that its launch says so."""
    number, resumes, resumed = launch.seq, order.resumes, launch.body.resumes
    if resumed != resumes:
        yield f"entry {number} (launch): says that the job continues from {resumed}, its order says {resumes}"
    elif resumes is not None:
        allowed = [job_order.grant.attempt for job_order in sources(history.before(launch), order)]
        if resumes.attempt not in allowed:
            yield f"entry {number} (launch): continues from attempt {resumes.attempt}; allowed: {allowed or 'none'}"
