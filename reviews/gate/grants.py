"""Grants: minted from a decision in the trail, checked by the launcher on every route.

:func:`mint` turns an opening decision into the right to run one attempt on exactly these inputs and parameters. The
launcher, and nothing else, starts jobs, and calls :func:`verify` first. A whole trail that was rewritten is found only
by signatures and an anchor elsewhere.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from reviews.gate.conditions import open_for
from reviews.history.recorded_history import RecordedHistory
from reviews.trail.trail import Trail
from specs.jobs.grant_and_claim import Grant
from specs.jobs.job_records import JobOrder
from specs.session.design import ResolvedDesign
from specs.session_words import session_words
from specs.stages.registry import kind_of, resolve_parameters
from specs.system.digests import digest_value
from specs.system.errors import InvalidGrant
from specs.trail.gate_bodies import DecisionEntry, GrantEntry, HumanAnswerEntry, RetractionEntry
from specs.trail.session_bodies import LaunchEntry
from specs.trail.verdict import Outcome

VALID_SECONDS = 24 * 3600.0
"""A grant not used for a day is stale: mint a new one from a new decision."""


class Opening(NamedTuple):
    """The stage and attempt a decision opens, and the entry that opens it."""

    stage: str
    attempt: int
    entry: str


def opened_by(
    resolved: ResolvedDesign, history: RecordedHistory, stage: str | None, outcome: Outcome
) -> dict[str, Any] | None:
    """Return what an outcome opens after these entries: the next stage, another attempt, or nothing.

    ``stage`` None is the design gate. Attempt numbers come from the trail and only grow.
    """
    names = [item.name for item in resolved.spec.stages]
    opens = stage if outcome == "revise" else None
    if outcome == "approve":
        opens = next(iter(names[0 if stage is None else names.index(stage) + 1 :]), None)
    return {"stage": opens, "attempt": history.next_attempt(opens)} if opens else None


def latest_opening(trail: Trail) -> Opening | None:
    """Return what the newest decision (or person's answer) opens; None when it opens nothing or was retracted."""
    newest = _judgements(trail).newest_judgement
    opens = None if newest is None or isinstance(newest.body, RetractionEntry) else newest.body.opens
    return Opening(opens.stage, opens.attempt, newest.digest) if newest and opens else None


def _judgements(trail: Trail) -> RecordedHistory:
    return RecordedHistory(trail.iterate(DecisionEntry, HumanAnswerEntry, RetractionEntry))


def mint(
    trail: Trail,
    resolved: ResolvedDesign,
    *,
    changes: dict[str, Any],
    inputs: dict[str, str],
    model: str,
    price_cap_usd: float,
) -> Grant:
    """Mint the grant for the attempt the newest decision opens, and record it.

    Minting again for the same attempt returns the grant already recorded, if it is for the same thing.

    Raises:
        GrantRefused: nothing is open, a condition of an earlier approval is, a person's approval has ended, a change
            leaves its allowed range, or another grant exists for the attempt.
    """
    trail.verify_chain()
    opening = latest_opening(trail)
    if opening is None:
        raise InvalidGrant(
            "no stage is open", where=trail.session, hint="a stage opens only by an approving or revising decision"
        )
    stage = resolved.spec.stage(opening.stage)
    where = f"{trail.session}.{stage.name}"
    try:
        parameters = resolve_parameters(stage, changes)
    except ValueError as error:
        raise InvalidGrant(str(error), where=where) from error
    reads_it = kind_of(stage).takes_script
    if (stage.allow_code or stage.script) and not reads_it and {*resolved.list_splits()} & {*inputs.values()}:
        raise InvalidGrant("an input holds the held-out items, which no code may read", where=where)
    now = time.time()
    _require_settled(trail, resolved, opening, now)
    wanted = Grant(
        session=trail.session,
        stage=stage.name,
        attempt=opening.attempt,
        kind=stage.kind,
        task=resolved.spec.task,
        registration=resolved.registration(),
        parameters=digest_value(parameters.model_dump(mode="json")),
        inputs=inputs,
        model=model,
        price_cap_usd=price_cap_usd,
        max_seconds=stage.max_minutes * 60,
        decision=opening.entry,
        issued=round(now, 3),
        expires=round(now + VALID_SECONDS, 3),
        resources=stage.resources,
        plugins=resolved.plugins,
    )
    recorded = trail.append(GrantEntry.model_validate(wanted.model_dump()))
    grant = Grant.model_validate(recorded.body.model_dump())
    same = {"issued": wanted.issued, "expires": wanted.expires}
    if grant.model_copy(update=same) != wanted:
        raise InvalidGrant(
            "another grant is already recorded for this attempt",
            where=wanted.key(),
            hint="one attempt has one grant; a change needs a new decision",
        )
    return grant


def verify(trail: Trail, order: JobOrder, registration: str, input_digests: dict[str, str]) -> None:
    """Refuse an order unless its grant is recorded, fresh and for exactly this.

    ``input_digests`` are recomputed by the caller from the files as they are now.

    Raises:
        GrantRefused: with the first thing that does not match, both values named.
        AuditDamage: the trail's chain does not hold, so no grant in it can be believed.
    """
    trail.verify_chain()
    grant = order.grant
    recorded = trail.find(GrantEntry.key_of(grant.key()), GrantEntry)
    hint = "only `peergate start` and `peergate resume` launch stages, each after its gate"
    if recorded is None or recorded.body.model_dump() != grant.model_dump():
        raise InvalidGrant("no such grant in the trail", where=order.key, hint=hint)
    standing = _judgements(trail).standing_of(DecisionEntry, HumanAnswerEntry)
    opens = next((judgement.body.opens for judgement in standing if judgement.digest == grant.decision), None)
    expectations: list[tuple[str, Any, Any]] = [
        ("job key", order.key, grant.key()),
        ("kind", order.kind, grant.kind),
        ("task", order.task, grant.task),
        ("time limit", order.max_seconds, grant.max_seconds),
        ("opening decision", opens and opens.model_dump(), {"stage": grant.stage, "attempt": grant.attempt}),
        ("newest decision", _standing(trail, order.key, grant), grant.decision),
        ("spec registration", registration, grant.registration),
        ("parameters", digest_value(order.parameters), grant.parameters),
        ("inputs", input_digests, grant.inputs),
        ("ordered inputs", {role: item.digest for role, item in order.inputs.items()}, grant.inputs),
    ]
    for what, result, granted in expectations:
        if result != granted:
            raise InvalidGrant(f"{what} {result!r} is not what was granted, {granted!r}", where=order.key, hint=hint)
    if (late := time.time() - grant.expires) > 0:
        raise InvalidGrant(f"the grant expired {late:.0f} s ago", where=order.key, hint=hint)


def _require_settled(trail: Trail, resolved: ResolvedDesign, opening: Opening, now: float) -> None:
    """Refuse while a condition keeps the stage from starting, or when the approval that opens it has ended."""
    history = RecordedHistory(trail.iterate())
    opener = next(entry for entry in history.of(DecisionEntry, HumanAnswerEntry) if entry.digest == opening.entry)
    approval = opener.body
    named = session_words(trail.path.parent)
    if isinstance(approval, HumanAnswerEntry) and approval.expires is not None and now > approval.expires:
        raise InvalidGrant(
            f"{approval.by}'s approval ended {now - approval.expires:.0f} s ago",
            where=f"{trail.session}.{opening.stage}",
            hint=f"take it back: `peergate retract {named} {opener.seq} --reason WHY`; the gate asks again",
        )
    for obligation in open_for(history, resolved, opening.stage, int(now * 1e9)):
        raise InvalidGrant(
            f"condition {obligation.id} is open: {obligation.condition.text}",
            where=f"{trail.session}.{opening.stage}",
            hint=f"`peergate override {named} --reason WHY --condition {obligation.id}` waives it",
        )


def _standing(trail: Trail, key: str, grant: Grant) -> str | None:
    """Return the decision in force; once the grant was used, its own, so that a repeat stays harmless."""
    if trail.find(LaunchEntry.key_of(key)) is not None:
        return grant.decision
    opening = latest_opening(trail)
    return opening.entry if opening else None
