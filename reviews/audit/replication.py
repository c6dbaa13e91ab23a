"""The audit of further seeds: registered after the end, counted all, and the figures computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from reviews.comparison.seed_comparison import combine_seeds, compare_seed, one_seed
from reviews.evidence.registered_evidence import find
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from specs.system.errors import PeergateError
from specs.trail.session_bodies import ReplicationEntry, ReplicationResultEntry


def replication_damage(
    run: Path, entries: Sequence[RecordedEntry], trail_name: str, store_name: str, notes: list[str]
) -> Iterator[str]:
    """Check the plan of further seeds and their figures, from the sessions that lie next to this one.

    A figure that cannot be recomputed, because a session is missing or has changed since the count, is a note.
    """
    planned, counted = find(entries, "replication"), find(entries, "replicated")
    if planned is not None and find(entries[: planned.seq], "close") is None:
        yield f"entry {planned.seq} (replication): the session had not ended"
    if counted is None:
        return
    where, body = f"entry {counted.seq} (replicated)", as_entry_of(counted, ReplicationResultEntry).body
    if planned is None or planned.seq > counted.seq or body.plan != planned.digest:
        yield f"{where}: is not of the plan that was registered before it"
        return
    plan = as_entry_of(planned, ReplicationEntry).body
    if set(body.heads) != set(plan.sessions):
        yield f"{where}: does not count the sessions that the plan names"
        return
    trails = {name: _up_to(run.parent / name / trail_name, head) for name, head in body.heads.items()}
    if gone := sorted(name for name, trail in trails.items() if trail is None):
        notes.append(
            f"further seeds not computed again: not next to this session as they were counted: {', '.join(gone)}"
        )
        return
    store = Store(run / store_name)
    first = compare_seed(run, History(entries, store))
    seeds = [
        one_seed(
            run.parent / name,
            History(trails[name] or [], Store(run.parent / name / store_name)),
            first,
            seed,
            body.plan,
        )
        for seed, name in zip(plan.seeds, plan.sessions, strict=True)
    ]
    if store.get_value(body.result) != combine_seeds(first, seeds).as_json():
        yield f"{where}: the figures are not those of the raw rows of {', '.join(plan.sessions)}"


def _up_to(trail: Path, head: str) -> list[RecordedEntry] | None:
    """Return the entries of a session up to its newest entry at the time; None if that entry is missing."""
    try:
        entries = read_entries(trail)
    except (PeergateError, OSError):
        return None
    at = next((place for place, entry in enumerate(entries) if entry.digest == head), None)
    return None if at is None else entries[: at + 1]
