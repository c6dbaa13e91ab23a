"""Defects come in waves: where a check found one, the checks of the same family at other stages are named.

A checkpoint that one tool cannot use is rarely whole for the next: each tool downstream finds a fault of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reviews.acceptance.criterion_state import SHIP_CHECKS
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from sessions.report.result import checks_of
from specs.session.session_spec import ResolvedSpec
from specs.stages.registry import kind_of


class Sibling(NamedTuple):
    """A check to look at, because one of its family found something."""

    check: str
    stage: str
    state: str
    """Its newest result there, or ``not judged``."""
    found_by: str
    """The check that found something, and where."""


def siblings_of(entries: Sequence[Recorded], store: Store, resolved: ResolvedSpec) -> Iterator[Sibling]:
    """Yield the checks of each defect's family that have not passed at another stage, once each."""
    # Imported here: all checks together take longer to import than `peergate status` takes otherwise.
    from reviews.gate.check_list import all_checks

    newest: dict[str, dict[str, str]] = {}
    defects: dict[str, str] = {}
    for one in entries:
        if one.entry.kind != "checks" or one.body["stage"] is None:
            continue
        stage, attempt = one.body["stage"], one.body["attempt"]
        results = checks_of(entries, store, stage, attempt)
        newest[stage] = {each.id: each.status for each in results}
        for each in results:
            if each.status == "FAIL" and each.blocking:
                defects.setdefault(each.id, f"{each.id} at {stage}.{attempt}")
    seen: set[tuple[str, str]] = set()
    for check, place in defects.items():
        for stage in resolved.spec.stages:
            for other in all_checks(resolved):
                at = (other.id, stage.name)
                state = newest.get(stage.name, {}).get(other.id, "not judged")
                same = family_of(other.id) == family_of(check) and other.belongs_to(kind_of(stage))
                itself = place.startswith(f"{other.id} at {stage.name}.")
                if same and not itself and state not in ("PASS", "NOT_APPLICABLE") and at not in seen:
                    seen.add(at)
                    yield Sibling(other.id, stage.name, state, place)


def family_of(check: str) -> str:
    """Return the family of a check: the first part of its id, or the ship gate."""
    return "ship" if check.startswith(SHIP_CHECKS) else check.partition(".")[0]
