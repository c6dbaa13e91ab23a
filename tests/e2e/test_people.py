"""What people do to a session: conditions waived, gates overridden, judgements taken back, specs amended, verdicts."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reviews.audit.verify import verify_run
from sessions.run.run_layout import STORE, TRAIL
from testing.fixtures.command_sessions import entries, has_progress, wait_for
from testing.fixtures.loopback_api import Api, loopback_api
from tests.e2e.reviewed import (
    APPROVE,
    complaints,
    endpoint,
    finding,
    in_background,
    peergate,
    run_command,
    says,
    write_reviewed_spec,
)

CONDITION = {"text": "someone reads ten baseline answers", "stage": "sample", "metric": None}
HOPELESS = says(findings=[finding("/sample_rows/0", "nothing like the objective")], approve=False)


@pytest.fixture
def api() -> Iterator[Api]:
    with loopback_api() as running:
        yield running


def audit(run: Path) -> int:
    result = verify_run(run, TRAIL, STORE)
    assert not result.damage, result.damage
    return result.exit_code


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stdout + done.stderr
    assert all(word in done.stderr + done.stdout for word in words), done.stderr


@pytest.mark.model
@pytest.mark.slow
def test_a_condition_blocks_its_stage_until_a_person_waives_it_and_a_result_can_be_taken_back(
    tmp_path: Path, api: Api
) -> None:
    api.steps = [says(conditions=[CONDITION | {"at_least": None, "at_most": None}]), says(), says(), HOPELESS]
    runs = tmp_path / "runs"
    run = runs / "small"
    spec = write_reviewed_spec(tmp_path / "spec", f"reviewer: {endpoint(api)}")
    refused(peergate("start", spec, "--runs", runs), 4, "someone reads ten baseline answers")
    assert [entry.raw["stage"] for entry in entries(run, "grant")] == ["before"]
    state = json.loads(peergate("status", "small", "--runs", runs, "--json").stdout)
    assert [(condition["id"], condition["state"]) for condition in state["conditions"]] == [("design.1/1", "open")]
    assert state["state"] == "waiting" and audit(run) == 2

    nothing = ("--reason", "x", "--runs", runs)
    refused(peergate("override", "small", "--condition", "design.1/7", *nothing), 2, "design.1/1")
    refused(
        peergate("override", "small", "--check", "leakage.overlap", "--stage", "after", *nothing), 2, "not asked of"
    )
    refused(peergate("override", "small", "--gate", "--expires", "soon", *nothing), 2, "90m, 12h, 2d")
    refused(peergate("override", "small", *nothing), 2, "nothing to override specified")

    other = tmp_path / "spec" / "other.yaml"
    text = spec.read_text(encoding="utf-8")
    amending = ("--by", "Ada", "--reason", "a smaller gain matters", "--runs", runs)
    other.write_text(text.replace("kind: instruct", "kind: base"), encoding="utf-8")
    refused(peergate("amend", "small", other, *amending), 2, "/model/kind cannot be amended")
    refused(peergate("amend", "small", spec, *amending), 2, "the spec is unchanged")
    other.write_text(text.replace("minimum_effect: 0.4", "minimum_effect: 0.38"), encoding="utf-8")
    amended = peergate("amend", "small", other, *amending)
    assert amended.returncode == 0 and "exploratory" in amended.stdout, amended.stderr
    assert audit(run) == 2

    why = ("--by", "Ada", "--reason", "I have read them", "--expires", "2h")
    refused(peergate("override", "small", "--gate", *why, "--runs", runs), 3, "nothing like the objective")
    (answer,) = entries(run, "human")
    assert (answer.raw["by"], answer.raw["waives"]) == ("Ada", ["design.1/1"])
    assert answer.raw["opens"] == {"stage": "sample", "attempt": 1} and answer.raw["expires"] is not None
    report = json.loads((run / "report" / "report.json").read_bytes())
    assert report["overrides"] == 1 and report["exploratory"] is True
    assert [(person["kind"], person["by"]) for person in report["people"]] == [("amendment", "Ada"), ("human", "Ada")]
    assert report["analysis"]["minimum_effect"] == 0.38
    (amendment,) = entries(run, "amendment")
    first, last = (entries(run, "grant")[index].raw["registration"] for index in (0, -1))
    assert amendment.raw["registration"] == last != first
    assert [(condition["id"], condition["state"]) for condition in report["conditions"]] == [("design.1/1", "waived")]
    assert "(**override**)" in (run / "report" / "report.md").read_text(encoding="utf-8")
    assert audit(run) == 0 and complaints(api) == []

    refused(peergate("override", "small", "--check", "jobs.exit", "--stage", "train", *nothing), 2, "closed")
    refused(peergate("retract", "small", "999", *nothing), 2, "decision/design.1")
    taken = peergate("retract", "small", "decision/before.1", "--by", "Bob", "--reason", "wrong split", "--runs", runs)
    assert taken.returncode == 0, taken.stderr
    (listed,) = json.loads(peergate("list", "--runs", runs, "--json").stdout)["sessions"]
    assert (listed["state"], listed["decision"]) == ("closed", "retracted")
    assert peergate("report", "small", "--runs", runs).stdout.startswith("> **Taken back.** Bob took decision/before.1")
    assert audit(run) == 0


@pytest.mark.model
@pytest.mark.slow
def test_a_retraction_ends_what_was_granted_after_it_and_the_same_evidence_is_not_judged_twice(
    tmp_path: Path, api: Api
) -> None:
    api.steps = [says(), says(), HOPELESS]
    runs = tmp_path / "runs"
    run = runs / "small"
    spec = write_reviewed_spec(tmp_path / "spec", f"reviewer: {endpoint(api)}")
    first = in_background("start", spec, "--runs", runs)
    wait_for(lambda: (run / TRAIL).exists())
    refused(peergate("retract", "small", "decision/design.1", "--reason", "x", "--runs", runs), 4, "another process")
    wait_for(lambda: has_progress(run, "sample"))
    first.send_signal(signal.SIGINT)
    assert first.wait(300) == 130

    taken = peergate("retract", "small", "decision/before.1", "--reason", "the split was wrong", "--runs", runs)
    assert taken.returncode == 0, taken.stderr
    (retraction,) = entries(run, "retraction")
    assert retraction.raw["grants"] == ["grant/small.sample.1"]
    assert entries(run, "exit", "lost")[-1].raw["key"] == "small.sample.1"
    assert audit(run) == 2
    refused(peergate("resume", "small", "--runs", runs), 4, "took decision/before.1 back")

    number = len(api.requests)
    answer = ("--answer", "retry", "--reason", "with the right split")
    refused(peergate("resume", "small", "--runs", runs, *answer), 3, "nothing like the objective")
    # The second evaluation of the untouched model is the same evidence: the verdict on it stands without a new call.
    judged = {entry.key: entry.raw for entry in entries(run, "verdict")}
    assert judged["verdict/before.2"]["same_as"] == 1 and len(api.requests) == number + 1
    launched = [entry.raw["key"] for entry in entries(run, "launch")]
    assert launched == ["small.before.1", "small.sample.1", "small.before.2", "small.sample.2"]
    report = json.loads((run / "report" / "report.json").read_bytes())
    assert [person["kind"] for person in report["people"]] == ["retraction", "human"] and report["overrides"] == 0
    assert audit(run) == 0 and complaints(api) == []


def test_a_panel_waits_for_its_person_and_its_members_may_disagree(tmp_path: Path, api: Api) -> None:
    api.steps = [says()]
    runs = tmp_path / "runs"
    run = runs / "small"
    panel = f"panel: {{quorum: 2, members: [{endpoint(api)}, {{vendor: person}}]}}"
    spec = write_reviewed_spec(tmp_path / "spec", panel)
    refused(run_command("start", spec, "--runs", runs), 4, "waits for a person's verdict")
    process = run_command("review", "show", run, "--json")
    report = json.loads(process.stdout)
    assert report["form"]["approve"] is False and report["packet"]["stage"] == "design"
    verdict = tmp_path / "verdict.json"
    verdict.write_text(json.dumps(report["form"]), encoding="utf-8")
    refused(run_command("review", "give", run, "--file", verdict), 2, "empty")
    change = {"text": "take more items", "parameter": None, "value": None, "by": "person"}
    thin = finding("/registered/analysis", "sixteen items are thin", change)
    verdict.write_text(
        json.dumps(APPROVE | {"findings": [thin], "approve": False, "reasoning": "too small"}), encoding="utf-8"
    )
    assert run_command("review", "give", run, "--file", verdict).returncode == 0
    refused(run_command("review", "give", run, "--file", verdict), 2, "waits for no one")
    done = run_command("resume", "small", "--runs", runs)
    refused(done, 4, "sixteen items are thin", "the reviewers disagree")
    # The model was asked once, although the session had to wait in between.
    assert len(api.requests) == 1 and complaints(api) == []
    names = [entry.key for entry in entries(run, "verdict")]
    assert names == ["verdict/design.1/1", "verdict/design.1/2", "verdict/design.1"]
    stop = ("--answer", "stop", "--reason", "he is right")
    assert run_command("resume", "small", "--runs", runs, *stop).returncode == 3
    assert audit(run) == 0
