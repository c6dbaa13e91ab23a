"""The audit of further seeds: registered after the end, counted all, and the figures computed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reviews.comparison.seed_comparison import combine_seeds, compare_seed, one_seed
from reviews.history.history import History
from specs.system.errors import PeergateError
from specs.trail.session_bodies import ReplicationEntry, ReplicationPlanEntry


def replication_damage(
    run: Path, history: History, trail_name: str, store_name: str, notes: list[str]
) -> Iterator[str]:
    """Check the plan of further seeds and their figures, from the sessions that lie next to this one.

    A figure that cannot be recomputed, because a session is missing or has changed since the count, is a note.
    """
    planned, counted = history.find(ReplicationPlanEntry), history.find(ReplicationEntry)
    if planned is not None and not history.before(planned).is_closed:
        yield f"entry {planned.seq} ({planned.kind}): the session had not ended"
    if counted is None:
        return
    where, body = f"entry {counted.seq} ({counted.kind})", counted.body
    if planned is None or planned.seq > counted.seq or body.plan != planned.digest:
        yield f"{where}: does not follow the plan registered before it"
        return
    plan = planned.body
    if set(body.heads) != set(plan.sessions):
        yield f"{where}: does not count the sessions that the plan names"
        return
    others = {name: _up_to(run.parent / name, trail_name, store_name, head) for name, head in body.heads.items()}
    if gone := sorted(name for name, other in others.items() if other is None):
        notes.append(
            f"further seeds not computed again: not next to this session as they were counted: {', '.join(gone)}"
        )
        return
    first = compare_seed(run, history)
    seeds = [
        one_seed(run.parent / name, others[name] or History(()), first, seed, body.plan)
        for seed, name in zip(plan.seeds, plan.sessions, strict=True)
    ]
    if history.store.get_value(body.result) != combine_seeds(first, seeds).as_json():
        yield f"{where}: the figures differ from those of the raw rows of {', '.join(plan.sessions)}"


def _up_to(run: Path, trail_name: str, store_name: str, head: str) -> History | None:
    """Return what a session recorded up to the entry that was its newest; None if it is not there."""
    try:
        history = History.read(run / trail_name, run / store_name)
    except (PeergateError, OSError):
        return None
    digests = [entry.digest for entry in history]
    return history[: digests.index(head) + 1] if head in digests else None
