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
from reviews.gate.packet import build_design_packet
from reviews.history.people import waits_for_budget
from reviews.history.recorded_history import RecordedHistory
from reviews.trail.chain.envelope import RecordedEntry
from specs.session.design import ResolvedDesign
from specs.system.text import plain
from specs.trail.entry import AMENDMENT
from specs.trail.gate_bodies import DecisionEntry, GrantEntry, MetricsEntry
from specs.trail.session_bodies import BudgetEntry, LaunchEntry
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
    history: RecordedHistory, old: ResolvedDesign, new: ResolvedDesign
) -> tuple[AmendmentChange, ...]:
    """Return what an amendment at the end of these entries changes: the spec, and the code that measures."""
    before, now = history.measured_by, measuring_code(new)
    code = () if before == now else (AmendmentChange(CODE, before, now),)
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


def explain_refusals(history: RecordedHistory, old: ResolvedDesign, changes: Sequence[AmendmentChange]) -> list[str]:
    """Return which changes cannot be made at the end of these entries, and why."""
    used = _list_used_grants(history)
    reached = {grant.body.stage for grant in used}
    short = waits_for_budget(history)
    waiting = (short.body.stage, short.body.attempt) if short else None
    problems = [
        f"stage '{stage}' is under way: amend when its gate has decided"
        for stage, attempt in _under_way(history, used)
        if (stage, attempt) != waiting
    ]
    # Where a gate waits for money its evidence is known, so nothing that judges it may change.
    at_a_gate = short is not None and short.body.at not in ("plan", "launch")
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


def _list_used_grants(history: RecordedHistory) -> list[RecordedEntry[GrantEntry]]:
    """Return the grants, except where the budget did not reach for the launch."""
    budgets = [entry.body for entry in history.of(BudgetEntry)]
    short = {(budget.stage, budget.attempt) for budget in budgets if budget.at == "launch"}
    return [
        grant
        for grant in history.of(GrantEntry)
        if (grant.body.stage, grant.body.attempt) not in short or history.attempt_of(grant.body).launch
    ]


def _under_way(history: RecordedHistory, used: Sequence[RecordedEntry[GrantEntry]]) -> list[tuple[str, int]]:
    """Return the attempts with a used grant that no gate has decided and no retraction has ended."""
    decided = {(entry.body.stage, entry.body.attempt) for entry in history.of(DecisionEntry)}
    void = {entry.digest for entry in history if entry.seq in history.retracted}
    pairs = [(grant.body.stage, grant.body.attempt) for grant in used if grant.body.decision not in void]
    return [pair for pair in pairs if pair not in decided]


def is_exploratory(history: RecordedHistory, changes: Sequence[AmendmentChange]) -> bool:
    """Return whether these changes, at the end of these entries, make later claims exploratory."""
    return bool(history.of(LaunchEntry)) and any(not _HARMLESS.fullmatch(change.pointer) for change in changes)


def amendment_packet(
    history: RecordedHistory,
    old: ResolvedDesign,
    new: ResolvedDesign,
    checks: tuple[CheckResult, ...],
    *,
    checks_digest: str,
    reason: str,
) -> Packet:
    """Build the packet of an amendment: the amended design, the changes, the reason, and what was measured before."""
    packet = build_design_packet(new, checks, checks_digest=checks_digest)
    changes = list_amended_values(history, old, new)
    facts = {
        "changes": [change._asdict() for change in changes],
        "reason": plain(reason, 1000),
        "measured_before": [history.attempt_of(entry.body).name for entry in history.of(MetricsEntry)],
        "exploratory": is_exploratory(history, changes),
    }
    return packet.model_copy(update={"registered": packet.registered | {AMENDMENT: facts}})
