"""Trails of format 1: a chain of bare entries, each naming the digest of the one before. Read, never written.

They carry no signatures: an edit shows, who wrote does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reviews.trail.envelope import Recorded
from specs.digests import canonical_bytes, digest_bytes
from specs.trail.entry import GENESIS, Entry

Row = tuple[Any, Any, Any]
"""``(seq, key, data)`` as stored."""


def first_format(data: bytes) -> Recorded:
    """Return a bare entry with its digest.

    Raises:
        ValueError: it is none.
    """
    return Recorded(Entry.model_validate_json(data), digest_bytes(data))


def chain_damage(rows: list[Row], session: str | None = None) -> Iterator[str]:
    """Yield one sentence for every link that does not hold."""
    previous = GENESIS
    clock = 0
    for position, (seq, key, data) in enumerate(rows):
        if not isinstance(data, bytes):
            yield f"entry {position}: is not bytes"
            continue
        try:
            entry = Entry.model_validate_json(data)
            moment = int(entry.time_ns)
            if canonical_bytes(entry.model_dump(mode="json", exclude={"policy", "version"})) != data:
                yield f"entry {position}: bytes are not in canonical form"
        except ValueError as error:
            yield f"entry {position}: unreadable ({str(error).splitlines()[0]})"
            previous = digest_bytes(data)
            continue
        if (entry.seq, entry.key) != (seq, key) or entry.seq != position:
            yield f"entry {position}: says it is entry {entry.seq} '{entry.key}', stored as {seq} '{key}'"
        if entry.previous != previous:
            yield f"entry {position}: names {entry.previous} as the entry before it, which is {previous}"
        if session is not None and entry.session != session:
            yield f"entry {position}: belongs to session '{entry.session}', not '{session}'"
        if moment < clock:
            yield f"entry {position}: is dated before the entry before it"
        clock = moment
        previous = digest_bytes(data)
