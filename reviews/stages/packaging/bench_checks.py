"""The judge of ``bench`` stages: is the model fast enough, by what, and was that measured steadily?"""

from __future__ import annotations

from typing import Any

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, need
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from specs.stages.base.metric import MetricSet
from specs.stages.packaging.parameters import BenchParameters
from specs.stages.packaging.rows import BenchRow
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds

CHECKS = CheckRegistry(("bench",))


def summarise_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every round; errors as :func:`read_rows`."""
    return [row.model_dump() | {"rate": row.rate} for row in _rows(evidence)]


def _rows(evidence: Evidence) -> tuple[BenchRow, ...]:
    return read_rows(evidence.outputs.get("rows"), BenchRow, "bench rows")


def _rates(evidence: Evidence, run: str) -> list[float]:
    values = [row.rate for row in _rows(evidence) if row.run == run]
    if not values:
        raise EvidenceMissing(f"the {run} round is missing")
    return values


@CHECKS.add("bench.rounds", "Every registered round was timed", source="the best of several timings, reported as one")
def _check_rounds(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    rows, rounds = _rows(evidence), evidence.parse_parameters(BenchParameters).rounds
    if [(row.round, row.run) for row in rows] != [
        (n, run) for n in range(1, rounds + 1) for run in ("engine", "plain")
    ]:
        return CheckOutcome(
            "FAIL", f"{len(rows)} timings are not {rounds} rounds of engine and plain run by turns", float(len(rows))
        )
    return CheckOutcome("PASS", f"{rounds} rounds of engine and plain run, by turns", float(len(rows)))


@CHECKS.add(
    "bench.steady",
    "The rounds took about the same time",
    source="a floor that shared cores missed or met by chance",
    limits=(CheckLimit("<=", "thresholds.speed_spread"),),
    blocking=False,
)
def _check_steady(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    spread = need(metrics, "speed_spread")
    message = f"the rates spread by {spread:.1%} of their mean"
    if _is_steady(evidence, metrics):
        return CheckOutcome("PASS", message, spread)
    return CheckOutcome("WARN", f"{message}: the worst round counts", spread)


def _is_steady(evidence: Evidence, metrics: MetricSet | None) -> bool:
    """Return whether a median counts; unsteadier rounds are judged by their worst."""
    return holds(need(metrics, "speed_spread"), "<=", evidence.resolved.spec.thresholds.speed_spread)


@CHECKS.add(
    "bench.floor", "The model writes at least the registered tokens a second", source="a model too slow for its use"
)
def _check_floor(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    floor, median = evidence.parse_parameters(BenchParameters).floor, need(metrics, "tokens_per_second")
    rate = median if _is_steady(evidence, metrics) else min(_rates(evidence, "engine"))
    message = f"{rate:.4g} tokens a second, the floor is {floor:g}"
    return CheckOutcome("PASS" if rate >= floor else "FAIL", message, rate)


@CHECKS.add(
    "bench.ratio",
    "The engine is as fast as the registered share of a plain run",
    source="an absolute floor that says more of the machine than of the model",
)
def _check_ratio(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    least, ratio = evidence.parse_parameters(BenchParameters).least_ratio, need(metrics, "speed_ratio")
    if not _is_steady(evidence, metrics):
        ratio = min(_rates(evidence, "engine")) / max(_rates(evidence, "plain"))
    message = f"{ratio:.3g} times as fast as a plain run, at least {least:g} is registered"
    return CheckOutcome("PASS" if ratio >= least else "FAIL", message, ratio)


@CHECKS.add(
    "bench.times",
    "The timed rounds fit into the time that the job was seen to take",
    source="timings of another run",
)
def _check_times(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    if evidence.observed is None:
        raise EvidenceMissing("the duration of the job was not observed")
    timed = sum(row.seconds for row in _rows(evidence))
    most = evidence.observed.at_most_s + evidence.observed.spare()
    message = f"{timed:.4g} s were timed, the job was seen for at most {evidence.observed.at_most_s:.4g} s"
    return CheckOutcome("PASS" if timed <= most else "FAIL", message, timed)
