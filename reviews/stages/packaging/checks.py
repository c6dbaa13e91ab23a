"""The judge of ``package`` stages: is the package the model that was evaluated?"""

from __future__ import annotations

from typing import Any

from reviews.checks.definition import Checks, Found, need
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from specs.digests import digest_file
from specs.errors import EvidenceMissing
from specs.stages.metric import MetricSet
from specs.stages.packaging.rows import PackageRow

CHECKS = Checks(("package",))


def shown(evidence: Evidence) -> list[dict[str, Any]]:
    """Return whether each probe gives the same tokens; errors as :func:`read_rows`."""
    rows = read_rows(evidence.outputs.get("rows"), PackageRow, "package rows")
    return [{"item": row.item, "tokens": len(row.expected), "identical": row.expected == row.reloaded} for row in rows]


@CHECKS.add(
    "package.weights",
    "The package holds the evaluated weights",
    source="another checkpoint shipped",
    reads_weights=True,
)
def _weights(evidence: Evidence, _: MetricSet | None) -> Found:
    before, after = evidence.inputs.get("model"), evidence.outputs.get("package")
    if before is None or after is None:
        raise EvidenceMissing("checkpoint or package is not there")
    names = sorted(path.name for path in before.glob("*.safetensors"))
    packed = sorted(path.name for path in after.glob("*.safetensors"))
    if not names or not packed:
        raise EvidenceMissing("there are no weight files to compare")
    if names != packed or any(digest_file(before / name) != digest_file(after / name) for name in names):
        return Found("FAIL", "the weights in the package are not those of the evaluated checkpoint", repairable=False)
    return Found("PASS", f"{len(names)} weight files are those of the evaluated checkpoint", float(len(names)))


@CHECKS.add("package.probes", "The registered probes were answered", source="a package nobody loaded")
def _probes(evidence: Evidence, metrics: MetricSet | None) -> Found:
    probes = need(metrics, "probes")
    rows = read_rows(evidence.outputs.get("rows"), PackageRow, "package rows")
    asked = [item.id for item in evidence.heldout][: evidence.parameters.get("probe_items", 0)]
    if [row.item for row in rows] != asked:
        return Found("FAIL", f"{probes:.0f} probes were answered, registered are the first {len(asked)} items", probes)
    silent = sum(not row.expected for row in rows)
    if silent == len(rows):
        return Found("FAIL", "every answer is empty: equal outputs show nothing", float(silent))
    return Found("PASS", f"{len(rows)} probes were answered before and after reloading", probes)
