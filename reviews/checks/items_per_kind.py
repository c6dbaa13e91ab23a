"""How many items of each kind a comparison needs, counted without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from reviews.checks.definition import Found, listed
from reviews.checks.limit import Limit
from specs.stages.artifacts import Item

ITEMS_PER_KIND = (Limit(">=", "thresholds.items_per_kind"),)


def sizes_of(heldout: Iterable[Item], least: int) -> Found:
    """Count the items of each constraint kind of the split."""
    kinds = Counter(item.kind for item in heldout)
    small = {kind: count for kind, count in kinds.items() if count < least}
    rarest = min(kinds.values(), default=0)
    if small or not kinds:
        told = listed(f"{kind} {count}" for kind, count in small.items())
        detail = f"{len(small)} of {len(kinds)} constraint kinds have fewer than {least} items: {told or 'no items'}"
        shown = tuple({"kind": kind, "items": count, "least": least} for kind, count in small.items())
        return Found("FAIL", detail, float(rarest), shown, repairable=False)
    return Found("PASS", f"each of {len(kinds)} constraint kinds has {rarest} items or more", float(rarest))
