"""Derives decisions from packets and verdicts, as the only caller of :func:`reviews.gate.decide.decide`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reviews.evidence.gather import NOT_STARTED
from reviews.gate.conditions import why_not_carried
from reviews.gate.decide import decide
from reviews.gate.packet import resolvable
from reviews.history.recorded_history import RecordedHistory
from specs.session.design import ResolvedDesign
from specs.stages.base.stage import ParameterRange
from specs.system.digests import Digest
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import LookupEntry
from specs.trail.verdict import Decision, Packet, Span, Verdict


def looked_up(history: RecordedHistory, stage: str) -> dict[Digest, str]:
    """Return what reviewers of a stage's packets were answered when they looked something up, by digest."""
    answers = [look.body.answer for look in history.of(LookupEntry) if look.body.stage == stage]
    return {answer: history.store.get(answer).decode() for answer in answers}


def settle(
    resolved: ResolvedDesign,
    packet: Packet,
    verdict: Verdict,
    attempt: int,
    looked: Mapping[Digest, str] | None = None,
) -> Decision:
    """Decide a gate from what is stored: the spec, the packet, the verdict and what its reviewers looked up."""
    digest: Digest = packet.content_digest()
    answers = looked or {}

    def resolves(span: Span) -> bool:
        if span.artifact in answers:
            return bool(span.quote.strip()) and span.quote in answers[span.artifact]
        return span.artifact == digest and resolvable(span, packet)

    stage = None if packet.stage == DESIGN else packet.stage
    of_stage = None if stage is None else resolved.spec.stage(stage)
    rounds = 1 if of_stage is None else of_stage.gate.max_rounds
    # An attempt that was never launched is not a round.
    rounds += sum(attempt.get("outcome") == NOT_STARTED for attempt in packet.attempts)
    return decide(
        stage=packet.stage,
        attempt=attempt,
        checks=packet.checks,
        criteria=packet.criteria,
        verdict=verdict,
        packet_digest=digest,
        resolvable=resolves,
        allowed_ranges={name: ParameterRange(min=low, max=high) for name, (low, high) in packet.allowed_ranges.items()},
        current=packet.granted_parameters,
        attempts_left=rounds - attempt,
        conditions=packet.conditions,
        lifted=packet.lifted,
        why_not_carried=lambda condition: why_not_carried(resolved, stage, condition),
        unchanged_since=packet.unchanged_since,
        takes_words=of_stage is not None and bool(of_stage.ranges or of_stage.choices or of_stage.allow_code),
        withdrawn=packet.withdrawn,
    )


def summarise_conditions(decision: Decision) -> dict[str, Any]:
    """Return what the entry of a decision says about conditions: those carried over, with ids, and those met."""
    at = f"{decision.stage}.{decision.attempt}"
    return {
        "conditions": [
            {"id": f"{at}/{number}", **condition.model_dump(mode="json")}
            for number, condition in enumerate(decision.conditions, 1)
        ],
        "met": list(decision.met),
    }
