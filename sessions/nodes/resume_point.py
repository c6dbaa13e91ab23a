"""Which saved step an attempt goes on from, if the one before it was cut off. What was launched stays as it was."""

from __future__ import annotations

from reviews.evidence.resumable_steps import sources
from sessions.jobs.launcher import job_folder
from sessions.session import Session
from specs.job_records import JobOrder
from training.jobs.saved_steps import offered


def with_takeover(session: Session, order: JobOrder) -> JobOrder:
    """Return the order with the newest whole step of the attempts it may go on from.

    The step is bound by its digest: in the order, and with that in the trail, before the job exists.
    """
    launched = session.trail.find(f"launch/{order.key}")
    if launched is not None:
        return JobOrder.model_validate_json(session.store.get(launched.body["order"]))
    for before in sources(list(session.trail.iterate()), session.store, order):
        try:
            found = offered(session.run, job_folder(session.run, before.key), before.grant.attempt)
        except (OSError, ValueError) as error:
            session.display.say(
                f"{order.key} begins anew: what attempt {before.grant.attempt} saved is no use: {error}"
            )
            continue
        if found is not None:
            session.display.say(f"{order.key} goes on from step {found.step} of attempt {found.attempt}")
            return order.model_copy(update={"resumes": found})
    return order
