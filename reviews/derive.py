"""From evidence to packet: one way, used by the gate when it judges and by the audit when it judges again."""

from __future__ import annotations

from collections.abc import Sequence

from reviews.checks import design_checks
from reviews.claims import look_up
from reviews.collect import find, load_items
from reviews.evidence import Evidence
from reviews.packet import build_packet
from reviews.store import Store
from reviews.trail import Recorded
from specs.errors import EvidenceMissing
from specs.grants import Claim
from specs.metrics import MetricSet
from specs.session import ResolvedSpec
from specs.verdicts import CheckResult, Packet


def check_design(resolved: ResolvedSpec, store: Store) -> tuple[CheckResult, ...]:
    """Run the design checks on the data files as they were kept when the session opened."""
    items = {name: load_items(store, digest) for name, digest in resolved.data_digests.items()}
    heldout = items.pop("heldout")
    return design_checks(resolved, heldout, items)


def derive_packet(
    entries: Sequence[Recorded],
    evidence: Evidence,
    metrics: MetricSet | None,
    checks: tuple[CheckResult, ...],
    checks_digest: str,
) -> Packet:
    """Build the packet of an attempt, with the builder's claims looked up among the measured metrics.

    Raises:
        EvidenceMissing: the attempt has no plan.
    """
    stage = evidence.stage.name
    plan = find(entries, f"plan/{stage}.{evidence.attempt}")
    if plan is None:
        raise EvidenceMissing("the attempt has no plan", where=f"{stage}.{evidence.attempt}")
    stated = [Claim.model_validate(claim) for claim in plan.body["claims"]]
    measured = {**evidence.earlier, **({stage: metrics} if metrics else {})}
    return build_packet(evidence, metrics, checks, checks_digest=checks_digest, claims=look_up(stated, measured))
