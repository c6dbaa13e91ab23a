"""Did the job run to its end, on what was granted, with the settings that were granted?"""

from __future__ import annotations

import math
from typing import Any

from reviews.checks.definition import ALL, Check, Found, listed
from reviews.evidence.evidence import Evidence
from specs.errors import EvidenceMissing
from specs.job_records import CLOCK_TOLERANCE_S, CLOCK_TOLERANCE_SHARE, Manifest
from specs.resources import usd_per_hour
from specs.stages.metric import MetricSet
from specs.stages.registry import kind_of, outputs_of

_SPARE_USD = 1e-6
"""What is reserved is rounded to this."""
_NOT_READ_BACK = {"max_examples_per_kind", "max_prompts", "validation_share", "warmup_ratio"}
"""Parameters that choose the data or are turned into another setting (``warmup_steps``)."""


def manifest_of(evidence: Evidence) -> Manifest:
    """Return the job's manifest.

    Raises:
        EvidenceMissing: the job left none.
    """
    if evidence.manifest is None:
        raise EvidenceMissing("the job left no manifest")
    return evidence.manifest


def _exit(evidence: Evidence, _: MetricSet | None) -> Found:
    record = evidence.exit
    if record is None:
        raise EvidenceMissing("the job left no exit record: it is lost")
    if evidence.grant is not None and record.key != evidence.grant.key():
        return Found("FAIL", f"the exit record is of the job {record.key}", repairable=False)
    if record.code != 0 or record.reason != "exited":
        lines = [line for line in evidence.log_tail.splitlines() if line.strip()][-5:]
        shown = tuple({"log": line} for line in lines)
        return Found("FAIL", f"the job ended with code {record.code} ({record.reason})", float(record.code), shown)
    return Found("PASS", f"exit code 0 after {record.seconds:.0f} s", 0.0)


def _granted(evidence: Evidence, _: MetricSet | None) -> Found:
    manifest, grant = manifest_of(evidence), evidence.grant
    if grant is None:
        raise EvidenceMissing("the attempt has no grant")
    if evidence.parameters == {}:
        raise EvidenceMissing("the order of the attempt is not on record")
    wrong: list[str] = []
    for what, found, granted in (
        ("key", manifest.key, grant.key()),
        ("kind", manifest.kind, evidence.stage.kind),
        ("parameters", manifest.parameters, grant.parameters),
        ("inputs", manifest.inputs, grant.inputs),
    ):
        if found != granted:
            wrong.append(f"{what} {found} instead of {granted}")
    if wrong:
        return Found("FAIL", f"the job says it ran with {'; '.join(wrong)}", repairable=False)
    return Found("PASS", "key, kind, parameters and inputs are the granted ones")


def _outputs(evidence: Evidence, _: MetricSet | None) -> Found:
    manifest = manifest_of(evidence)
    expected = set(outputs_of(evidence.stage.kind, evidence.stage.parameters))
    missing = sorted(expected - evidence.output_digests.keys())
    if missing:
        raise EvidenceMissing(f"output {listed(missing)} was not left")
    if manifest.outputs != evidence.output_digests:
        changed = [name for name in sorted(expected) if manifest.outputs.get(name) != evidence.output_digests[name]]
        return Found("FAIL", f"{listed(changed)} changed after the job wrote its manifest", repairable=False)
    return Found("PASS", f"{len(expected)} outputs have the digests of the manifest", float(len(expected)))


def _effective(evidence: Evidence, _: MetricSet | None) -> Found:
    manifest = manifest_of(evidence)
    if not evidence.parameters:
        raise EvidenceMissing("the order of the attempt is not on record")
    differing: list[dict[str, Any]] = []
    for name, granted in sorted(evidence.parameters.items()):
        if name in _NOT_READ_BACK:
            continue
        if name not in manifest.effective:
            differing.append({"parameter": name, "granted": granted, "effective": None})
        elif not _same(granted, manifest.effective[name]):
            differing.append({"parameter": name, "granted": granted, "effective": manifest.effective[name]})
    if manifest.seed != evidence.parameters.get("seed"):
        differing.append({"parameter": "seed", "granted": evidence.parameters.get("seed"), "effective": manifest.seed})
    if differing:
        told = "; ".join(f"{one['parameter']} {one['effective']} instead of {one['granted']}" for one in differing)
        return Found("FAIL", f"the job ran with {told}", float(len(differing)), tuple(differing))
    return Found("PASS", "every setting read back is the granted one", 0.0)


def _same(granted: Any, effective: Any) -> bool:
    numbers = (int, float)
    if isinstance(granted, numbers) and isinstance(effective, numbers) and not isinstance(granted, bool):
        return math.isclose(granted, effective, rel_tol=1e-9, abs_tol=0.0)
    return granted == effective


def _device(evidence: Evidence, _: MetricSet | None) -> Found:
    manifest = manifest_of(evidence)
    if kind_of(evidence.stage).without_precision:
        return Found("NOT_APPLICABLE", "the stage computes with no model: it has no precision")
    told = f"{manifest.device} ({manifest.device_name}), {manifest.dtype}, {manifest.threads} threads"
    before = evidence.baseline_manifest
    if before is not None and (before.device, before.dtype) != (manifest.device, manifest.dtype):
        return Found("FAIL", f"ran on {told}; the baseline on {before.device}, {before.dtype}")
    if manifest.dtype not in ("float32", "bfloat16"):
        return Found("WARN", f"{told}: this precision overflows easily")
    return Found("PASS", told)


def _cost(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compare what the attempt cost, by its wall time, with the cap that was reserved for it before it began."""
    record, grant = evidence.exit, evidence.grant
    if record is None or grant is None:
        raise EvidenceMissing("the attempt has no grant" if grant is None else "the job left no exit record")
    rate = usd_per_hour(evidence.resolved.spec.budget, grant.resources)
    seconds = record.seconds if evidence.observed is None else evidence.observed.bounded(record.seconds)
    usd = seconds / 3600 * rate
    detail = f"the attempt cost {usd:.4f} USD of the {grant.price_cap_usd:.4f} USD reserved for it"
    if usd > grant.price_cap_usd + _SPARE_USD:
        return Found("FAIL", f"{detail}: its time limit did not hold, a person has to look at the bill", usd)
    return Found("PASS", detail, usd)


def _clock(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compare the time that the exit record states with how long the orchestrator saw, or could have seen, the job.

    The record is a file of the job's folder. What it states beyond that is not paid for, and its stage is not believed.
    """
    record, observed = evidence.exit, evidence.observed
    if record is None or observed is None:
        raise EvidenceMissing("the job left no exit record" if record is None else "nobody noted how long it was seen")
    seen = f"between {observed.at_least_s:.0f} and {observed.at_most_s:.0f} s were seen from here"
    detail = f"the exit record states {record.seconds:.6g} s, {seen}"
    if not observed.fits(record.seconds):
        return Found("FAIL", f"{detail}: the record or a clock is wrong")
    return Found("PASS", detail, record.seconds)


CHECKS = (
    Check("jobs.exit", "The job ended by itself, without an error", ALL, _exit, "crash messages taken for results"),
    Check("jobs.granted", "The job ran what was granted", ALL, _granted, "guard bypassed by calling another route"),
    Check("jobs.outputs", "The outputs are those the job wrote", ALL, _outputs, "results edited after the run"),
    Check("jobs.effective", "The effective settings are the granted ones", ALL, _effective, "silent fallbacks"),
    Check(
        "jobs.device",
        "Device and precision are known and shared by the arms",
        lambda kind: not kind.runs_code,
        _device,
        "CPU instead of GPU",
    ),
    Check("jobs.cost", "The attempt cost no more than its cap", ALL, _cost, "spending told in two ways"),
    Check(
        "jobs.clock",
        "The job's own time fits what was seen of it",
        ALL,
        _clock,
        "a forged or wrong clock: -1e9 s settled at 0 USD, 1e9 s at 555,555 USD of 10",
        threshold=f"within {CLOCK_TOLERANCE_S:g} s and {CLOCK_TOLERANCE_SHARE:g} of what was seen",
    ),
)
