"""Which saved steps of cut-off attempts a training may continue from.

Only attempts right before it count, each lost or ended from outside, with the same stage, parameters, inputs, model and
registration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reviews.evidence.gather import find
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from specs.jobs.job_records import ExitRecord, JobOrder
from specs.stages.registry import STAGE_KINDS

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


def sources(entries: Sequence[RecordedEntry], store: Store, order: JobOrder) -> Iterator[JobOrder]:
    """Yield the orders of the earlier attempts that an order may continue from, the newest first.

    Raises:
        EvidenceMissing: an order or exit record is not in the store.
        AuditDamage: it was changed.
    """
    if not STAGE_KINDS[order.kind].resumable:
        return
    grant = order.grant
    for attempt in range(grant.attempt - 1, 0, -1):
        key = f"{grant.session}.{grant.stage}.{attempt}"
        launch = find(entries, f"launch/{key}")
        if launch is None:
            continue
        before = JobOrder.model_validate_json(store.get(launch.raw["order"]))
        if not (_cut_off(entries, store, key) and same_work(before, order)):
            return
        yield before


def _cut_off(entries: Sequence[RecordedEntry], store: Store, key: str) -> bool:
    if find(entries, f"lost/{key}") is not None:
        return True
    ended = find(entries, f"exit/{key}")
    if ended is None:
        return False
    record = ExitRecord.model_validate_json(store.get(ended.raw["exit"]))
    return record.reason in CUT_OFF and record.code != 0


def takeover_damage(
    entries: Sequence[RecordedEntry], store: Store, launch: RecordedEntry, order: JobOrder
) -> Iterator[str]:
    """Check that a job continued from an allowed step, and that its launch says so."""
    number, resumed = launch.seq, launch.raw.get("resumes")
    resumes = order.resumes
    if resumed != (None if resumes is None else resumes.model_dump(mode="json")):
        yield f"entry {number} (launch): says that the job continues from {resumed}, its order says {resumes}"
    elif resumes is not None:
        allowed = [job_order.grant.attempt for job_order in sources(entries[:number], store, order)]
        if resumes.attempt not in allowed:
            yield f"entry {number} (launch): continues from attempt {resumes.attempt}, allowed are {allowed or 'none'}"
