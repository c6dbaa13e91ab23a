"""The audit of canaries: each was drawn, planted and judged as recorded, and who approved one judged nothing after."""

from __future__ import annotations

from collections.abc import Iterator

from reviews.gate.canaries import draw_canary, suspension_of
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from specs.trail.gate_bodies import CanaryEntry, PacketEntry, VerdictEntry
from specs.trail.verdict import Packet, Verdict


def canary_damage(history: History) -> Iterator[str]:
    """Derive again which canaries were drawn, and yield what the trail says otherwise."""
    if not any(True for _ in history.of(VerdictEntry, CanaryEntry)):
        return
    reviewers = history.resolved.spec.reviewers()
    rates = {f"{reviewer.vendor}:{reviewer.model or ''}": reviewer.canary_rate for reviewer in reviewers}
    for entry in history.of(CanaryEntry):
        yield from _planted_otherwise(history, entry, rates.get(entry.body.reviewer, 0.0))
    if any(rates.values()):
        for judged in history.of(VerdictEntry):
            yield from _verdict_damage(history, judged, rates.get(judged.body.reviewer, 0.0))


def _planted_otherwise(history: History, entry: RecordedEntry[CanaryEntry], rate: float) -> Iterator[str]:
    body, where = entry.body, f"entry {entry.seq} (canary)"
    packet = history.find(PacketEntry, body.stage, body.attempt)
    if packet is None or packet.seq > entry.seq or packet.body.packet != body.of:
        yield f"{where}: the packet it was made from does not precede it"
        return
    canary = draw_canary(packet, _packet_of(history, body.of), body.reviewer, rate)
    if canary is None or (canary.edit, canary.packet.content_digest()) != (body.edit, body.packet):
        yield f"{where}: is not the canary that the packet's entry draws"
    verdict = Verdict.model_validate(history.store.get_value(body.verdict))
    outcome = "no_verdict" if verdict.no_verdict else "approved" if verdict.approve else "rejected"
    if (outcome, verdict.reviewer) != (body.outcome, body.reviewer):
        yield f"{where}: says '{body.outcome}', and the stored verdict of {verdict.reviewer} is '{outcome}'"


def _verdict_damage(history: History, judged: RecordedEntry[VerdictEntry], rate: float) -> Iterator[str]:
    body, where = judged.body, f"entry {judged.seq} (verdict)"
    if not rate or body.same_as is not None or body.error:
        return
    before = history.before(judged)
    if suspension_of(before, body.reviewer) is not None:
        yield f"{where}: {body.reviewer} had approved a canary and was suspended"
    packet = before.find(PacketEntry, body.stage, body.attempt)
    if packet is None:
        return
    drawn = draw_canary(packet, _packet_of(history, packet.body.packet), body.reviewer, rate)
    if drawn is not None and not any(
        (canary.body.of, canary.body.reviewer) == (body.packet, body.reviewer) for canary in before.of(CanaryEntry)
    ):
        yield f"{where}: a canary was drawn for this packet and was not put to {body.reviewer}"


def _packet_of(history: History, digest: str) -> Packet:
    return Packet.model_validate(history.store.get_value(digest))
