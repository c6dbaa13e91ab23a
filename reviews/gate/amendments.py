"""Amendments: what of a registered spec may change after the start, and which changes make later claims exploratory.

Model, data, task and stages cannot be amended. A change of the analysis, of criteria, thresholds or parameters after
the first job makes every later claim exploratory: it may have been chosen after a look at the data. Budget, reviewer
and limits of time or rounds leave claims as they are, so a session can get more budget wherever it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from reviews.checks.measuring_code import measuring_code
from reviews.evidence.gather import is_in_force, registered_code
from reviews.gate.packet import build_design_packet
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from reviews.trail.retractions import find_retracted_judgements
from specs.session.design import ResolvedDesign
from specs.system.text import plain
from specs.trail.entry import AMENDMENT
from specs.trail.session_bodies import BudgetEntry
from specs.trail.verdict import CheckResult, Packet

CODE = "/measuring_code"
"""The pointer of the measuring code among the changes of an amendment."""
_LIMITS = r"/stages/\d+/(max_minutes|max_cost_usd|gate/max_rounds|gate/stakes)"
_AMENDABLE = re.compile(
    rf"/(budget|reviewer|analysis|thresholds)(/.*)?|{CODE}|/stages/\d+/(parameters|ranges|gate)(/.*)?|{_LIMITS}"
)
_HARMLESS = re.compile(rf"/(budget|reviewer)(/.*)?|{_LIMITS}")
"""Changes that leave every claim what it was."""


class AmendmentChange(NamedTuple):
    """One value of the spec, as a JSON pointer, before and after."""

    pointer: str
    before: Any
    after: Any


def list_amended_values(
    entries: Sequence[RecordedEntry], old: ResolvedDesign, new: ResolvedDesign
) -> tuple[AmendmentChange, ...]:
    """Return what an amendment at the end of these entries changes: the spec, and the code that measures."""
    before, now = registered_code(entries), measuring_code(new)
    code = () if before in (None, now) else (AmendmentChange(CODE, before, now),)
    return (*changes(old, new), *code)


def changes(old: ResolvedDesign, new: ResolvedDesign) -> tuple[AmendmentChange, ...]:
    """Return every value in which two specs differ, wherever their files are."""
    matching_changes = _differences("", old.spec.model_dump(mode="json"), new.spec.model_dump(mode="json"))
    names = ("data_digests", "constitution_digest", "plugins")
    others = (_differences(f"/{name}", getattr(old, name), getattr(new, name)) for name in names)
    return (*matching_changes, *(change for changes in others for change in changes))


def _differences(pointer: str, old: Any, new: Any) -> Iterator[AmendmentChange]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from _differences(f"{pointer}/{name}", old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, after in enumerate(new):
            yield from _differences(f"{pointer}/{index}", old[index], after)
    elif old != new:
        yield AmendmentChange(pointer, old, new)


def explain_refusals(
    entries: Sequence[RecordedEntry], old: ResolvedDesign, changes: Sequence[AmendmentChange]
) -> list[str]:
    """Return which changes cannot be made at the end of these entries, and why."""
    unused = _list_unused_grants(entries)
    reached = {entry.raw["stage"] for entry in entries if entry.kind == "grant" and entry.key not in unused}
    short = waits_for_budget(entries)
    waiting = (short.raw["stage"], short.raw["attempt"]) if short else None
    problems = [
        f"stage '{stage}' is under way: amend when its gate has decided"
        for stage, attempt in _under_way(entries, unused)
        if (stage, attempt) != waiting
    ]
    # Where a gate waits for money its evidence is known, so nothing that judges it may change.
    at_a_gate = short is not None and short.raw["at"] not in ("plan", "launch")
    for change in changes:
        if not _AMENDABLE.fullmatch(change.pointer):
            problems.append(f"{change.pointer} cannot be amended: it is what the session is about")
        elif _HARMLESS.fullmatch(change.pointer):
            continue
        elif at_a_gate:
            problems.append(f"{change.pointer} cannot be amended now: a gate waits for money to be judged by it")
        elif (stage := re.match(r"/stages/(\d+)/", change.pointer)) is not None:
            name = old.spec.stages[int(stage[1])].name
            if name in reached:
                problems.append(f"{change.pointer} cannot be amended: stage '{name}' has run with it")
    return problems


def waits_for_budget(entries: Sequence[RecordedEntry]) -> RecordedEntry[BudgetEntry] | None:
    """Return the entry that says what does not fit in the budget, unless an answer or an amendment followed it."""
    for recorded in reversed(entries):
        kind = recorded.kind
        if kind == BudgetEntry.KIND:
            return as_entry_of(recorded, BudgetEntry)
        if kind in ("human", "retraction", "close") or is_in_force(recorded):
            return None
    return None


def _list_unused_grants(entries: Sequence[RecordedEntry]) -> frozenset[str]:
    """Return the keys of grants that were never launched because the budget did not reach."""
    launched = {entry.raw["key"] for entry in entries if entry.kind == "launch"}
    short = {
        (entry.raw["stage"], entry.raw["attempt"])
        for entry in entries
        if entry.kind == "budget" and entry.raw["at"] == "launch"
    }
    return frozenset(
        entry.key
        for entry in entries
        if entry.kind == "grant"
        and (entry.raw["stage"], entry.raw["attempt"]) in short
        and entry.key.partition("/")[2] not in launched
    )


def _under_way(entries: Sequence[RecordedEntry], unused: frozenset[str]) -> list[tuple[str, int]]:
    """Return the attempts with a used grant that no gate has decided and no retraction has ended."""
    decided = {(entry.raw["stage"], entry.raw["attempt"]) for entry in entries if entry.kind == "decision"}
    void = find_retracted_judgements(entries)
    by_digest = {entry.digest: entry.seq for entry in entries}
    return [
        (entry.raw["stage"], entry.raw["attempt"])
        for entry in entries
        if entry.kind == "grant"
        and entry.key not in unused
        and (entry.raw["stage"], entry.raw["attempt"]) not in decided
        and by_digest.get(entry.raw["decision"]) not in void
    ]


def is_exploratory(entries: Sequence[RecordedEntry], changes: Sequence[AmendmentChange]) -> bool:
    """Return whether these changes, at the end of these entries, make later claims exploratory."""
    data_exists = any(entry.kind == "launch" for entry in entries)
    return data_exists and any(not _HARMLESS.fullmatch(change.pointer) for change in changes)


def amendment_packet(
    entries: Sequence[RecordedEntry],
    old: ResolvedDesign,
    new: ResolvedDesign,
    checks: tuple[CheckResult, ...],
    *,
    checks_digest: str,
    reason: str,
) -> Packet:
    """Build the packet of an amendment: the amended design, the changes, the reason, and what was measured before."""
    packet = build_design_packet(new, checks, checks_digest=checks_digest)
    changes = list_amended_values(entries, old, new)
    facts = {
        "changes": [change._asdict() for change in changes],
        "reason": plain(reason, 1000),
        "measured_before": [
            f"{entry.raw['stage']}.{entry.raw['attempt']}" for entry in entries if entry.kind == "metrics"
        ],
        "exploratory": is_exploratory(entries, changes),
    }
    return packet.model_copy(update={"registered": packet.registered | {AMENDMENT: facts}})
