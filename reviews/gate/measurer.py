"""The measurer: every metric, from raw rows only; nothing that a job or a builder states.

The registered verifier judges the outputs again. Metrics are defined in ``specs/stages/metric_catalog.py``.
"""

from __future__ import annotations

from reviews.checks.definition import CheckOutcome, CheckRegistry, manifest_of
from reviews.checks.measuring_code import measuring_code
from reviews.comparison.arms import measure_comparison
from reviews.comparison.transfer import list_transfer_stages, measure_transfer
from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import metric_of
from reviews.evidence.row_reader import gate_cache, read_rows
from reviews.stages.judge import judge_of
from reviews.stages.row_metrics import measure_rows
from specs.stages.base.metric import MetricSet
from specs.stages.registry import kind_of
from specs.system.digests import digest_file
from specs.system.errors import EvidenceMissing
from specs.system.text import plain

CHECKS = CheckRegistry()


@gate_cache()
def measure(evidence: Evidence) -> MetricSet:
    """Compute every metric of the attempt's stage kind, and the comparison at the treatment stage.

    Raises:
        EvidenceMissing: raw rows are absent, unreadable, or not one per registered item.
    """
    stage = evidence.stage
    rows = {stage.name: evidence.output_digests["rows"]} if "rows" in evidence.output_digests else {}
    try:
        kind = kind_of(stage)
        judge = judge_of(kind)
        values = measure_rows(kind, evidence) | (judge.measure(evidence) if judge.measure else {})
        if kind.arm is not None and stage.name == evidence.resolved.spec.analysis.treatment:
            values |= measure_comparison(evidence) | measure_transfer(evidence)
        metrics = {id: metric_of(id, measured) for id, measured in values.items()}
    except EvidenceMissing:
        raise
    except Exception as error:
        # Rows that break the arithmetic are missing evidence: the gate closes, and the session continues.
        raise EvidenceMissing(f"they cannot be measured: {plain(str(error), 200)}", where="raw rows") from error
    analysis = evidence.resolved.spec.analysis
    if stage.name == analysis.treatment and evidence.baseline_rows is not None:
        others = {arm.stage: evidence.arms[arm.stage].rows for arm in analysis.arms}
        others |= {name: evidence.arms[name].rows for name in list_transfer_stages(analysis)}
        others["baseline"] = evidence.baseline_rows
        rows |= {name: digest_file(path) for name, path in others.items() if path is not None}
    return MetricSet(
        stage=stage.name,
        attempt=evidence.attempt,
        rows=rows,
        code=measuring_code(evidence.resolved),
        metrics=metrics,
    )


@CHECKS.add(
    "jobs.measured",
    "The raw rows could be measured",
    source="a gate without a criterion that opened on unreadable rows",
)
def _check_measurable_rows(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Close the gate of rows that cannot be measured, whatever criteria and checks the stage has next to this one."""
    if metrics is None:
        # Raises with the reason.
        measure(evidence)
        raise EvidenceMissing("the rows were not measured")
    counted, stated = _tokens_in(evidence), manifest_of(evidence).tokens
    if counted not in (None, stated):
        return CheckOutcome("FAIL", f"the manifest states {stated} tokens, its rows hold {counted}", repairable=False)
    return CheckOutcome(
        "PASS", f"{len(metrics.metrics)} metrics were computed from the raw rows", float(len(metrics.metrics))
    )


def _tokens_in(evidence: Evidence) -> int | None:
    """Return the tokens that the rows count, where the manifest states their sum; else None."""
    form = kind_of(evidence.stage).rows.get("rows")
    name = next((value for value in _COUNTED if form is not None and value in form.model_fields), None)
    if form is None or name is None or kind_of(evidence.stage).plugin:
        return None
    return sum(getattr(row, name) for row in read_rows(evidence.outputs.get("rows"), form, "rows"))


_COUNTED = ("tokens", "output_tokens", "completion_tokens")
"""Fields of rows with the tokens that were written or read for them."""
