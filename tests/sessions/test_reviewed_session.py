"""A session on the command line whose reviewer is a model behind a loopback server, through the official SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.lookup_check import lookup_damage
from reviews.evidence.readable_evidence import EvidenceBrowser, ToolAnswer
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from specs.jobs.job_records import JobOrder
from testing.factories.evidence_on_disk import resolved_spec
from testing.fixtures.command_sessions import CANARY, called, entries, environment, verify
from testing.fixtures.loopback_api import OPENAI, Api, answered, failed, loopback_api
from testing.fixtures.model_answers import ANSWER
from testing.fixtures.quick_session import QuickLauncher, drive, healthy_rows, open_quick, quick_session
from testing.fixtures.scripted_builder import Call, Reply, turn_step
from tests.reviews.reviewers.test_vendors import FINDING, REJECTED

pytestmark = pytest.mark.integration

POWERED = ("  minimum_effect: 0.1\n", "  minimum_effect: 0.8\n")


def cooler_is_better(order: JobOrder) -> list[dict[str, Any]]:
    """Return healthy rows, but for one answer that the verifier refuses where the sampling is as warm as the spec."""
    rows = healthy_rows(order)
    if order.parameters.get("temperature") != 0.8:
        return rows
    return [rows[0] | {"completion": "A Tale In Capitals, Too."}, *rows[1:]]


@pytest.fixture
def api() -> Iterator[Api]:
    with loopback_api() as running:
        yield running
        assert running.complaints() == []


def peergate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return called(*arguments, env=environment() | {"PEERGATE_REVIEWER_KEY": CANARY})


def _with(entry: RecordedEntry, **changes: Any) -> RecordedEntry:
    return replace(entry, entry=entry.entry.model_copy(update={"body": entry.raw | changes}))


def start(folder: Path, api: Api, more: str = "") -> tuple[subprocess.CompletedProcess[str], Path]:
    reviewer = (
        f'reviewer: {{vendor: openai, model: tiny, base_url: "{api.address}", outage_s: 0, {more}'
        "usd_per_million_tokens: {input: 0, output: 0}}"
    )
    resolved_spec(folder, POWERED, ("reviewer: {vendor: checklist}", reviewer), ("review: 0.05", "review: 0.3"))
    return peergate("start", folder / "spec.yaml", "--runs", folder / "runs"), folder / "runs" / "small"


def test_a_reviewer_that_blocks_with_evidence_stops_the_session_before_it_costs_anything(
    tmp_path: Path, api: Api
) -> None:
    place = {"pointer": "/registered/analysis", "first_line": None, "last_line": None, "quote": "exact_mcnemar"}
    finding = FINDING | {"evidence": [place], "required_change": None, "statement": "the test does not fit the design"}
    api.steps = [answered(OPENAI, json.dumps(REJECTED | {"findings": [finding]}))]
    done, run = start(tmp_path, api)
    assert done.returncode == 3 and "the test does not fit the design" in done.stdout, done.stderr
    assert len(api.requests) == 1 and not entries(run, "grant", "launch")
    (judged,) = entries(run, "verdict")
    store = Store(run / "store")
    assert store.get(judged.raw["request"]) == api.requests[0].body
    assert b"exact_mcnemar" in store.get(judged.raw["response"])
    assert verify(run)[0] == 0
    # Deleting what was asked or answered is found.
    store.path(judged.raw["request"]).unlink()
    assert verify(run)[0] == 1


def test_what_a_reviewer_looked_up_is_in_the_trail_and_is_carried_out_again(
    tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Call("query_rows", {"name": "data.prompts", "group_by": "kind"}, "call_1")
    place = {"pointer": "/answers/1", "first_line": None, "last_line": None, "quote": "5 x lowercase"}
    finding = FINDING | {"evidence": [place], "required_change": None, "statement": "one kind of item says little"}
    rejected = answered(OPENAI, json.dumps(REJECTED | {"findings": [finding]}))
    api.steps = [lambda request: turn_step(OPENAI, Reply(calls=(query,)), request.value()), rejected]
    done, run = start(tmp_path, api, "looks: 2, ")
    assert done.returncode == 3 and "one kind of item says little" in done.stdout, done.stderr
    assert "looks something up: query_rows" in done.stderr
    every = entries(run)
    (look,), (judged,) = ([entry for entry in every if entry.kind == kind] for kind in ("look", "verdict"))
    store = Store(run / "store")
    assert json.loads(store.get(look.raw["arguments"])) == query.arguments
    assert b"5 x lowercase" in store.get(look.raw["answer"])
    assert judged.raw["looked"] == [{"entry": "look/design.1/1", "answer": look.raw["answer"]}]
    assert len(judged.raw["earlier"]) == 1
    code, report = verify(run)
    assert code == 0, report

    def damage(**changes: Any) -> list[str]:
        other = [_with(entry, **changes) if entry is look else entry for entry in every]
        return list(lookup_damage(run, History(other, store), "design", 1, is_design=True))

    assert damage() == []
    other = store.put(b"5 x uppercase")
    assert damage(answer=other) == [
        "what a reviewer looked up in look/design.1/1 has another answer",
        "verdict/design.1 cites another answer than look/design.1/1 holds",
    ]
    assert damage(most=80) == ["what a reviewer looked up in look/design.1/1 has another answer"]
    assert damage(reviewer="openai:other")[-1].endswith("which its reviewer did not look up")

    def other_rows(*_: object) -> ToolAnswer:
        return ToolAnswer("6 x lowercase")

    with monkeypatch.context() as other_evidence:
        other_evidence.setattr(EvidenceBrowser, "answer", other_rows)
        code, report = verify(run)
        assert code == 1 and "look/design.1/1 has another answer" in json.dumps(report)
    store.path(look.raw["answer"]).unlink()
    assert verify(run)[0] == 1


def test_a_reviewer_that_is_down_closes_the_gate(tmp_path: Path, api: Api) -> None:
    api.steps = [failed(OPENAI, 500)]
    done, run = start(tmp_path, api)
    assert done.returncode == 4, done.stderr
    (judged,) = entries(run, "verdict")
    assert judged.raw["cause"] == "server_error"
    assert [entry.raw["outcome"] for entry in entries(run, "decision")] == ["escalate"]


def test_no_key_is_kept_anywhere_in_the_run(tmp_path: Path, api: Api) -> None:
    echo = ANSWER | {"approve": False, "reasoning": f"I was called with {CANARY}"}
    api.steps = [answered(OPENAI, json.dumps(echo))]
    _, run = start(tmp_path, api)
    assert any(CANARY in value for value in api.requests[0].headers.values()), "the control: the key was really sent"
    needle = CANARY.encode()
    assert [path for path in run.rglob("*") if path.is_file() and needle in path.read_bytes()] == []


def test_a_vendor_without_its_key_is_refused_at_the_start(tmp_path: Path) -> None:
    reviewer = "reviewer: {vendor: openai, model: gpt-5-mini}"
    resolved_spec(tmp_path, POWERED, ("reviewer: {vendor: checklist}", reviewer), ("review: 0.05", "review: 0.3"))
    bare = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    command = [
        sys.executable,
        "-m",
        "sessions.commands.cli",
        "start",
        str(tmp_path / "spec.yaml"),
        "--runs",
        str(tmp_path / "runs"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=bare, check=False, timeout=300)
    assert done.returncode == 2 and "OPENAI_API_KEY" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_revised_attempt_runs_with_what_the_gate_required_and_nothing_else(tmp_path: Path) -> None:
    """Half of the samples must be accepted, which they are not at first; the checklist asks for a lower temperature."""
    run = open_quick(tmp_path, ("acceptance_rate, at_least: 0.1", "acceptance_rate, at_least: 0.5"))
    drive(quick_session(run, launcher=QuickLauncher(rows=cooler_is_better)))
    decided = [entry.raw for entry in entries(run, "decision") if entry.raw["stage"] == "sample"]
    assert [row["outcome"] for row in decided] == ["revise", "approve"]
    required = decided[0]["required"]
    assert required.keys() == {"temperature"} and 0.5 <= required["temperature"] < 0.8
    plans = {entry.key: entry.raw["changes"] for entry in entries(run, "plan")}
    assert plans["plan/sample.1"] == {} and plans["plan/sample.2"] == required
    first, second = (
        JobOrder.model_validate_json((run / "jobs" / f"small.sample.{number}" / "order.json").read_bytes())
        for number in (1, 2)
    )
    assert second.parameters == first.parameters | required
    report = json.loads((run / "report" / "report.json").read_bytes())
    view = next(stage for stage in report["stages"] if stage["stage"] == "sample")
    assert [attempt["gate"]["outcome"] for attempt in view["attempts"]] == ["revise", "approve"]
    assert view["accepted_attempt"] == 2
    assert verify(run)[0] == 0
