"""The samples on the page of an export: some of each group, chosen by nobody, and how many are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from sessions.report.samples.judged_samples import Sample, samples_of
from specs.errors import EvidenceMissing
from training.rules.tasks.conversation import said_in

MOST_OF_A_GROUP = 50
"""The first ones in the registered order."""

_GROUPS: tuple[tuple[str, Callable[[Sample], bool]], ...] = (
    ("lost: right before, wrong after", lambda one: one.change == "lost"),
    ("gained: wrong before, right after", lambda one: one.change == "gained"),
    ("wrong before and after", lambda one: one.change == "same" and not one.newest.passed),
    ("right before and after", lambda one: one.change == "same" and one.newest.passed),
    ("wrong", lambda one: one.change == "only" and not one.newest.passed),
    ("right", lambda one: one.change == "only" and one.newest.passed),
)


def page_samples(entries: Sequence[Recorded], store: Store) -> dict[str, Any] | None:
    """Return the samples in groups, as texts that are not cleaned; None where no item has been answered or judged.

    Items are judged by the task's verifier, which is not installed everywhere.
    """
    try:
        samples = samples_of(store.root.parent, entries, store)
    except EvidenceMissing:
        return None
    groups: list[dict[str, Any]] = []
    for title, fits in _GROUPS:
        found = [one for one in samples.rows if fits(one)]
        if found:
            rows = [_row(one) for one in found[:MOST_OF_A_GROUP]]
            groups.append({"title": title, "count": len(found), "rows": rows, "left_out": len(found) - len(rows)})
    return {"arms": samples.arms, "count": len(samples.rows), "groups": groups}


def _row(one: Sample) -> dict[str, Any]:
    answers = [("before", one.before), ("after", one.after)] if one.after else [("answer", one.before)]
    return {
        "number": one.number,
        "item": one.newest.item.id,
        "kind": one.newest.item.kind,
        "prompt": "\n".join(said_in(one.newest.item)),
        "constraint": one.newest.item.constraint,
        "answers": [
            {"name": name, "text": each.text, "right": each.passed, "reason": each.reason, "truncated": each.truncated}
            for name, each in answers
        ],
    }
