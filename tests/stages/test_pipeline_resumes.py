"""The pipelines' stages in a row: a session that was killed at every boundary gives the rows of one that was not."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reviews.audit.verify import verify_run
from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages.overview import overview
from sessions.pages.report.report_check import ReportCheck
from specs.loading.loading import find_spec, load_spec
from testing.fixtures.quick_session import drive, quick_session
from testing.fixtures.simulated_kill import SimulatedKill
from testing.fixtures.small_pipeline import InProcessLauncher, open_small, writing_model

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*"),
    pytest.mark.usefixtures("one_thread"),
]
MOST = 60
"""Answers and resumes a session may take; each stage takes a few."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return writing_model(tmp_path_factory.mktemp("model") / "model")


def answer_question(run: Path) -> dict[str, Any] | None:
    """Return what a person says to what the session asks: gates are lifted, lost jobs are run again."""
    state = overview(run)
    if state.state != "waiting":
        return None
    key = f"lost/{run.name}.{state.stage}.{state.attempt}"
    lost = any(entry.key == key for entry in read_entries(run / "trail.sqlite"))
    return {"answer": "retry" if lost else "approve", "reason": "a test", "by": "a test", "expires": None}


def to_its_end(run: Path, launcher: InProcessLauncher) -> int:
    """Drive a session to its end, over every gate and every kill; return how often it was killed."""
    kills = 0
    for _ in range(MOST):
        try:
            drive(quick_session(run, launcher=launcher), answer_question(run))  # pyright: ignore[reportArgumentType]
        except SimulatedKill:
            kills += 1
        if overview(run).state == "closed":
            return kills
    raise AssertionError(f"not closed: {overview(run)}")


class Result(NamedTuple):
    """What a session came to: by stage what its accepted attempt left and what was measured of it, and the end."""

    outputs: dict[str, dict[str, str]]
    metrics: dict[str, dict[str, Any]]
    decision: str | None


def result_of(run: Path) -> Result:
    entries, store = read_entries(run / "trail.sqlite"), Store(run / "store")
    outputs: dict[str, dict[str, str]] = {}
    metrics: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry.kind == "exit":
            outputs[entry.raw["stage"]] = {name: output["digest"] for name, output in entry.raw["outputs"].items()}
        elif entry.kind == "metrics" and entry.raw["metrics"]:
            metrics[entry.raw["stage"]] = store.get_value(entry.raw["metrics"])["metrics"]
    return Result(outputs, metrics, overview(run).decision)


def once_each(raises: list[str], where: str, spared: Collection[str] = ()) -> Callable[[Path], None]:
    """Return what ends the session when a job's first attempt gets somewhere, and notes it."""

    def at(folder: Path) -> None:
        stage = folder.name.split(".")[1]
        output = f"{where} {stage}"
        if folder.name.endswith(".1") and stage not in spared and output not in raises:
            raises.append(output)
            raise SimulatedKill

    return at


@pytest.fixture(scope="module")
def undisturbed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Result]]:
    """Run each of the two without a hitch, when it is first asked for."""

    @cache
    def run_of(name: str) -> tuple[Path, Result]:
        run = open_small(name, tmp_path_factory.mktemp(name), model)
        assert to_its_end(run, InProcessLauncher()) == 0
        return run, result_of(run)

    return run_of


def same_as(run: Path, undisturbed: Result) -> None:
    """Compare a session with one that was not disturbed: every file and metric of every stage, and the end."""
    result = result_of(run)
    assert result.decision == undisturbed.decision
    for stage, outputs in undisturbed.outputs.items():
        assert result.outputs[stage] == outputs, stage
        assert result.metrics[stage] == undisturbed.metrics[stage], stage
    assert result.outputs.keys() == undisturbed.outputs.keys()
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.exit_code == 0, audit.damage


@pytest.mark.slow
@pytest.mark.parametrize("name", ["self_instruct_sft", "cai_preferences"])
def test_the_small_pipeline_is_the_shipped_one(undisturbed: Callable[[str], tuple[Path, Result]], name: str) -> None:
    run, result = undisturbed(name)
    shipped = load_spec(find_spec(name)).spec
    launched = [entry.raw["stage"] for entry in read_entries(run / "trail.sqlite") if entry.kind == "launch"]
    assert launched == [stage.name for stage in shipped.stages] and set(result.metrics) == set(launched)
    # Nothing of it is empty: what is trained on, and what is measured.
    counted = {"self_instruct_sft": ("sft", "steps", "self_instruct", "instructions_kept"),
               "cai_preferences": ("dpo", "dpo_steps", "revise", "revision_pairs")}[name]  # fmt: skip
    assert result.metrics[counted[0]][counted[1]]["value"] >= 2
    assert result.metrics[counted[2]][counted[3]]["value"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["self_instruct_sft", "cai_preferences"])
def test_killed_at_every_boundary_it_gives_the_same(
    undisturbed: Callable[[str], tuple[Path, Result]], model: Path, tmp_path: Path, name: str
) -> None:
    # The orchestrator dies before a job begins, or when the job has ended and no one has seen it, in turn.
    whole = undisturbed(name)[1]
    run = open_small(name, tmp_path, model)
    killed: list[str] = []
    odd, even = list(whole.outputs)[::2], list(whole.outputs)[1::2]
    launcher = InProcessLauncher(before=once_each(killed, "before", odd), after=once_each(killed, "after", even))
    assert to_its_end(run, launcher) == len(whole.outputs) == len(killed)
    # No job ran twice.
    assert sorted(launcher.ran) == sorted(set(launcher.ran)) and len(launcher.ran) == len(whole.outputs)
    same_as(run, whole)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["self_instruct_sft", "cai_preferences"])
def test_killed_within_every_job_it_gives_the_same(
    undisturbed: Callable[[str], tuple[Path, Result]], model: Path, tmp_path: Path, name: str
) -> None:
    whole = undisturbed(name)[1]
    run = open_small(name, tmp_path, model)
    killed: list[str] = []
    to_its_end(run, InProcessLauncher(midway=once_each(killed, "within")))
    # Jobs that are too short to report are not killed in their middle; the others were lost, and a person had them
    # run once more.
    lost = [entry.raw["stage"] for entry in read_entries(run / "trail.sqlite") if entry.kind == "lost"]
    assert [f"within {stage}" for stage in lost] == killed and len(lost) >= len(whole.outputs) - 2
    same_as(run, whole)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["self_instruct_sft", "cai_preferences"])
def test_one_kill_at_each_boundary_alone(
    undisturbed: Callable[[str], tuple[Path, Result]], model: Path, tmp_path: Path, name: str
) -> None:
    whole = undisturbed(name)[1]
    for stage in whole.outputs:
        for where in ("before", "after"):
            at = once_each([], where, [other for other in whole.outputs if other != stage])
            run = open_small(name, tmp_path / f"{stage}-{where}", model)
            assert (
                to_its_end(run, InProcessLauncher(before=at) if where == "before" else InProcessLauncher(after=at)) == 1
            )
            same_as(run, whole)


@pytest.mark.slow
def test_what_differs_is_found(undisturbed: Callable[[str], tuple[Path, Result]]) -> None:
    # The control of the comparison: one file, one metric or one stage that is not the same.
    run, whole = undisturbed("cai_preferences")
    same_as(run, whole)
    rows = whole.outputs["revise"] | {"rows": "sha256:0"}
    measured = whole.metrics["dpo"] | {"dpo_steps": {}}
    for changed in (
        whole._replace(outputs=whole.outputs | {"revise": rows}),
        whole._replace(metrics=whole.metrics | {"dpo": measured}),
        whole._replace(outputs={stage: output for stage, output in whole.outputs.items() if stage != "dpo"}),
        whole._replace(decision="null"),
    ):
        with pytest.raises(AssertionError):
            same_as(run, changed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["self_instruct_sft", "cai_preferences"])
def test_every_number_is_followed_to_its_rows(undisturbed: Callable[[str], tuple[Path, Result]], name: str) -> None:
    run, result = undisturbed(name)
    report = ReportCheck(run, History.read(run / "trail.sqlite", run / "store"), apart=True)
    assert report.problems == []
    for metric in report.measured:
        traced = report.trace(metric)
        assert traced.problems == () and traced.again == metric.metric.value, metric.name
        assert traced.parts, metric.name
        named = {"rows", "baseline", *(rows.name for rows in traced.rows)}
        assert {part.file for part in traced.parts} <= named and all(rows.entry for rows in traced.rows), metric.name
    assert {recorded_metric.set.stage for recorded_metric in report.measured} == set(result.metrics)
