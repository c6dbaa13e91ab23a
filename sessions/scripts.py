"""The report's word on checkpoints that a builder's script trained: which script, from what, and who read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reviews.lineage import Made, lineages
from reviews.store import Store
from reviews.trail import Recorded
from specs.evidence import JobOrder
from specs.session import SessionSpec


def trained_by_scripts(entries: Sequence[Recorded], store: Store, spec: SessionSpec) -> list[dict[str, Any]]:
    """Return each checkpoint of a script that a later job was given, itself or through what was made of it.

    Raises:
        EvidenceMissing: an order is not in the store.
        AuditDamage: it has other bytes than its name.
    """
    found: dict[str, dict[str, Any]] = {}
    for launch in (one for one in entries if one.entry.kind == "launch"):
        order = JobOrder.model_validate_json(store.get(launch.body["order"]))
        # What came later in the trail made nothing this job was given.
        before = [one for one in entries if one.entry.seq < launch.entry.seq]
        for way in lineages(before, store, spec, order).values():
            for place, made in enumerate(way):
                if made.script is None:
                    continue
                told = found.setdefault(made.digest, _told(made, way[place + 1] if place + 1 < len(way) else None))
                if launch.body["stage"] not in told["read_by"]:
                    told["read_by"].append(launch.body["stage"])
    return list(found.values())


def _told(made: Made, base: Made | None) -> dict[str, Any]:
    return {
        "checkpoint": made.reference,
        "attempt": made.attempt,
        "digest": made.digest,
        "script": made.script,
        "from": base.reference if base else None,
        "from_digest": base.digest if base else None,
        "read_by": [],
    }
