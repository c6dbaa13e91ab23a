"""Whole sessions on real weights, through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from reviews.trail.chain.store import Store
from specs.jobs.job_records import JobOrder
from testing.fixtures.command_sessions import (
    CANARY,
    called,
    copy_run,
    entries,
    environment,
    has_progress,
    kill,
    peergate,
    start_in_background,
    verify,
    wait_for,
    write_small_spec,
)

pytestmark = pytest.mark.model
STAGES = ("before", "sample", "train", "after", "ship")


def test_a_session_runs_through_every_gate_and_verifies(finished: Path) -> None:
    decided = [(entry.raw["stage"], entry.raw["outcome"]) for entry in entries(finished, "decision")]
    assert decided == [(stage, "approve") for stage in (None, *STAGES)]
    assert entries(finished)[-1].raw["decision"] == "approve"
    # In a process, as a person does; the other tests ask for it in this one.
    done = peergate("audit", "verify", finished, "--json")
    answer = json.loads(done.stdout)
    lines = (done.returncode, answer["verdict"], answer["damage"], answer["rederived_attempts"])
    assert lines == (0, "verified", [], 6)


def test_the_report_states_the_result_with_numbers_from_the_metric_sets(finished: Path) -> None:
    report = json.loads((finished / "report" / "report.json").read_bytes())
    assert report["result"].startswith("accepted, with 1 limit that the scorecard names: held-out accuracy")
    store = Store(finished / "store")
    for stage in report["stages"]:
        for attempt in stage["attempts"]:
            assert attempt["metrics"] == store.get_value(attempt["metrics_digest"])["metrics"]
    markdown = (finished / "report" / "report.md").read_text(encoding="utf-8")
    gain = report["comparison"]["metrics"]["accuracy_gain"]["value"]
    assert f"{gain:+.3f}" in markdown and "Answers before and after" in markdown
    drawn = {path.name for path in (finished / "report").glob("*.svg")}
    assert drawn == {"effect.svg", "loss.svg", "accuracy.svg", "pairs.svg", "training-train.svg"}


def test_start_says_how_it_went_and_how_to_verify(finished: Path) -> None:
    text = (finished.parents[1] / "stdout").read_text(encoding="utf-8")
    assert "small: accepted" in text and "peergate audit verify" in text
    watched = (finished.parents[1] / "stderr").read_text(encoding="utf-8")
    assert "stage 3/5 train, attempt 1" in watched and "gate train: approve" in watched


def test_the_package_answers_as_the_checkpoint_does(finished: Path) -> None:
    report = json.loads((finished / "report" / "report.json").read_bytes())
    (attempt,) = report["stages"][-1]["attempts"]
    assert attempt["metrics"]["identical_outputs"]["value"] == 1.0
    assert attempt["metrics"]["probes"]["value"] == 4


def test_no_secret_of_the_environment_is_anywhere_in_the_run(finished: Path) -> None:
    needle = CANARY.encode()
    holding = [path for path in finished.rglob("*") if path.is_file() and needle in path.read_bytes()]
    assert holding == []


def test_reading_commands_answer_in_json(finished: Path) -> None:
    runs = finished.parent
    listed = json.loads(called("list", "--runs", runs, "--json").stdout)
    assert listed["schema_version"] == 1
    (session,) = listed["sessions"]
    assert {"name", "path", "state", "decision", "started"} <= session.keys()
    assert (session["name"], session["state"], session["decision"]) == ("small", "closed", "approve")
    status = json.loads(called("status", "small", "--runs", runs, "--json").stdout)
    assert status["schema_version"] == 1 and status["budget"]["spent_usd"] > 0
    report = json.loads(called("report", "small", "--runs", runs, "--json").stdout)
    assert report["schema_version"] == 1 and report["outcome"] == "approve"
    audited = json.loads(called("audit", "list", finished, "--kind", "decision", "--json").stdout)
    assert len(audited["entries"]) == 6


def test_checks_asked_again_give_what_the_gate_saw(finished: Path) -> None:
    done = called("check", "run", finished, "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["exit_code"]) == (0, 0), done.stderr
    assert {item["stage"]: item["attempt"] for item in report["attempts"]} == dict.fromkeys(("design", *STAGES), 1)
    store = Store(finished / "store")
    recorded = {
        (entry.raw["stage"], entry.raw["attempt"]): entry.raw["checks"] for entry in entries(finished, "checks")
    }
    for attempt in report["attempts"]:
        assert attempt["checks"] == store.get_value(recorded[attempt["stage"], attempt["attempt"]])


def test_resuming_a_closed_session_changes_nothing(finished: Path) -> None:
    before = (finished / "trail.sqlite").read_bytes()
    assert called("resume", "small", "--runs", finished.parent).returncode == 0
    assert (finished / "trail.sqlite").read_bytes() == before


def test_a_name_is_taken_once(finished: Path) -> None:
    spec = finished.parents[1] / "spec" / "small.yaml"
    done = called("start", spec, "--runs", finished.parent)
    assert done.returncode == 2 and "already exists" in done.stderr


@pytest.mark.slow
def test_killed_and_resumed_each_job_ran_once(killed: Path) -> None:
    launched = Counter(entry.raw["key"] for entry in entries(killed, "launch"))
    ended = Counter(entry.raw["key"] for entry in entries(killed, "exit"))
    assert launched == ended == {f"small.{stage}.1": 1 for stage in STAGES}
    for job in (killed / "jobs").iterdir():
        done = [json.loads(line)["done"] for line in (job / "progress.jsonl").read_text(encoding="utf-8").splitlines()]
        # A second run of the job would begin its count again.
        assert done == sorted(done)
    assert len(entries(killed, "pause")) == 1 and len(entries(killed, "resume")) == 2
    lines = [
        interruption["what"]
        for interruption in json.loads((killed / "report" / "report.json").read_bytes())["interruptions"]
    ]
    assert len(lines) == 3 and sum("the previous process was killed" in item for item in lines) == 1
    assert "## Interruptions" in (killed / "report" / "report.md").read_text(encoding="utf-8")
    assert entries(killed)[-1].raw["decision"] == "approve"
    assert verify(killed)[0] == 0


@pytest.mark.slow
def test_a_killed_session_trained_on_the_same_batches_to_the_same_losses(finished: Path, killed: Path) -> None:
    """To the rounding, not to the bit: in one CI run the weights had different digests; the cause is not known."""
    sampled = [
        next(entry for entry in entries(run, "exit") if entry.raw["stage"] == "sample") for run in (finished, killed)
    ]
    assert sampled[0].raw["outputs"]["rows"]["digest"] == sampled[1].raw["outputs"]["rows"]["digest"]
    sides = [
        [json.loads(line) for line in (run / "jobs/small.train.1/out/rows.jsonl").read_text("utf-8").splitlines()]
        for run in (finished, killed)
    ]
    assert [(row["step"], row["tokens"]) for row in sides[0]] == [(row["step"], row["tokens"]) for row in sides[1]]
    for name in ("loss", "learning_rate", "grad_norm"):
        assert [row[name] for row in sides[0]] == pytest.approx([row[name] for row in sides[1]], rel=1e-4), name
    facts = [json.loads((run / "jobs/small.train.1/manifest.json").read_bytes()) for run in (finished, killed)]
    assert facts[0]["threads"] == facts[1]["threads"] and facts[0]["facts"]["mask"] == facts[1]["facts"]["mask"]
    answers = [
        [
            json.loads(line)["output"]
            for line in (run / "jobs/small.after.1/out/rows.jsonl").read_text("utf-8").splitlines()
        ]
        for run in (finished, killed)
    ]
    assert answers[0] == answers[1]


def test_a_stage_started_by_hand_is_refused(finished: Path, tmp_path: Path) -> None:
    job = finished / "jobs" / "small.train.1"
    run = [sys.executable, "-P", "-m", "training.jobs"]
    by_hand = subprocess.run([*run, str(job)], capture_output=True, text=True, check=False)
    assert by_hand.returncode == 4 and "stages run under the launcher only" in by_hand.stderr
    bare = subprocess.run([*run, str(tmp_path)], capture_output=True, text=True, check=False)
    assert bare.returncode == 4 and "no readable order.json" in bare.stderr
    without = subprocess.run(run, capture_output=True, text=True, check=False)
    assert without.returncode == 2 and "peergate start" in without.stderr


@pytest.mark.parametrize("change", ["parameters", "input", "expiry"])
def test_the_wrapper_cannot_be_used_to_run_something_else(finished: Path, tmp_path: Path, change: str) -> None:
    """The obvious cheat: take a granted order, change it, start the wrapper on it."""
    run = copy_run(finished, tmp_path)
    order = JobOrder.model_validate_json((run / "jobs" / "small.train.1" / "order.json").read_bytes())
    if change == "parameters":
        order = order.model_copy(update={"parameters": order.parameters | {"learning_rate": 0.5}})
    elif change == "input":
        other = order.inputs["examples"].model_copy(update={"path": "spec.yaml"})
        order = order.model_copy(update={"inputs": order.inputs | {"examples": other}})
    else:
        order = order.model_copy(update={"grant": order.grant.model_copy(update={"expires": 1.0})})
    folder = run / "jobs" / "cheat"
    folder.mkdir()
    (folder / "order.json").write_bytes(order.canonical())
    wrapper = [sys.executable, "-P", "-m", "sessions.jobs.wrapper", str(folder)]
    subprocess.run(wrapper, env=environment(), check=False, timeout=120)
    record = json.loads((folder / "exit.json").read_bytes())
    assert record["code"] == 4 and not (folder / "manifest.json").exists()
    assert "refused:" in (folder / "log.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_two_orchestrators_cannot_run_one_session_and_cancel_ends_it(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    run = runs / "small"
    first = start_in_background("start", write_small_spec(tmp_path / "spec"), "--runs", runs)
    wait_for(lambda: has_progress(run, "before") or (run / "jobs" / "small.before.1" / "claim" / "claim.json").exists())
    second = peergate("resume", "small", "--runs", runs)
    assert second.returncode == 4 and "another process is running this session" in second.stderr
    cancelled = peergate("cancel", "small", "--runs", runs)
    assert cancelled.returncode == 0 and "cancelled" in cancelled.stdout
    assert first.wait(300) == 130
    owner = json.loads((run / "jobs" / "small.before.1" / "claim" / "claim.json").read_bytes())
    wait_for(lambda: not psutil.pid_exists(owner["pid"]))
    assert entries(run)[-1].raw["decision"] == "cancelled"
    assert verify(run)[0] == 0


def lose_the_first_job(folder: Path, *changes: tuple[str, str]) -> Path:
    """Start a session, kill its orchestrator and its first job, and let it find out."""
    run = folder / "runs" / "small"
    orchestrator = start_in_background("start", write_small_spec(folder / "spec", *changes), "--runs", run.parent)
    claim = run / "jobs" / "small.before.1" / "claim" / "claim.json"
    wait_for(claim.exists)
    kill(orchestrator)
    wrapper = psutil.Process(json.loads(claim.read_bytes())["pid"])
    wrapper.kill()
    wait_for(lambda: not wrapper.is_running() or wrapper.status() == psutil.STATUS_ZOMBIE)
    done = peergate("resume", "small", "--runs", run.parent)
    assert done.returncode == 4 and "waiting" in done.stdout, done.stderr
    return run


@pytest.mark.slow
def test_a_job_that_vanished_goes_to_a_person_who_stops_the_session(tmp_path: Path) -> None:
    run = lose_the_first_job(tmp_path)
    assert [entry.raw["outcome"] for entry in entries(run, "decision")] == ["approve", "escalate"]
    assert len(entries(run, "lost")) == 1 and not entries(run, "exit")
    # Asking again changes nothing, and an answer needs a reason.
    assert peergate("resume", "small", "--runs", run.parent).returncode == 4
    assert peergate("resume", "small", "--runs", run.parent, "--answer", "stop").returncode == 2
    why = "the machine went down"
    stopped = peergate("resume", "small", "--runs", run.parent, "--answer", "stop", "--reason", why)
    assert stopped.returncode == 3 and why in stopped.stdout
    assert entries(run, "human")[0].raw["answer"] == "stop"
    assert entries(run)[-1].raw["decision"] == "stop"
    assert verify(run)[0] == 0


@pytest.mark.slow
def test_a_person_may_have_a_lost_job_run_again(tmp_path: Path) -> None:
    run = lose_the_first_job(tmp_path)
    again = start_in_background("resume", "small", "--runs", run.parent, "--answer", "retry", "--reason", "once more")
    wait_for((run / "jobs" / "small.before.2" / "claim" / "claim.json").exists)
    assert peergate("cancel", "small", "--runs", run.parent).returncode == 0
    assert again.wait(300) == 130
    assert [entry.raw["key"] for entry in entries(run, "launch")] == ["small.before.1", "small.before.2"]
    assert verify(run)[0] == 0


@pytest.mark.slow
def test_an_attempt_that_does_not_fit_in_the_budget_asks_a_person_and_is_not_begun(tmp_path: Path) -> None:
    # The lost job counts with its whole price cap, two hours, and two more are more than is left.
    changes = (
        ("max_cost_usd: 1.0", "max_cost_usd: 0.34"),
        ("max_hours: 2", "max_hours: 3"),
        ("  - name: sample\n", "    max_minutes: 120\n  - name: sample\n"),
    )
    run = lose_the_first_job(tmp_path, *changes)
    retried = peergate("resume", "small", "--runs", run.parent, "--answer", "retry", "--reason", "once more")
    assert retried.returncode == 6 and "the attempt may cost 0.2000 USD" in retried.stdout
    assert not entries(run, "close") and (run / "interim").is_dir()
    stopped = peergate("resume", "small", "--runs", run.parent, "--answer", "stop", "--reason", "enough")
    assert stopped.returncode == 6
    assert entries(run)[-1].raw["decision"] == "budget"
    assert not (run / "jobs" / "small.before.2").exists()
    assert verify(run)[0] == 0


@pytest.mark.slow
def test_a_learning_rate_of_zero_closes_as_a_null(tmp_path: Path) -> None:
    changes = (("learning_rate: 1e-4", "learning_rate: 0"), ("at_least: 33", "at_least: 8"))
    done = peergate("start", write_small_spec(tmp_path / "spec", *changes), "--runs", tmp_path / "runs")
    run = tmp_path / "runs" / "small"
    assert done.returncode == 0 and "small: no significant difference" in done.stdout, done.stderr
    report = json.loads((run / "report" / "report.json").read_bytes())
    assert report["outcome"] == "null" and report["not_reached"] == ["ship"]
    assert report["comparison"]["metrics"]["gained"]["value"] == report["comparison"]["metrics"]["lost"]["value"] == 0
    assert entries(run)[-1].raw["decision"] == "null"
    assert verify(run)[0] == 0
