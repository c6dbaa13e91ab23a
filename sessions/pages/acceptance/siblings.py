"""Where a check found a defect, the checks of the same family that have not passed yet, here and at other stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reviews.evidence.defect_waves import defects_in, family_of
from reviews.history.history import History
from specs.stages.registry import kind_of
from specs.trail.gate_bodies import ChecksEntry


class Sibling(NamedTuple):
    """A check to look at, because one of its family found something."""

    check: str
    stage: str
    state: str
    """Its newest result there, or ``not judged``."""
    cause: str
    """The check that found something, and where."""
    must_pass: bool
    """Whether the gate of that stage opens only if it passes (:attr:`CheckResult.scheduled_by`)."""


def siblings_of(history: History) -> Iterator[Sibling]:
    """Yield the checks of each defect's family that have not passed at another stage, once each."""
    # Imported here: all checks together take longer to import than `peergate status` takes otherwise.
    from reviews.gate.check_list import all_checks

    newest = {entry.body.stage: entry.body.summary for entry in history.of(ChecksEntry)}
    seen_pairs: set[tuple[str, str]] = set()
    for defect in defects_in(history):
        for stage in history.resolved.spec.stages:
            for other in all_checks(history.resolved):
                at = (other.id, stage.name)
                state = newest.get(stage.name, {}).get(other.id, "not judged")
                same = family_of(other.id) == family_of(defect.check) and other.belongs_to(kind_of(stage))
                itself = at == (defect.check, defect.stage)
                if same and not itself and state not in ("PASS", "NOT_APPLICABLE") and at not in seen_pairs:
                    seen_pairs.add(at)
                    flag = other.blocking and stage.name != defect.stage
                    yield Sibling(other.id, stage.name, state, defect.description, flag)
