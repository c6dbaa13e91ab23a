"""A bench times an engine next to a plain run; unsteady rounds are judged by their worst."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import apply
from reviews.evidence.evidence import Evidence
from reviews.gate.measurer import measure
from reviews.stages.packaging import bench_checks
from specs.jobs.job_records import ObservedRuntime
from specs.stages.packaging.kinds import BENCH
from specs.stages.packaging.rows import BenchRow
from testing.factories.evaluation_evidence import evidence_with, texts
from testing.fixtures.critic_jobs import lines
from testing.fixtures.small_text import seed_items, small_model
from testing.fixtures.stage_jobs import stage_job
from training.jobs.job import Job
from training.jobs.packaging.bench import bench
from training.jobs.row_files import read_rows


def rounds(engine: list[float], plain: list[float]) -> list[BenchRow]:
    """Return rounds of 10 tokens at these rates."""
    pairs = zip(engine, plain, strict=True)
    return [
        BenchRow(round=n, run=run, tokens=10, seconds=10 / rate)  # pyright: ignore[reportArgumentType]
        for n, both in enumerate(pairs, 1)
        for run, rate in zip(("engine", "plain"), both, strict=True)
    ]


HEALTHY = rounds([100, 102, 98], [50, 51, 49])


def bench_evidence(folder: Path, rows: list[BenchRow] = HEALTHY, **parameters: Any) -> Evidence:
    arguments = {"rounds": 3, **parameters}
    stage = BENCH.stage(name="bench", kind="bench", inputs={"model": "model", "items": "heldout"}, parameters=arguments)
    return replace(evidence_with(folder, stage, texts(), rows), observed=ObservedRuntime(at_least_s=1, at_most_s=60))


def results(evidence: Evidence) -> dict[str, str]:
    metrics = measure(evidence)
    return {check.id: apply(check, evidence, metrics).status for check in bench_checks.CHECKS}


def test_steady_rounds_are_judged_by_their_median(tmp_path: Path) -> None:
    evidence = bench_evidence(tmp_path)
    values = {id: metric.value for id, metric in measure(evidence).metrics.items()}
    assert values["tokens_per_second"] == 100 and values["plain_tokens_per_second"] == 50
    assert values["speed_ratio"] == 2 and values["bench_rounds"] == 3
    assert values["speed_spread"] == pytest.approx(0.01633, abs=1e-4)
    assert set(results(evidence).values()) == {"PASS"}


FLAWS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("too slow", {"floor": 100.5}, {"bench.floor"}),
    ("slower than plain", {"rows": rounds([30, 31, 30], [50, 51, 49])}, {"bench.ratio"}),
    ("a round left out", {"rows": HEALTHY[:4]}, {"bench.rounds"}),
    ("one round twice", {"rows": [*HEALTHY[:4], *rounds([1, 1, 1, 99], [1, 1, 1, 50])[6:]]}, {"bench.rounds"}),
    ("more time than there was", {"rows": rounds([0.2] * 3, [0.2] * 3), "floor": 0.1}, {"bench.times"}),
    (
        "a slow round, floor",
        {"rows": rounds([100, 100, 40], [30, 30, 30]), "floor": 60},
        {"bench.steady", "bench.floor"},
    ),
    ("a slow round, ratio", {"rows": rounds([100, 100, 40], [60, 60, 60])}, {"bench.steady", "bench.ratio"}),
]


@pytest.mark.parametrize(("arguments", "values"), [case[1:] for case in FLAWS], ids=[case[0] for case in FLAWS])
def test_each_flaw_is_found_by_its_check_alone(tmp_path: Path, arguments: dict[str, Any], values: set[str]) -> None:
    statuses = results(bench_evidence(tmp_path, **arguments))
    assert {id for id, status in statuses.items() if status != "PASS"} == values
    assert statuses["bench.steady"] in ("PASS", "WARN")


def job_of(folder: Path, model: Path, **arguments: Any) -> Job[Any]:
    inputs = {"model": model, "items": lines(folder / "items.jsonl", seed_items(3))}
    return stage_job(
        folder / "run", "bench", inputs, "instruct", rounds=3, probe_items=2, max_new_tokens=4, **arguments
    )


def test_a_job_times_both_runs_by_turns(tmp_path: Path) -> None:
    job = job_of(tmp_path, small_model(tmp_path / "model", chat=True))
    done = bench(job)
    rows = read_rows(job.out / "rows.jsonl", BenchRow)
    assert [(row.round, row.run) for row in rows] == [(n, run) for n in (1, 2, 3) for run in ("engine", "plain")]
    assert len({row.tokens for row in rows}) == 1, "the same greedy answers"
    assert done.effective["engine"] == "batched" and done.effective["form"] == "chat" and done.tokens > 0


def test_a_run_that_writes_nothing_ends_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any) -> int:
        return 0

    monkeypatch.setattr("training.jobs.packaging.bench._plain", nothing)
    with pytest.raises(SystemExit, match="plain run writes no token"):
        bench(job_of(tmp_path, small_model(tmp_path / "model", chat=True)))
