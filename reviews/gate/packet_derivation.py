"""From evidence to packet: one way, used by the gate when it judges and by the audit when it judges again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reviews.checks.claim_lookup import claim_results
from reviews.evidence.evidence import Evidence
from reviews.evidence.gather import load_brought, load_constitution_text, load_data
from reviews.gate.conditions import condition_results
from reviews.gate.design_checks import design_checks
from reviews.gate.packet import build_packet, evidence_digest
from reviews.history.people import lifted_checks
from reviews.history.recorded_history import RecordedHistory
from reviews.trail.chain.store import Store
from specs.session.design import ResolvedDesign
from specs.stages.base.metric import MetricSet
from specs.system.errors import EvidenceMissing
from specs.system.regular_files import read_regular
from specs.system.text import plain
from specs.trail.verdict import CheckResult, Packet, Verdict, retarget_spans

FINDING_CHARACTERS = 500


def check_design(resolved: ResolvedDesign, store: Store, costs: Mapping[str, float]) -> tuple[CheckResult, ...]:
    """Run the design checks on the data files as they were kept when the session opened.

    ``costs`` is the most that one attempt of each stage costs, in USD.
    """
    items = {name: load_data(store, resolved, name) for name in resolved.data_digests}
    heldout = items.pop("heldout")
    return design_checks(
        resolved, heldout, items, costs, load_brought(store, resolved), load_constitution_text(store, resolved)
    )


def check_design_files(
    resolved: ResolvedDesign, files: Iterable[bytes], costs: Mapping[str, float]
) -> tuple[CheckResult, ...]:
    """Run the design checks on the data files as they are now, before any session keeps them."""
    with TemporaryDirectory() as folder:
        # As a session keeps its data, so that the checks read the same.
        store = Store(Path(folder))
        for data in files:
            store.put(data)
        if (constitution := resolved.spec.constitution) is not None:
            store.put(read_regular(resolved.path(constitution)))
        return check_design(resolved, store, costs)


def derive_packet(
    history: RecordedHistory,
    evidence: Evidence,
    metrics: MetricSet | None,
    checks: tuple[CheckResult, ...],
    checks_digest: str,
) -> Packet:
    """Build the packet of an attempt, with the builder's claims looked up among the measured metrics.

    ``history`` is the trail up to the packet: nothing later was known. ``checks_digest`` names the stored ``checks``.

    Raises:
        EvidenceMissing: the attempt has no plan or no checks on record.
    """
    stage, attempt = evidence.stage.name, evidence.attempt
    recorded = history.attempt(stage, attempt)
    if recorded.plan is None or recorded.checks is None:
        missing = "plan" if recorded.plan is None else "checks"
        raise EvidenceMissing(f"the attempt has no {missing} on record", where=f"{stage}.{attempt}")
    # An override that ends is judged at the time of the checks, which the trail keeps.
    moment = recorded.checks.time_ns
    packet = build_packet(
        evidence,
        metrics,
        checks,
        checks_digest=checks_digest,
        claims=claim_results(evidence, metrics),
        conditions=condition_results(history, evidence.resolved, evidence.stage, metrics, evidence.earlier, moment),
        lifted=lifted_checks(history, stage, moment),
        previous_findings=_findings_before(history, stage, attempt),
    )
    return packet.model_copy(update={"unchanged_since": _unchanged_since(history, packet, attempt)})


def _findings_before(history: RecordedHistory, stage: str, attempt: int) -> tuple[dict[str, Any], ...]:
    """Return the findings on the attempt before, without the reviewer's name."""
    verdict = history.attempt(stage, attempt - 1).verdict_value
    return tuple(
        {
            "severity": finding.severity,
            "statement": plain(finding.statement, FINDING_CHARACTERS),
            "required_change": plain(finding.required_change.text, FINDING_CHARACTERS)
            if finding.required_change
            else None,
        }
        for finding in (verdict.findings if verdict else ())
    )


def _unchanged_since(history: RecordedHistory, packet: Packet, attempt: int) -> int | None:
    """Return the newest earlier attempt with the same evidence."""
    digest = evidence_digest(packet)
    for number in range(attempt - 1, 0, -1):
        before = history.attempt(packet.stage, number).packet_value
        if before is not None and evidence_digest(before) == digest:
            return number
    return None


def verdict_again(history: RecordedHistory, packet: Packet) -> Verdict | None:
    """Return the verdict on the same evidence in an earlier attempt, turned to this packet, if there is one.

    The same evidence gets the same verdict: otherwise asking often enough would find a mild one.
    """
    if packet.unchanged_since is None:
        return None
    before = history.attempt(packet.stage, packet.unchanged_since)
    if before.verdict is None or before.verdict.body.error or before.verdict_value is None:
        return None
    return retarget_spans(before.verdict_value, before.verdict.body.packet, packet.content_digest())
