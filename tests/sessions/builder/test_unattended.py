"""A bad spec is led to an accepted result unattended, over the wire: builder and reviewer are of two vendors.

The spec trains with a learning rate at which the loss explodes, samples so coolly that completions collapse, and its
examples hold two of the held-out prompts. The builder reads rows, has words as its task, curates the examples with a
script that really runs in its sandbox, ends a job that diverges, and no one is asked.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.model_builder import ModelBuilder
from reviews.audit.verify import verify_run
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.jobs.launcher import JobState
from sessions.jobs.local_launcher import LocalLauncher
from sessions.runtime.wiring import make_reviewer
from sessions.session import Session
from specs.jobs.job_records import ExitRecord, JobOrder
from specs.system.digests import digest_file
from specs.system.vendors import http_exchange
from specs.system.vendors.api_keys import KEYS
from testing.factories.evidence_on_disk import examples, heldout_items, samples, steps, write_rows
from testing.fixtures.collected import collected
from testing.fixtures.loopback_api import ANTHROPIC, OPENAI, ReceivedRequest, Step, answered, loopback_api
from testing.fixtures.model_answers import ANSWER
from testing.fixtures.quick_session import QuickLauncher, Silent, drive, healthy_rows, open_quick, quick_session
from testing.fixtures.reviewer_here import ReviewerHere
from testing.fixtures.sandbox import needs_sandbox
from testing.fixtures.scripted_builder import Call, Reply, call, calls, scripted_builder, texts_of

pytestmark = pytest.mark.integration

KEY = "sk-CANARY-of-an-unattended-session"
MODELS = {OPENAI: "gpt-5-mini", ANTHROPIC: "claude-opus-5"}
RATE = 1e-5
"""The rate that trains well; the spec says ten times as much."""
CURATE = """\
  - name: curate
    kind: recipe
    allow_code: true
    inputs: {examples: data.scraped}
    parameters: {curates: examples, memory_mb: 512, output_mb: 4, processes: 16, seed: 7}
    max_minutes: 1
    gate: {max_rounds: 3}
"""
BAD = (
    ("temperature: 0.8", "temperature: 0.5"),
    ("learning_rate: 1e-5", "learning_rate: 1e-4"),
    (
        "  prompts: {path: prompts.jsonl}\n",
        "  prompts: {path: prompts.jsonl}\n  scraped: {path: scraped.jsonl, as: examples}\n",
    ),
    ("  - name: train\n", f"{CURATE}  - name: train\n"),
    ("examples: sample.accepted", "examples: curate.examples"),
)
KEEP_ALL = "import os, shutil; shutil.copy(os.environ['INPUTS'] + '/examples', 'examples.jsonl')"
KEEP_SOME = """\
import json, os
with open(os.environ["INPUTS"] + "/examples") as given, open("examples.jsonl", "w") as kept:
    kept.writelines(line for line in given if not json.loads(line)["group"].startswith("xg"))
"""
COLLAPSED = "two prompts have the same completion: what is sampled does not depend on what is asked"
TASK = "sample so that no two prompts share a completion, and show it by the rows"


def rows_of(order: JobOrder) -> list[dict[str, Any]]:
    """Return the rows of a job: cool sampling says the same to two prompts, which no check forbids."""
    if order.kind == "generate" and order.parameters["temperature"] < 0.7:
        first, second, *rest = [row for row in samples() if row["sample"] == 0]
        alike = [first, second | {"completion": first["completion"]}, *rest]
        return [
            row for fields in alike for row in (fields, fields | {"sample": 1, "completion": "A Tale In Capitals."})
        ]
    return healthy_rows(order)


def scraped() -> list[dict[str, Any]]:
    """Return good examples, and two whose prompts are held out."""
    leaked = [
        {"item": f"x{place}", "group": f"xg{place}", "kind": "lowercase", "sample": 0}
        | {"prompt": item.prompt, "completion": f"this line is about {item.id} and nothing else at all."}
        for place, item in enumerate(heldout_items()[:2])
    ]
    return [*examples(), *leaked]


@dataclass
class Diverging(QuickLauncher):
    """A launcher on which a training at too high a rate runs until someone ends it, and scripts really run."""

    cancelled: list[str] = field(default_factory=list[str])
    local: LocalLauncher = field(default_factory=LocalLauncher)

    def start(self, folder: Path) -> None:
        order = JobOrder.model_validate_json((folder / "order.json").read_bytes())
        if order.kind == "recipe":
            self.local.start(folder)
            return
        if order.kind != "sft" or order.challenge is not None or order.parameters["learning_rate"] <= RATE:
            super().start(folder)
            return
        write_rows(folder / "out" / "rows.jsonl", steps(3))
        (folder / "log.txt").write_text("loss 900.0\n", encoding="utf-8")
        note = {"time": time.time(), "done": 3, "total": 10, "unit": "steps", "note": {"loss": 900.0}}
        (folder / "progress.jsonl").write_text(json.dumps(note) + "\n", encoding="utf-8")

    def poll(self, folder: Path) -> JobState:
        if JobOrder.model_validate_json((folder / "order.json").read_bytes()).kind == "recipe":
            return self.local.poll(folder)
        return super().poll(folder) if (folder / "exit.json").exists() else JobState("running", is_here=True)

    def cancel(self, folder: Path, reason: str) -> None:
        self.cancelled.append(reason)
        log, now = digest_file(folder / "log.txt"), round(time.time(), 3)
        record = ExitRecord(key=folder.name, code=-15, reason="cancelled", started=now, ended=now, host="here", log=log)
        (folder / "exit.json").write_bytes(record.canonical())


DIGEST = "sha256:" + "0" * 64
"""Replaced by that of the script."""
SCRIPT: dict[str, list[Reply]] = {
    "sample.1 plan": [
        calls(
            Call("query_rows", {"name": "data.prompts", "sample_seed": 1, "limit": 3}),
            Call("propose_plan", {"plan": "Half of the samples should pass. Refuted by an acceptance rate below 0.1."}),
        ),
        call("launch_stage", stage="sample", reason="the parameters of the spec"),
    ],
    "sample.1 submit": [
        calls(
            Call("query_rows", {"name": "sample.1.rows", "group_by": "completion"}),
            Call("run_checks", {}),
            Call("write_note", {"text": "Expected five different tales, found four: the sampling is too cool."}),
        ),
        call("submit_stage"),
    ],
    "sample.2 plan": [
        call("read_findings", stage="sample"),
        call(
            "launch_stage",
            stage="sample",
            reason="warmer, so that the completions differ",
            changes={"temperature": 0.9},
            answers={"finding-1": "sampled at 0.9 instead of 0.5"},
        ),
    ],
    "sample.2 submit": [
        call("compare_rows", first="sample.1.rows", second="sample.2.rows", field="completion"),
        call("submit_stage"),
    ],
    "curate.1 plan": [
        calls(
            Call("query_rows", {"name": "data.scraped", "fields": ["item", "prompt"]}),
            Call("write_recipe", {"script": KEEP_ALL}),
        ),
        call("launch_stage", stage="curate", reason="all of them look well", code=DIGEST),
    ],
    "curate.1 submit": [call("run_checks"), call("submit_stage")],
    "curate.2 plan": [
        calls(
            Call("read_findings", {"stage": "curate"}),
            Call(
                "query_rows", {"name": "data.scraped", "where": [{"field": "group", "test": "contains", "value": "xg"}]}
            ),
            Call("write_recipe", {"script": KEEP_SOME}),
        ),
        call("launch_stage", stage="curate", reason="without the rows that the check shows", code=DIGEST),
    ],
    "train.1 watch": [
        call("job_status", wait_seconds=60, alarms=[{"figure": "loss", "above": 10}], stalled_seconds=30),
        call("cancel_job", reason="the loss is 900 after 3 steps; the next attempt takes a tenth of the rate"),
    ],
    "train.1 submit": [call("query_rows", name="train.1.rows", fields=["step", "loss"]), call("submit_stage")],
    "train.2 plan": [
        calls(Call("read_findings", {"stage": "train"}), Call("look_up", {"name": "trl.SFTConfig"})),
        call("launch_stage", stage="train", reason="a tenth of the rate", changes={"learning_rate": RATE}),
    ],
}
"""What the builder does, turn by turn; elsewhere it follows the spec."""


def strong(body: dict[str, Any]) -> Reply:
    """Play the next turn of the phase that a conversation is about."""
    messages = texts_of(body)
    heading = re.search(r"stage '([\w-]+)'.*attempt (\d+), phase '(\w+)'", messages[0])
    assert heading is not None
    stage, attempt, phase = heading.groups()
    plain = {"plan": call("launch_stage", stage=stage, reason="as the spec says"), "watch": call("job_status")}
    turns = SCRIPT.get(f"{stage}.{attempt} {phase}", [plain.get(phase, call("submit_stage"))])
    turn = turns[min((len(messages) - 1) // 2, len(turns) - 1)]
    selected = re.findall(r"kept as (sha256:[0-9a-f]{64})", messages[-1])
    if selected and turn.calls[0].name == "launch_stage":
        arguments = turn.calls[0].arguments
        assert isinstance(arguments, dict)
        return call("launch_stage", **arguments | {"code": selected[-1]})
    return turn


def critic(vendor: str) -> Any:
    """Return the step of a reviewer that reads the rows: completions that are alike block, in words."""

    def step(request: ReceivedRequest) -> Step:
        packet = json.loads(request.packet_text().split("\n")[2])
        passed = [row for row in packet["sample_rows"] if row.get("completion", "").islower()]
        if packet["stage"] != "sample" or len({row["completion"] for row in passed}) == len(passed):
            return answered(vendor, json.dumps(ANSWER))
        place = packet["sample_rows"].index(passed[0])
        finding = {
            "severity": "blocking",
            "statement": COLLAPSED,
            "evidence": [
                {"pointer": f"/sample_rows/{place}/completion", "first_line": None, "last_line": None, "quote": ""}
            ],
            "ruled_out": "chance",
            "required_change": {"text": TASK, "parameter": None, "value": None, "by": "builder"},
        }
        return answered(vendor, json.dumps(ANSWER | {"findings": [finding], "approve": False}))

    return step


def entries(run: Path, *kinds: str) -> list[RecordedEntry]:
    return [entry for entry in read_entries(run / "trail.sqlite") if entry.kind in kinds]


def outcomes(run: Path) -> list[tuple[str | None, int, str]]:
    return [(entry.raw["stage"], entry.raw["attempt"], entry.raw["outcome"]) for entry in entries(run, "decision")]


def unattended(folder: Path, builder: str, reviewer: str, *changes: tuple[str, str]) -> tuple[Session, Diverging]:
    spec = (
        ("builder: {vendor: playbook}", f"builder: {{vendor: {builder}, model: {MODELS[builder]}}}"),
        ("reviewer: {vendor: checklist}", f"reviewer: {{vendor: {reviewer}, model: {MODELS[reviewer]}}}"),
        # Fifteen reviews and turns have to fit.
        ("max_cost_usd: 10", "max_cost_usd: 60"),
    )
    folder.mkdir(exist_ok=True)
    write_rows(folder / "scraped.jsonl", scraped())
    run = open_quick(folder, *spec, *BAD, *changes)
    launcher = Diverging(rows=rows_of)
    session = quick_session(run, launcher=launcher, display=Silent())  # type: ignore[arg-type]
    session.builder = ModelBuilder(session.resolved.spec.builder, {KEYS[builder]: KEY})
    process = ReviewerHere(run.name, session.resolved.spec.reviewers(), session.trail.keys.path("reviewer"))
    session.reviewing = session.trail.reviewer = process
    session.__dict__["reviewer"] = make_reviewer(session.resolved.spec, process)
    return session, launcher


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(http_exchange, "BACKOFF_S", 0.01)
    for name in KEYS.values():
        monkeypatch.setenv(name, KEY)
    yield


@needs_sandbox
@pytest.mark.parametrize(
    ("builder", "reviewer"), [(ANTHROPIC, OPENAI), pytest.param(OPENAI, ANTHROPIC, marks=pytest.mark.slow)]
)
def test_a_bad_spec_is_led_to_an_accepted_result_and_no_one_is_asked(
    tmp_path: Path, builder: str, reviewer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted_builder(builder, [], canaries=(KEY,), then=strong) as played, loopback_api() as api:
        monkeypatch.setitem(http_exchange.ADDRESSES, builder, played.address)
        monkeypatch.setitem(http_exchange.ADDRESSES, reviewer, api.address)
        api.steps = [critic(reviewer)]
        session, launcher = unattended(tmp_path, builder, reviewer)
        with collected():
            drive(session)
        launcher.local.poll(session.run)
        assert played.complaints() == []
    run = session.run
    assert outcomes(run) == [
        (None, 1, "approve"),
        ("base", 1, "approve"),
        ("sample", 1, "revise"),
        ("sample", 2, "approve"),
        ("curate", 1, "revise"),
        ("curate", 2, "approve"),
        ("train", 1, "revise"),
        ("train", 2, "approve"),
        ("tuned", 1, "approve"),
        ("ship", 1, "approve"),
    ]
    (close,) = entries(run, "close")
    assert close.raw["decision"] == "approve" and entries(run, "human") == []
    # The reviewer's words were the builder's task, and its own reason ended the job; no one was asked about that.
    briefs = [texts_of(body)[0] for body in played.bodies()]
    assert any(
        TASK in brief and "Your task in this attempt" in brief and "attempt 2, phase 'plan'" in brief
        for brief in briefs
    )
    assert launcher.cancelled == [
        f"{builder}:{MODELS[builder]}: the loss is 900 after 3 steps; the next attempt takes a tenth of the rate"
    ]
    judged = {entry.key: entry.raw for entry in entries(run, "verdict")}
    assert len(api.requests) == 9 and judged["verdict/train.1"]["cause"] == "withdrawn"
    assert "usd" not in judged["verdict/train.1"]
    # The rows of the job that was ended are on record.
    # The script kept what is good, and the check said what was not.
    (saved,) = [
        entry.raw["outputs"]["examples"] for entry in entries(run, "exit") if entry.raw["key"] == "small.curate.2"
    ]
    assert Store(run / "store").get(saved["digest"]).count(b"\n") == len(examples())
    (sent_back,) = [entry for entry in entries(run, "decision") if entry.key == "decision/curate.1"]
    assert sent_back.raw["reasons"][0].startswith("check recipe.overlap is FAIL: 2 training texts are held-out prompts")
    (ended,) = [entry for entry in entries(run, "exit") if entry.raw["key"] == "small.train.1"]
    assert ended.raw["outputs"]["rows"]["stored"] and ended.raw["manifest"] is None
    refused = [Store(run / "store").get(entry.raw["text"]) for entry in entries(run, "result") if entry.raw["is_error"]]
    assert refused == []
    # For a recorded cost: what both vendors counted, and the jobs' time.
    spent = {entry.raw["job"]: entry.raw for entry in entries(run, "spend") if entry.raw["what"] == "settle"}
    by_party = {party: sum(row["usd"] for row in spent.values() if row["party"] == party) for party in ("builder",)}
    assert by_party["builder"] > 0 and len(entries(run, "turn")) == len(played.requests)
    reviews = [row for row in judged.values() if row.get("usd")]
    assert len(reviews) == 9 and all(review["usd_is_measured"] for review in reviews)
    assert verify_run(run, "trail.sqlite", "store").damage == []


@pytest.mark.slow
@needs_sandbox
def test_without_another_attempt_a_person_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: words and a job that was ended open another attempt only while ``max_rounds`` has one."""
    with scripted_builder(ANTHROPIC, [], then=strong) as played, loopback_api() as api:
        monkeypatch.setitem(http_exchange.ADDRESSES, ANTHROPIC, played.address)
        monkeypatch.setitem(http_exchange.ADDRESSES, OPENAI, api.address)
        api.steps = [critic(OPENAI)]
        once = ("      max_rounds: 3\n", "      max_rounds: 1\n")
        session, launcher = unattended(tmp_path, ANTHROPIC, OPENAI, once)
        with collected():
            drive(session)
        launcher.local.poll(session.run)
    assert outcomes(session.run)[-1] == ("train", 1, "escalate")
    (decided,) = [entry for entry in entries(session.run, "decision") if entry.key == "decision/train.1"]
    assert decided.raw["reasons"][0].startswith("the builder ended this job: the loss is 900")
    assert decided.raw["reasons"][-1] == "no attempt is left for the required change"
