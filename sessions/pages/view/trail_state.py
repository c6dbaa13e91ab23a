"""The trail of a session for its page: entries in order, and what was verified of them by this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from reviews.audit.export import verify_export
from reviews.audit.verify import Audit, verify_trail
from reviews.trail.anchors import Anchor
from sessions.pages.overview import when
from sessions.pages.report import timeline
from sessions.pages.report.trail_page import keys_of
from sessions.pages.trail_place import TrailPlace
from sessions.pages.view.places import Read, Scope, stamp_of
from sessions.pages.view.stored_value import is_digest
from sessions.run.lease import is_running
from specs.system.errors import UserError
from specs.trail.session_bodies import ExitEntry

ENTRIES_AT_ONCE = 500
AGAIN_AFTER_S = 5.0
"""Seconds between two verifications of a trail that grows and has held so far."""
SEAL = "seal:"
"""What damage to the seal begins with."""


def trail_page(read: Read, first: int) -> dict[str, Any]:
    """Return the entries from a number on, the story, and the keys that may sign."""
    steps = {step.entry.seq: step for step in timeline.describe_entries(read.history)}
    first = max(0, min(first, max(len(read.history) - 1, 0)) // ENTRIES_AT_ONCE * ENTRIES_AT_ONCE)
    visible = read.history[first : first + ENTRIES_AT_ONCE]
    return {
        "count": len(read.history),
        "first": first,
        "last": first + len(visible) - 1,
        "step": ENTRIES_AT_ONCE,
        "rows": [{"entry": entry, "time": when(entry), "step": steps.get(entry.seq)} for entry in visible],
        "keys": keys_of(read.history),
    }


def checked_trail(place: TrailPlace, anchors: Sequence[Anchor] = ()) -> Audit:
    """Verify signatures, roles, order, tree and head of a trail; of an export, its files and what it means too."""
    if place.is_export:
        return verify_export(place.folder, anchors=anchors)
    before = stamp_of(place)
    audit = verify_trail(place.folder, place.trail.name, anchors=anchors)[0]
    late = [text for text in audit.damage if text.startswith(SEAL)]
    if late and is_running(place.folder):
        # Who runs it seals it at the end; until then the seal is of entries before.
        audit.damage = [text for text in audit.damage if text not in late]
        audit.notes += late
    elif late and stamp_of(place) != before:
        # It was sealed meanwhile.
        audit = verify_trail(place.folder, place.trail.name, anchors=anchors)[0]
    return audit


class TrailAudits:
    """Verifies trails again after they have changed; growing trails, every few seconds. For several threads."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._cache: dict[str, tuple[str, float, Audit]] = {}

    def of(self, name: str) -> Audit:
        """Return what was found of a trail, seconds ago at most; raises UserError if there is no such session."""
        place = self._scope.place(name)
        stamp, now = stamp_of(place), time.monotonic()
        known = self._cache.get(name)
        holds = known is not None and known[2].readable and not known[2].damage
        if known is not None and (known[0] == stamp or (holds and now - known[1] < AGAIN_AFTER_S)):
            return known[2]
        audit = checked_trail(place, self._scope.anchors)
        self._cache[name] = stamp, now, audit
        return audit

    def is_of(self, name: str, stamp: str) -> bool:
        """Return whether the last check was of the trail as this stamp says it is, and not seconds older."""
        known = self._cache.get(name)
        return known is not None and known[0] == stamp


def entry_page(read: Read, seq: int) -> dict[str, Any]:
    """Return one entry with what it names, as far as that is kept; raises UserError without such an entry."""
    if not 0 <= seq < len(read.history):
        raise UserError(f"no entry {seq}", hint=f"entries are 0 to {len(read.history) - 1}")
    element = read.history[seq]
    # The whole body is shown, and all digests in it, whatever its kind.
    names = {name: value for name, value in element.raw.items() if isinstance(value, str) and is_digest(value)}
    outputs = element.body.outputs if element.fits and isinstance(element.body, ExitEntry) else {}
    rows = {name: output.digest for name, output in outputs.items()}
    texts = {digest for digest in (*names.values(), *rows.values()) if read.store.path(digest).is_file()}
    return {
        "entry": element,
        "time": when(element),
        "names": names,
        "rows": rows,
        "kept": texts,
        "count": len(read.history),
    }
