"""Sessions whose reviewer is played over the wire, through the official SDK: good answers, bad ones and none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from sessions.run.run_layout import STORE, TRAIL
from testing.fixtures.command_sessions import entries, verify
from testing.fixtures.loopback_api import OPENAI, Api, Step, answered, failed, loopback_api, refused, truncated
from tests.e2e.reviewed import complaints, endpoint, finding, peergate, run_command, says, write_reviewed_spec


@pytest.fixture
def api() -> Iterator[Api]:
    with loopback_api() as running:
        yield running


def outcomes(run: Path) -> list[tuple[str | None, str]]:
    return [(entry.raw["stage"], entry.raw["outcome"]) for entry in entries(run, "decision")]


@pytest.mark.model
@pytest.mark.slow
def test_a_reviewer_asks_for_a_change_and_then_approves_everything(tmp_path: Path, api: Api) -> None:
    change = {"text": "sample more", "parameter": "samples_per_prompt", "value": 2, "by": "builder"}
    thin = finding("/sample_rows/0", "one sample a prompt is thin", change)
    api.steps = [says(), says(), says(findings=[thin], approve=False), says()]
    spec = write_reviewed_spec(tmp_path / "spec", f"reviewer: {endpoint(api)}")
    done = peergate("start", spec, "--runs", tmp_path / "runs")
    run = tmp_path / "runs" / "small"
    assert done.returncode == 0, done.stderr
    stages = ("before", "sample", "train", "after", "ship")
    approved = [(stage, "approve") for stage in stages]
    assert outcomes(run) == [(None, "approve"), approved[0], ("sample", "revise"), *approved[1:]]
    second = next(entry for entry in entries(run, "plan") if entry.key == "plan/sample.2")
    assert second.raw["changes"] == {"samples_per_prompt": 2}
    # The reviewer of the second attempt is told what was found in the first.
    requests = [request.packet_text() for request in api.requests]
    assert "one sample a prompt is thin" in requests[3] and "one sample a prompt is thin" not in requests[2]
    assert len(api.requests) == 7 and complaints(api) == []
    code, results = verify(run)
    assert (code, results["rederived_attempts"]) == (0, 7), results
    report = json.loads((run / "report" / "report.json").read_bytes())
    assert report["reviewer"] == "openai" and report["result"].startswith("accepted:")


@pytest.mark.model
@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_the_demo_is_reviewed_over_the_wire(tmp_path: Path, api: Api) -> None:
    """The shipped demo as it is, but for who reviews it; the pilot's gate asks for a cooler sampling once."""
    library = Path(__file__).parents[2] / "specs" / "library"
    shutil.copytree(library / "data", tmp_path / "specs" / "library" / "data")
    shutil.copyfile(library.parents[1] / "constitution.yaml", tmp_path / "constitution.yaml")
    text = (library / "demo.yaml").read_text(encoding="utf-8")
    assert text.count("reviewer: {vendor: checklist}") == 1
    spec = tmp_path / "specs" / "library" / "demo.yaml"
    spec.write_text(text.replace("reviewer: {vendor: checklist}", f"reviewer: {endpoint(api)}"), encoding="utf-8")
    change = {"text": "sample cooler", "parameter": "temperature", "value": 0.6, "by": "builder"}
    warm = finding("/sample_rows/0", "the samples wander", change)
    api.steps = [says(), says(), says(findings=[warm], approve=False), says()]
    done = peergate("start", spec, "--runs", tmp_path / "runs")
    run = tmp_path / "runs" / "demo"
    assert done.returncode == 0, done.stderr
    requests = [(None, "approve"), ("baseline", "approve"), ("pilot", "revise"), ("pilot", "approve")]
    assert outcomes(run) == [*requests, *((name, "approve") for name in ("generate", "sft", "evaluate", "package"))]
    assert len(api.requests) == 8 and complaints(api) == []
    assert verify_run(run, TRAIL, STORE).exit_code == 0


EMPTY = answered(OPENAI, "")
NOT_JSON = answered(OPENAI, "APPROVED. Ship it!")
OTHER_FORM = answered(OPENAI, json.dumps({"verdict": "approve"}))


NO_VERDICT: dict[str, tuple[list[Step], str]] = {
    "refusal": ([refused(OPENAI)], "refused"),
    "malformed": ([NOT_JSON], "does not fit the schema"),
    "cut connection": ([Step(b'{"id": "resp_1", "object": "response"', cut=True)], "was cut off"),
    "empty": ([EMPTY], "empty"),
    "other form": ([OTHER_FORM], "does not fit the schema"),
    "cut off": ([truncated(OPENAI, json.dumps({"approve": True}))], "incomplete"),
    "html": ([Step(b"<html>gateway</html>", headers={"content-type": "text/html"})], "not in the form of the API"),
    "5xx": ([failed(OPENAI, 503)], "status 503"),
    "no key": ([failed(OPENAI, 401)], "status 401"),
    "timeout": ([Step(hang_s=30)], "did not answer in time"),
}
"""How a server gives no verdict. The first three are followed every time; tests/reviews/reviewers asks about all."""


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        pytest.param(*case, id=name, marks=[] if number < 3 else pytest.mark.more)
        for number, (name, case) in enumerate(NO_VERDICT.items())
    ],
)
def test_a_reviewer_without_a_whole_verdict_leaves_the_gate_closed(
    tmp_path: Path, api: Api, steps: list[Step], why: str
) -> None:
    api.steps = [*steps]
    short = "{timeout_s: 6, max_cost_usd: 1}"
    reviewer = endpoint(api)[:-1] + f", effort: {{low: {short}, medium: {short}, high: {short}}}}}"
    done = run_command(
        "start", write_reviewed_spec(tmp_path / "spec", f"reviewer: {reviewer}"), "--runs", tmp_path / "runs"
    )
    run = tmp_path / "runs" / "small"
    assert done.returncode == 4, done.stderr
    assert outcomes(run) == [(None, "escalate")] and not entries(run, "grant", "launch")
    (judged,) = entries(run, "verdict")
    assert why in judged.raw["error"], judged.raw["error"]
    assert complaints(api) == []
    assert verify_run(run, TRAIL, STORE).exit_code == 2


def test_a_reviewer_that_is_busy_is_asked_again_when_it_said(tmp_path: Path, api: Api) -> None:
    block = finding("/registered/analysis", "the test does not fit")
    api.steps = [failed(OPENAI, 429, retry_after="1"), says(findings=[block], approve=False)]
    done = run_command(
        "start", write_reviewed_spec(tmp_path / "spec", f"reviewer: {endpoint(api)}"), "--runs", tmp_path / "runs"
    )
    run = tmp_path / "runs" / "small"
    assert done.returncode == 3, done.stderr
    (judged,) = entries(run, "verdict")
    assert (judged.raw["statuses"], judged.raw["error"]) == ([429, 200], "")
    assert complaints(api) == []
    waited = api.requests[1].started - (api.requests[0].ended or 0)
    assert waited >= 1
    assert outcomes(run) == [(None, "reject")] and verify_run(run, TRAIL, STORE).exit_code == 0


def test_the_reviewer_learns_neither_whose_work_it_is_nor_what_follows(tmp_path: Path, api: Api) -> None:
    api.steps = [says(approve=False)]
    done = run_command(
        "start",
        write_reviewed_spec(tmp_path / "spec", f"reviewer: {endpoint(api)}"),
        "--runs",
        tmp_path / "runs",
        "--name",
        "secretname",
    )
    assert done.returncode == 4, done.stderr
    sent: dict[str, Any] = api.requests[0].value()
    text = json.dumps(sent)
    for word in ("playbook", "secretname", str(tmp_path), "anthropic", "next stage", "override"):
        assert word not in text, word
