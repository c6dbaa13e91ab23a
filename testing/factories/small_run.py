"""A closed session in a run folder, made without running anything: spec, metrics, checks, a decision and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.pages.report import report
from specs.stages.base.metric import Metric, MetricSet
from specs.stages.metric_catalog import METRICS
from specs.system.digests import digest_bytes
from specs.trail.verdict import CheckResult
from testing.factories.bodies import append_json, body_of
from testing.factories.spec_files import loads, write_spec

MEASURED = {
    ("base", 1): {"accuracy": 0.05, "truncation_rate": 0.0917},
    ("tuned", 1): {
        **{"accuracy": 0.5333333, "accuracy_gain": 0.4833333, "mcnemar_p": 1.058e-16, "gained": 59, "lost": 1},
        "mean_output_tokens": 23.78,
    },
}


def metric_set(stage: str, attempt: int, values: dict[str, float]) -> MetricSet:
    metrics = {
        id: Metric(
            id=id,
            value=value,
            interval=(value - 0.1, value + 0.1) if id == "accuracy_gain" else None,
            n=120,
            unit=METRICS[id].unit,
            population=METRICS[id].population,
            definition=METRICS[id].definition,
        )
        for id, value in values.items()
    }
    return MetricSet(stage=stage, attempt=attempt, rows={}, code=digest_bytes(b"code"), metrics=metrics)


def small_run(
    folder: Path,
    *changes: tuple[str, str],
    closed: bool = True,
    with_report: bool = True,
    check: dict[str, Any] | None = None,
) -> Path:
    """Write the run folder ``small`` and return it; ``changes`` are of its spec, ``check`` of its only check."""
    run = folder / "small"
    run.mkdir(parents=True, exist_ok=True)
    resolved = loads(write_spec(run, *changes))
    (run / "spec.resolved.json").write_bytes(resolved.canonical())
    store = Store(run / "store")
    data = {name: store.put(resolved.path(f"{name}.jsonl").read_bytes()) for name in ("heldout", "prompts")}
    source = store.put((run / "spec.yaml").read_bytes())
    trail = Trail(run / "trail.sqlite", "small")
    opened = {
        "spec": store.put_value(resolved),
        "registration": resolved.registration(),
        "source": source,
        "constitution": store.put(resolved.path(str(resolved.spec.constitution)).read_bytes()),
        "data": data,
        "measured_by": store.put_value({}),
    }
    append_json(trail, "open", "open", body_of("open", **opened))
    sets = {key: metric_set(*key, values) for key, values in MEASURED.items()}
    for (stage, attempt), metrics in sets.items():
        body = {
            "stage": stage,
            "attempt": attempt,
            "metrics": store.put_value(metrics),
            "why": "",
            "code": metrics.code,
        }
        append_json(trail, "metrics", f"metrics/{stage}.{attempt}", body)
    outcome = "of 104 whole pairs 52 gained, 1 lost, p = 1.2e-14"
    result = CheckResult(id="parity.items", title="t", status="PASS", blocking=True, detail=outcome)
    digest = store.put_value([result.model_copy(update=check or {}).model_dump(mode="json")])
    append_json(trail, "checks", "checks/base.1", {"stage": "base", "attempt": 1, "checks": digest, "summary": {}})
    if with_report:
        body = report.write(run, "trail.sqlite", "store", "approve")
        append_json(trail, "report", "report", body)
    if closed:
        append_json(trail, "close", "close", body_of("close"))
    trail.close()
    return run
