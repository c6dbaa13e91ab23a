"""Did the job run to its end, on what was granted, with the settings that were granted?"""

from __future__ import annotations

import math
import signal
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, join_names, manifest_of, unless
from reviews.evidence.evidence import Evidence
from specs.jobs.job_records import CLOCK_TOLERANCE_S, CLOCK_TOLERANCE_SHARE, SHORT_TOLERANCE_S, ExitRecord
from specs.stages.base.metric import MetricSet
from specs.stages.base.stage import NotReadBack
from specs.stages.registry import kind_of, outputs_of
from specs.system.errors import EvidenceMissing
from specs.system.resources import usd_per_hour

CHECKS = CheckRegistry()

_SPARE_USD = 1e-6
"""What is reserved is rounded to this."""


@CHECKS.add("jobs.exit", "The job exited normally, without an error", source="crash messages taken for results")
def _check_exit(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    record = evidence.exit
    if record is None:
        raise EvidenceMissing("the job left no exit record: it is lost")
    if evidence.grant is not None and record.key != evidence.grant.key():
        return CheckOutcome("FAIL", f"the exit record is of the job {record.key}", repairable=False)
    if record.code != 0 or record.reason != "exited":
        lines = [line for line in evidence.log_tail.splitlines() if line.strip()][-5:]
        visible = tuple({"log": line} for line in lines)
        return CheckOutcome("FAIL", f"the job {how_it_ended(record)}", float(record.code), visible)
    if evidence.log_left is not None and evidence.log_left != record.log:
        return CheckOutcome("FAIL", "the log was edited after the job's wrapper closed it")
    return CheckOutcome("PASS", f"exit code 0 after {record.seconds:.0f} s", 0.0)


def how_it_ended(record: ExitRecord) -> str:
    """Return what ended a job that did not exit normally."""
    most = f"; its processes held up to {record.peak_rss_mb:,.0f} MB" if record.peak_rss_mb is not None else ""
    match record.reason:
        case "timeout":
            return f"was ended when its time limit was over, after {record.seconds / 60:.1f} min"
        case "signal":
            return f"was killed by {_signal_name(-record.code)}{most}"
        case "cancelled" | "dead_man" | "refused":
            return f"ended with code {record.code} ({record.reason})"
        case "exited":
            return f"ended with code {record.code}{most}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@CHECKS.add("jobs.granted", "The job ran what was granted", source="guard bypassed by calling another route")
def _check_grant(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    manifest, grant = manifest_of(evidence), evidence.grant
    if grant is None:
        raise EvidenceMissing("the attempt has no grant")
    evidence.require_parameters()
    compared: tuple[tuple[str, Any, Any], ...] = (
        ("key", manifest.key, grant.key()),
        ("kind", manifest.kind, evidence.stage.kind),
        ("parameters", manifest.parameters, grant.parameters),
        ("inputs", manifest.inputs, grant.inputs),
    )
    wrong = [f"{what} {result} instead of {granted}" for what, result, granted in compared if result != granted]
    if wrong:
        return CheckOutcome("FAIL", f"the job says it ran with {'; '.join(wrong)}", repairable=False)
    return CheckOutcome("PASS", "key, kind, parameters and inputs are the granted ones")


@CHECKS.add("jobs.outputs", "The outputs are those the job wrote", source="results edited after the run")
def _check_outputs(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    manifest = manifest_of(evidence)
    expected = set(outputs_of(evidence.stage.kind, evidence.stage.parameters))
    missing = sorted(expected - evidence.output_digests.keys())
    if missing:
        raise EvidenceMissing(f"output {join_names(missing)} was not left")
    if manifest.outputs != evidence.output_digests:
        changed = [name for name in sorted(expected) if manifest.outputs.get(name) != evidence.output_digests[name]]
        return CheckOutcome("FAIL", f"{join_names(changed)} changed after the job wrote its manifest", repairable=False)
    if evidence.beside:
        visible = tuple({"file": name} for name in evidence.beside)
        return CheckOutcome(
            "FAIL",
            f"the job left files that are not outputs of its stage: {join_names(evidence.beside)}",
            None,
            visible,
            repairable=False,
        )
    return CheckOutcome("PASS", f"{len(expected)} outputs have the digests of the manifest", float(len(expected)))


@CHECKS.add("jobs.effective", "The effective settings are the granted ones", source="silent fallbacks")
def _check_effective(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    manifest = manifest_of(evidence)
    left_out = NotReadBack.names(kind_of(evidence.stage).parameters)
    compared = [
        (name, granted, manifest.effective.get(name), name in manifest.effective)
        for name, granted in sorted(evidence.require_parameters().items())
        if name not in left_out
    ]
    compared.append(("seed", evidence.parameters.get("seed"), manifest.seed, True))
    differing: list[dict[str, Any]] = [
        {"parameter": name, "granted": granted, "effective": effective}
        for name, granted, effective, stated in compared
        if not (stated and _same(granted, effective))
    ]
    message = "; ".join(
        f"{value['parameter']} {value['effective']} instead of {value['granted']}" for value in differing
    )
    return unless(differing, f"the job ran with {message}", "every setting read back is the granted one")


def _same(granted: Any, effective: Any) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (granted, effective))
    # Two integers are the same or not: seeds are large enough to be close.
    if numbers and float in (type(granted), type(effective)):
        return math.isclose(granted, effective, rel_tol=1e-9, abs_tol=0.0)
    return granted == effective


@CHECKS.add(
    "jobs.device",
    "Device and precision are known and shared by the arms",
    kinds=lambda kind: not kind.runs_code,
    source="CPU instead of GPU",
)
def _check_device(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    manifest = manifest_of(evidence)
    if kind_of(evidence.stage).without_precision:
        return CheckOutcome("NOT_APPLICABLE", "the stage runs no model, so it has no precision")
    granted = _granted_type(evidence, manifest.device)
    message = f"{manifest.device} ({manifest.device_name}), {manifest.dtype}, {manifest.threads} threads"
    if granted and manifest.dtype != granted:
        return CheckOutcome("FAIL", f"trained on {message}; {granted} was granted")
    before = evidence.baseline_manifest
    if before is not None and (before.device, before.dtype) != (manifest.device, manifest.dtype):
        return CheckOutcome("FAIL", f"ran on {message}; the baseline on {before.device}, {before.dtype}")
    if before is not None and before.device_name != manifest.device_name:
        return CheckOutcome(
            "WARN", f"ran on {message}; the baseline on {before.device_name}, which may round otherwise"
        )
    if manifest.dtype not in ("float64", "float32", "bfloat16"):
        return CheckOutcome("WARN", f"{message}: this precision overflows easily")
    return CheckOutcome("PASS", message)


def _granted_type(evidence: Evidence, device: str) -> str:
    """Return the type of weights that a training was granted on a device; empty for what does not train."""
    if not kind_of(evidence.stage).trains:
        return ""
    precision: str = evidence.parameters.get("precision", "auto")
    if precision == "auto":
        return "bfloat16" if device.startswith("cuda") else "float32"
    return {"mixed": "float32"}.get(precision, precision)


@CHECKS.add("jobs.cost", "The attempt cost no more than its cap", source="spending reported in two ways")
def _check_cost(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare what the attempt cost, by its wall time, with the cap that was reserved for it before it began."""
    record, grant = evidence.exit, evidence.grant
    if record is None or grant is None:
        raise EvidenceMissing("the attempt has no grant" if grant is None else "the job left no exit record")
    rate = usd_per_hour(evidence.resolved.spec.budget, grant.resources)
    seconds = record.seconds if evidence.observed is None else evidence.observed.bound_seconds(record.seconds)
    usd = seconds / 3600 * rate
    detail = f"the attempt cost {usd:.4f} USD of the {grant.price_cap_usd:.4f} USD reserved for it"
    if usd > grant.price_cap_usd + _SPARE_USD:
        return CheckOutcome("FAIL", f"{detail}: its time limit did not hold; a person must check the bill", usd)
    return CheckOutcome("PASS", detail, usd)


@CHECKS.add(
    "jobs.clock",
    "The job's reported time fits the observed time",
    source="a forged or wrong clock: -1e9 s settled at 0 USD, 1e9 s at 555,555 USD of 10",
    threshold=f"within {SHORT_TOLERANCE_S:g} s and half of the observed time, or {CLOCK_TOLERANCE_S:g} s and "
    f"{CLOCK_TOLERANCE_SHARE:g} of it, whichever is less",
)
def _check_clock(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the time that the exit record states with how long the orchestrator saw, or could have seen, the job.

    The record is a file of the job's folder. What it states beyond that is not paid for, and its stage is not believed.
    """
    record, observed = evidence.exit, evidence.observed
    if record is None or observed is None:
        raise EvidenceMissing(
            "the job left no exit record" if record is None else "its observed running time was not recorded"
        )
    seen_text = f"between {observed.at_least_s:.0f} and {observed.at_most_s:.0f} s were seen from here"
    detail = f"the exit record states {record.seconds:.6g} s, {seen_text}"
    if not observed.fits(record.seconds):
        return CheckOutcome("FAIL", f"{detail}: the record or a clock is wrong")
    return CheckOutcome("PASS", detail, record.seconds)


@CHECKS.add(
    "jobs.times",
    "The job ran between its launch and its recorded end",
    source="an exit record of another run: its length fits, its hours do not",
    threshold=f"within {CLOCK_TOLERANCE_S:g} s and {CLOCK_TOLERANCE_SHARE:g} of the observed time",
)
def _check_times(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare start and end of the exit record, and the wall time of the manifest, with what the trail notes.

    The clock of another machine may be wrong as a whole, and that of this one may have been set meanwhile: where that
    explains it, it is only warned of.
    """
    record, observed, manifest = evidence.exit, evidence.observed, manifest_of(evidence)
    if record is None or observed is None or evidence.launched is None or evidence.ended is None:
        raise EvidenceMissing("the job left no exit record" if record is None else "its launch time was not recorded")
    spare = observed.spare()
    early, late = evidence.launched - record.started, record.ended - evidence.ended
    beyond = manifest.wall_s - record.seconds
    if beyond > observed.spare_of_length():
        message = f"the manifest states {manifest.wall_s:.6g} s of work, its process lived for {record.seconds:.6g} s"
        return CheckOutcome("FAIL", message, beyond)
    off = max(early, late)
    if off > spare:
        side = f"began {early:.6g} s before its launch" if early >= late else f"ended {late:.6g} s after its noted end"
        detail, moved = f"the exit record says that the job {side}", observed.clock_set_s
        if moved is None and observed.at_least_s == 0:
            return CheckOutcome(
                "WARN", f"{detail}; it was not seen running on this machine, whose clock may be another", off
            )
        if moved is not None and off <= spare + abs(moved):
            return CheckOutcome("WARN", f"{detail}; the machine's clock was set by {moved:.6g} s meanwhile", off)
        return CheckOutcome("FAIL", detail, off)
    return CheckOutcome(
        "PASS", f"it began and ended between launch and recorded end, and worked for {manifest.wall_s:.6g} s", 0.0
    )


@CHECKS.add(
    "provenance.code",
    "The job ran the session's declared code, from a commit",
    source="results that could not be repeated because the code was changed and lost",
)
def _check_code(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Read the state of the code from the manifest: another fails; changed or unknown warns or fails."""
    manifest = manifest_of(evidence)
    state = manifest.code_state
    if state.digest != manifest.code:
        return CheckOutcome(
            "FAIL", f"the code changed while the job ran: {state.digest} when it began, {manifest.code} after"
        )
    if manifest.code != evidence.ordered_code:
        return CheckOutcome("FAIL", f"the job ran the code {manifest.code}, the session runs {evidence.ordered_code}")
    if state.state == "clean":
        return CheckOutcome("PASS", f"ran {state}", 0.0)
    figure = None if state.changed is None else float(state.changed)
    if evidence.resolved.spec.clean_code == "required":
        return CheckOutcome("FAIL", f"ran {state}; the spec requires clean code", figure)
    return CheckOutcome("WARN", f"ran {state}: the commit alone does not reproduce this code", figure)
