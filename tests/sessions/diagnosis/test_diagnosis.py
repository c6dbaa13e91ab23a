"""A diagnosis on sessions that were accepted, found nothing, were stopped by a gate, or broke off in mid-training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from agents.playbook import Playbook
from agents.workbench_protocol import Workbench
from reviews.gate.check_list import CHECKS
from reviews.history.history import History
from reviews.stages.finetuning import (
    checks,
    health_checks,
    online_checks,
    online_health,
    optimizer_checks,
    preference_checks,
    validation_checks,
)
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.jobs.launcher import JobState
from sessions.pages.diagnosis import diagnosis as diagnosing
from sessions.pages.diagnosis.actions import LIKELY, POSSIBLE, SURE
from sessions.pages.diagnosis.attempts import Curves, TrainingAttempt, attempt_of
from sessions.pages.diagnosis.causes import CAUSES, DETECTORS, binding, detector_of, rows_in_words
from sessions.pages.diagnosis.curve_plots import AttemptCurves, draw
from sessions.pages.diagnosis.diagnosis import Diagnosis, diagnose, nothing_begun
from sessions.pages.diagnosis.five_whys import whys_of
from sessions.pages.diagnosis.hypotheses import hypotheses_of
from sessions.pages.diagnosis.pages import lines_of
from sessions.pages.report.live_display import Terminal
from sessions.pages.report.report import rendered_again
from specs.jobs.job_records import JobOrder
from specs.system.errors import UserError
from specs.system.vendors.conversation import ToolCall
from specs.trail.builder_tools import LaunchStage
from specs.trail.verdict import CheckResult
from testing.factories.flaws import ROW_FLAWS
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import (
    QuickLauncher,
    Silent,
    drive,
    healthy_rows,
    open_quick,
    quick_session,
    rows_with,
)


def flawed_training(flaw: str) -> Callable[[JobOrder], list[dict[str, Any]]]:
    return lambda order: ROW_FLAWS[flaw]() if order.kind == "sft" else healthy_rows(order)


def ran(folder: Path, rows: Callable[[JobOrder], list[dict[str, Any]]] = healthy_rows) -> Path:
    run = open_quick(folder)
    drive(quick_session(run, launcher=QuickLauncher(rows=rows)))
    return run


def diagnosis_of(run: Path) -> Diagnosis:
    (diagnosis,) = diagnose(run)
    return diagnosis


def result(id: str, status: Any, detail: str = "", **more: Any) -> CheckResult:
    return CheckResult(id=id, title=id, status=status, blocking=True, detail=detail, **more)


def test_a_healthy_accepted_session_has_nothing_to_explain(tmp_path: Path) -> None:
    diagnosis = diagnosis_of(ran(tmp_path))
    assert (diagnosis.cause, diagnosis.whys, diagnosis.actions, diagnosis.description) == (
        None,
        (),
        (),
        "no detector fired",
    )
    assert {reading.status for reading in diagnosis.readings} <= {"PASS", "NOT_APPLICABLE"}
    assert all(reading.source for reading in diagnosis.readings) and all(
        reading.recorded for reading in diagnosis.readings
    )
    assert diagnosis.curves.steps == tuple(range(1, 11)) and not diagnosis.curves.stated
    lines = list(lines_of(diagnosis, 120))
    assert "  training.loss        The loss went down (0.432, limit >= 0.01)" in lines, lines
    assert any("mean loss 1.85 in the first fifth and 1.05 in the last" in line for line in lines)


def test_a_null_is_followed_to_a_training_in_which_nothing_is_wrong(tmp_path: Path) -> None:
    run = ran(tmp_path, rows_with(0))
    diagnosis = diagnosis_of(run)
    assert diagnosis.cause is None and not diagnosis.actions
    lines = [why.description for why in diagnosis.whys]
    assert lines[0].startswith("the session ended with 'null' at the gate of 'tuned.1'")
    assert lines[1].startswith("the gain is +0 with p = 1") and diagnosis.whys[1].cites == (
        "metrics accuracy_gain, mcnemar_p of tuned",
    )
    assert lines[2] == "in training the loss went from 1.85 to 1.05"
    assert lines[3].startswith("no detector explains it")


def test_a_dead_gradient_binds_and_is_cited_with_its_row(tmp_path: Path) -> None:
    run, silent = open_quick(tmp_path), Silent()
    launcher = QuickLauncher(rows=flawed_training("a dead gradient"))
    drive(quick_session(run, launcher=launcher, display=cast(Terminal, silent)))
    (message,) = [line for line in silent.lines if "diagnosis of" in line]
    assert message.startswith(
        "  diagnosis of train: the optimisation did not work (training.gradient, FAIL); `peergate"
    )
    diagnosis = diagnosis_of(run)
    assert (diagnosis.cause, diagnosis.check) == ("optimisation", "training.gradient")
    first = diagnosis.readings[0]
    assert (first.check, first.status, first.lines, first.threshold) == ("training.gradient", "FAIL", (3,), "<= 20")
    lines = [why.description for why in diagnosis.whys]
    assert lines[0] == "the gate of 'train.1' decided 'escalate': training.gradient FAIL"
    assert lines[-1] == "the stage was granted learning_rate 1e-05, max_grad_norm 1: as registered in the spec"
    assert diagnosis.whys[-1].cites == ("entry 0 (open)",) and "row 3" in diagnosis.whys[-2].cites
    (action,) = diagnosis.actions
    assert action.against == "training.gradient" and action.gain == SURE and action.again == ("train", "tuned", "ship")


def test_a_plateau_leads_to_the_schedule_that_made_it(tmp_path: Path) -> None:
    diagnosis = diagnosis_of(ran(tmp_path, flawed_training("a plateau that the schedule makes")))
    assert diagnosis.check == "training.schedule"
    cited = [why.cites[0] for why in diagnosis.whys]
    assert cited[-3:-1] == ["check training.plateau", "check training.schedule"]
    assert [(action.against, action.gain) for action in diagnosis.actions] == [
        ("training.schedule", SURE),
        ("training.plateau", LIKELY),
    ]
    assert dict(diagnosis.marks()) == {
        "training.schedule": (3, 4, 5, 6, 7, 8, 9, 10),
        "training.plateau": (1, 4, 5, 6, 7, 8, 9, 10),
    }


def test_what_did_not_close_the_gate_does_not_explain_why_it_is_closed(tmp_path: Path) -> None:
    run = ran(tmp_path)
    entries, store = read_entries(run / "trail.sqlite"), Store(run / "store")
    advice = result("training.starvation", "WARN").model_copy(update={"blocking": False})
    judged = attempt_of(History(entries, store), "train", 1)
    for closing, text in (("provenance.code", "apart from what closed the gate"), ("training.mask", "infra")):
        results = [advice, result(closing, "FAIL")]
        check_results = [check for check in results if check.id in DETECTORS]
        whys = whys_of(History(entries, store), judged._replace(checks=tuple(results)), check_results)
        assert [why.description.startswith(text) for why in whys].count(True) == 1, whys


def attempt(number: int, status: str, figure: float, **arguments: Any) -> TrainingAttempt:
    results = (result("training.plateau", status, figure=figure),)
    return TrainingAttempt("train", number, True, True, results, Curves(), arguments, {}, {"sft_last_loss": 9.75})


@pytest.mark.parametrize(
    ("status", "arguments", "conclusion", "why"),
    [
        ("PASS", {"epochs": 4}, "supported", "passes with nothing else changed"),
        ("WARN", {"epochs": 4}, "refuted", "fires with the other value too"),
        ("PASS", {"epochs": 4, "seed": 2}, "not shown", "2 values changed at once"),
        ("BLOCKED", {"epochs": 4}, "not shown", "has no result there"),
    ],
)
def test_a_further_attempt_supports_or_refutes_what_explained_the_one_before(
    status: str, arguments: dict[str, Any], conclusion: str, why: str
) -> None:
    """As in a public record: four times the steps left the loss where it was, so the schedule was not the cause."""
    first = attempt(1, "WARN", 0.4, epochs=1, seed=1)
    (hypothesis,) = hypotheses_of([first, attempt(2, status, 0.3, **{"epochs": 1, "seed": 1} | arguments)])
    assert (hypothesis.conclusion, hypothesis.check) == (conclusion, "training.plateau") and why in hypothesis.why
    assert hypothesis.description.startswith("training.plateau fires because of epochs 1 (then 4)")
    assert hypothesis.before == "WARN, figure 0.4, last loss 9.75" and hypothesis.cites == (
        "checks/train.1",
        "checks/train.2",
    )


def test_nothing_is_tested_where_nothing_bound_or_nothing_changed() -> None:
    training_attempt, passed = attempt(1, "WARN", 0.4, epochs=1), attempt(1, "PASS", 0.1, epochs=1)
    assert not list(hypotheses_of([passed, attempt(2, "WARN", 0.4, epochs=4)]))
    assert not list(hypotheses_of([training_attempt, attempt(2, "WARN", 0.4, epochs=1)]))
    assert not list(hypotheses_of([training_attempt]))


class Faster(Playbook):
    """Tries another attempt with a larger rate."""

    def work(self, bench: Workbench) -> None:
        if bench.phase != "plan" or bench.view.opened_by != "retry":
            return super().work(bench)
        stage = LaunchStage(stage=bench.view.stage, changes={"learning_rate": 5e-5}, reason="the rate is too small")
        bench.call(ToolCall(id="1", name="launch_stage", arguments=stage.model_dump_json(exclude_defaults=True)))


def test_a_second_attempt_with_one_change_is_a_test_of_the_first(tmp_path: Path) -> None:
    def rows(order: JobOrder) -> list[dict[str, Any]]:
        return (
            ROW_FLAWS["a dead gradient"]() if order.kind == "sft" and order.grant.attempt == 1 else healthy_rows(order)
        )

    run = open_quick(tmp_path)
    drive(quick_session(run, Faster(), QuickLauncher(rows=rows)))
    drive(quick_session(run, Faster(), QuickLauncher(rows=rows)), {"answer": "retry", "reason": "again", "by": "ada"})
    (tested,) = diagnosis_of(run).hypotheses
    assert (tested.check, tested.parameter, tested.conclusion) == ("training.gradient", "learning_rate", "supported")
    assert tested.description == "training.gradient fires because of learning_rate 1e-05 (then 5e-05)"
    views = [" ".join(line.split()) for line in lines_of(diagnosis_of(run), 200)]
    assert "what further attempts show" in views and any(
        text.startswith(f"supported: {tested.description}") for text in views
    )
    assert diagnose(run, "train", 1)[0].hypotheses == (), "what came later is not known at the first"


class Broken(BaseException):
    """What a kill does to the orchestrator."""


class KilledLauncher(QuickLauncher):
    """Launches, and is killed while it waits for the training."""

    def poll(self, folder: Path) -> JobState:
        if ".train." in folder.name:
            raise Broken
        return super().poll(folder)


def killed(folder: Path) -> Path:
    run = open_quick(folder)
    with pytest.raises(Broken):
        drive(quick_session(run, launcher=KilledLauncher()))
    return run


def test_a_killed_session_states_what_its_job_stated(tmp_path: Path) -> None:
    run = killed(tmp_path)
    lines = [
        {"time": 100.0 + step, "done": step, "total": 40, "unit": "steps", "note": {"loss": 2.0 - step / 20}}
        for step in range(1, 13)
    ]
    values = [json.dumps(line) for line in lines]
    values += ["not json", '{"time": 1}', '{"time":1,"done":13,"total":40,"unit":"steps","note":{"loss":"\\u001b[2J"}}']
    (run / "jobs" / f"{run.name}.train.1" / "progress.jsonl").write_text("\n".join(values), encoding="utf-8")
    diagnosis = diagnosis_of(run)
    assert (
        diagnosis.state == "launched, without an end on record" and not diagnosis.readings and diagnosis.cause is None
    )
    assert diagnosis.curves == Curves(tuple(range(1, 13)), diagnosis.curves.losses, stated=True, planned=40)
    assert [why.description for why in diagnosis.whys] == [
        "the job has no recorded end: it states 12 of 40 steps, the last loss 1.4"
    ]
    assert any("claimed by the job" in line for line in lines_of(diagnosis, 80))


def test_a_job_without_progress_is_no_crash(tmp_path: Path) -> None:
    diagnosis = diagnosis_of(killed(tmp_path))
    assert diagnosis.curves == Curves() and diagnosis.whys == ()
    assert diagnosis.description == "no check has run: the attempt has not reached its gate"


def test_what_an_older_gate_did_not_run_is_computed_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reviews.gate import check_list

    older = tuple(check for check in CHECKS if check not in health_checks.CHECKS)
    with monkeypatch.context() as patched:
        patched.setattr(check_list, "CHECKS", older)
        run = ran(tmp_path, flawed_training("a plateau that the schedule makes"))
    now = {reading.check: reading.recorded for reading in diagnosis_of(run).readings}
    assert now["training.schedule"] and not now["training.plateau"] and not now["training.decay"]
    entries, store = read_entries(run / "trail.sqlite"), Store(run / "store")
    (diagnosis,) = diagnosing.diagnose_from_trail(History(entries, store))
    assert "training.plateau" not in {reading.check for reading in diagnosis.readings}, (
        "a report holds what the gate saw"
    )


def test_a_witness_that_has_not_ended_is_not_lost(tmp_path: Path) -> None:
    run = ran(tmp_path)
    entries, store = read_entries(run / "trail.sqlite"), Store(run / "store")
    trained = next(entry.seq for entry in entries if entry.key == "exit/small.train.1")
    judged = attempt_of(History(entries[: trained + 1], store), "train", 1)
    assert judged.ended and not judged.checks
    now = diagnosing._complete_checks(run, History(entries[: trained + 1], store), judged)  # pyright: ignore[reportPrivateUsage]
    assert len(now) > 15 and [check.id for check in now if check.id.startswith("witness.")] == []
    assert binding(now) is None


def test_the_report_states_it_and_renders_again_byte_for_byte(tmp_path: Path) -> None:
    run = ran(tmp_path, rows_with(0))
    text = (run / "report" / "report.md").read_text(encoding="utf-8")
    assert "## Why the training went as it did\n" in text and "\n2. the gain is +0 with p = 1;" in text
    diagnosis = json.loads((run / "report" / "report.json").read_text(encoding="utf-8"))["diagnosis"]
    assert [(item["stage"], item["attempt"], item["cause"]) for item in diagnosis] == [("train", 1, None)]
    again = rendered_again(run)
    assert {name: (run / name).read_bytes() for name in again} == again


@pytest.mark.parametrize("columns", [80, 120])
def test_the_page_fits_the_terminal(tmp_path: Path, columns: int) -> None:
    diagnosis = diagnosis_of(ran(tmp_path, flawed_training("a plateau that the schedule makes")))
    lines = list(lines_of(diagnosis, columns))
    assert max(map(len, lines)) <= columns and max(map(len, lines)) > columns - 15
    assert "why" in lines and "what was found" in lines and "what to do next, by gain over effort" in lines


def test_the_command_prints_the_page_or_json_and_draws(tmp_path: Path) -> None:
    run = ran(tmp_path, flawed_training("a dead gradient"))
    process = called("diagnose", run, "--json", "--plots", tmp_path / "plots")
    data = json.loads(process.stdout)
    assert process.returncode == 0 and data["plots"] == ["training-train.svg"]
    (item,) = data["attempts"]
    assert item["check"] == "training.gradient" and item["curves"]["norms"][2] == 0 and item["actions"][0]["worth"] > 0
    drawn = (tmp_path / "plots" / "training-train.svg").read_bytes()
    assert called("diagnose", run, "--plots", tmp_path / "plots").returncode == 0
    assert (tmp_path / "plots" / "training-train.svg").read_bytes() == drawn, "the same data give the same bytes"
    wrong = called("diagnose", run, "--stage", "base")
    assert wrong.returncode == 2 and "'base' is not a stage that trains" in wrong.stderr
    assert called("diagnose", run, "--attempt", "1").returncode == 2
    assert called("diagnose", run, "--stage", "train", "--attempt", "7").returncode == 2


def test_an_attempt_that_was_not_begun_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'train' was not begun"):
        diagnose(open_quick(tmp_path), "train")
    run = tmp_path / "runs" / "small"
    assert diagnose(run) == [] and nothing_begun(run) == "nothing to diagnose: no training was begun (train)"


@pytest.mark.parametrize("count", [1, 2, 400])
def test_curves_of_any_length_are_drawn_with_whole_steps(tmp_path: Path, count: int) -> None:
    steps = tuple(range(1, count + 1))
    curves = Curves(steps, losses=tuple(1 / step for step in steps), rates=(1e-5,) * count, norms=(1.0,) * count)
    (name,) = draw(tmp_path, [AttemptCurves("train" * 20, 1, curves, [("training.rise", steps[-3:])])])
    assert (tmp_path / name).stat().st_size > 5000
    assert draw(tmp_path, [AttemptCurves("train", 1, Curves(), [])]) == []
    plain = (tmp_path / name).read_text(encoding="utf-8")
    (name,) = draw(tmp_path, [AttemptCurves("train" * 20, 1, curves._replace(kept_out=((0, 2.0), (count, 1.0))), [])])
    assert "loss, kept out" in (tmp_path / name).read_text(encoding="utf-8") and "kept out" not in plain


def test_every_check_of_training_is_a_detector_or_about_leaks() -> None:
    leaks = {f"{group}.{name}" for group in ("dpo", "rollouts") for name in ("overlap", "nearest", "groups")}
    modules = (checks, optimizer_checks, health_checks, preference_checks, online_checks, online_health)
    every = [check for module in (*modules, validation_checks) for check in module.CHECKS]
    assert {item.id for item in every} - leaks <= DETECTORS.keys()
    assert DETECTORS.keys() <= {check.id for check in CHECKS}


def test_infrastructure_goes_before_optimisation_and_that_before_data() -> None:
    results = [
        result("training.starvation", "WARN"),
        result("training.loss", "WARN"),
        result("training.decay", "WARN"),
        result("training.speed", "WARN"),
    ]
    order: list[str] = []
    while (first := binding(results)) is not None:
        order.append(first.id)
        results.remove(first)
    assert order == ["training.speed", "training.decay", "training.loss", "training.starvation"]
    certain = [result("training.speed", "WARN"), result("training.gradient", "FAIL")]
    assert (first := binding(certain)) is not None and first.id == "training.gradient"
    assert binding([result("training.loss", "PASS"), result("training.mask", "BLOCKED")]) is None
    # A witness that was lost masks the result; it goes behind the end of the job that left it nothing.
    lost = [result("training.starvation", "WARN"), result("witness.training", "BLOCKED")]
    assert (first := binding(lost)) is not None and first.id == "witness.training"
    assert (first := binding([*lost, result("jobs.exit", "FAIL")])) is not None and first.id == "jobs.exit"
    assert CAUSES == ("infrastructure", "optimisation", "data") and POSSIBLE < LIKELY < SURE


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            "training.jobs.finetuning.trainer_hooks.TrainingDivergence: the loss of step 3 is nan; stopped",
            "optimisation",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "infrastructure"),
        ("refused: device: cuda was granted, but torch finds no NVIDIA GPU", "infrastructure"),
        ("something else", "infrastructure"),
    ],
)
def test_the_end_of_a_log_states_the_class_of_a_broken_job(log: str, cause: str) -> None:
    assert detector_of(result("jobs.exit", "FAIL", rows=({"log": log},))).cause == cause


def test_a_lost_job_is_infrastructure() -> None:
    first = binding([result("jobs.exit", "BLOCKED", "it is lost"), result("training.loss", "BLOCKED")])
    assert first is not None and detector_of(first).cause == "infrastructure"


@pytest.mark.parametrize(
    ("lines", "output"),
    [((), ""), ((3,), "row 3"), ((1, 4), "rows 1, 4"), ((3, 4, 5), "rows 3 to 5"), ((5, 3), "rows 3, 5")],
)
def test_rows_in_words(lines: tuple[int, ...], output: str) -> None:
    assert rows_in_words(lines) == output
