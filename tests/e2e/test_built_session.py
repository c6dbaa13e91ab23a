"""The shipped demo, on real weights, with its builder played over the wire through the official anthropic SDK."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.run.run_layout import STORE, TRAIL
from sessions.runtime import runtime
from specs.system.vendors import http_exchange
from specs.system.vendors.api_keys import KEYS
from testing.fixtures.loopback_api import ANTHROPIC, failed
from testing.fixtures.quick_session import Silent
from testing.fixtures.scripted_builder import Call, Reply, Turn, call, calls, scripted_builder, texts_of

KEY = "sk-ant-api03-CANARY-that-must-never-be-written"
LIBRARY = Path(__file__).parents[2] / "specs" / "library"


def faults() -> list[Turn]:
    """Return what goes wrong before the first launch: on the wire, then in what the model asks for."""
    return [
        failed(ANTHROPIC, 429, retry_after="0.1"),
        failed(ANTHROPIC, 529),
        Reply("I begin", cut=True),
        calls(Call("launch_stage", '{"stage": "baseline", "reas')),
        call("open_the_gate", verdict="approve"),
        call("launch_stage", stage="baseline", reason="faster", changes={"max_new_tokens": 4}),
        calls(
            Call("launch_stage", {"stage": "sft", "reason": "why wait"}),
            Call("read_artifact", {"name": "heldout"}),
            Call("read_artifact", {"name": "../../trail.sqlite"}),
            Call("read_spec", {"section": "/stages/0"}),
        ),
    ]


def builds(body: dict[str, Any]) -> Reply:
    """Play a builder that plans, asks, delegates, waits, and states a wrong number before the right one."""
    first, *after = texts_of(body)
    if first.startswith("# Your task"):
        return call("hand_in", result="the prompts ask for six kinds of format")
    heading = re.search(r"stage '([\w-]+)'.*phase '(\w+)'", first)
    assert heading is not None
    stage, phase = heading.groups()
    if phase == "watch":
        return call("job_status", wait_seconds=1800)
    if phase == "submit":
        return submits(stage, after)
    if stage == "pilot" and not after:
        task = {"task": "Say which formats the prompts ask for.", "artifacts": ["data.prompts"]}
        trivial = {"topic": "file names", "question": "How should the log file be named?", "kind": "trivial"}
        return calls(
            Call("propose_plan", {"plan": "Sample a little, look at it, then go on."}),
            Call("ask_review", trivial),
            Call("delegate", {"tasks": [task]}),
        )
    return call("launch_stage", stage=stage, reason="the parameters of the spec")


def submits(stage: str, after: list[str]) -> Reply:
    """Claim a number that was not measured, read what was, and claim that."""
    if stage != "baseline":
        return call("submit_stage")
    if not after:
        return call("submit_stage", claims=[{"stage": stage, "metric": "accuracy", "value": 0.97}])
    if '"metrics": {' not in after[-1]:
        return call("read_metrics", stage=stage)
    match_object = re.search(r'"accuracy": \{\s*"value": ([0-9.e-]+)', after[-1])
    assert match_object is not None, after[-1]
    return call("submit_stage", claims=[{"stage": stage, "metric": "accuracy", "value": float(match_object[1])}])


@pytest.mark.model
@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_the_demo_is_built_over_the_wire_to_its_accepted_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(LIBRARY / "data", tmp_path / "specs" / "library" / "data")
    shutil.copyfile(LIBRARY.parents[1] / "constitution.yaml", tmp_path / "constitution.yaml")
    text = (LIBRARY / "demo.yaml").read_text(encoding="utf-8")
    assert text.count("builder: {vendor: playbook}") == 1
    spec = tmp_path / "specs" / "library" / "demo.yaml"
    builder = "builder: {vendor: anthropic, model: claude-opus-5, max_output_tokens: 500}"
    spec.write_text(
        text.replace("builder: {vendor: playbook}", builder).replace("max_cost_usd: 1.0", "max_cost_usd: 20.0"),
        encoding="utf-8",
    )
    monkeypatch.setenv(KEYS[ANTHROPIC], KEY)
    monkeypatch.setattr(http_exchange, "BACKOFF_S", 0.01)
    with scripted_builder(ANTHROPIC, faults(), canaries=(KEY,), then=builds) as played:
        monkeypatch.setitem(http_exchange.ADDRESSES, ANTHROPIC, played.address)
        run = runtime.start(spec, tmp_path / "runs", None, Silent())  # type: ignore[arg-type]
        assert played.complaints() == []
        sent = [request.body for request in played.requests]
    entries = read_entries(run / TRAIL)
    assert entries[-1].kind == "close" and entries[-1].raw["decision"] == "approve"
    # No held-out prompt and no key was sent, and the key stands nowhere in the run.
    heldout = (LIBRARY / "data" / "format_heldout.jsonl").read_text(encoding="utf-8")
    prompts = [json.loads(line)["prompt"] for line in heldout.splitlines()]
    assert not any(json.dumps(prompt)[1:-1].encode() in body for prompt in prompts for body in sent)
    assert not any(KEY.encode() in path.read_bytes() for path in run.rglob("*") if path.is_file())
    store = Store(run / STORE)
    refused = [
        store.get(entry.raw["text"]).decode() for entry in entries if entry.kind == "result" and entry.raw["is_error"]
    ]
    for why in ("malformed", "unknown tool", "no allowed range", "has no grant", "may be read", "rows contradict"):
        assert any(why in text for text in refused), why
    (baseline,) = [entry.raw for entry in entries if entry.key == "submit/baseline.1"]
    assert baseline["sent_back"] == 1 and [claim["metric"] for claim in baseline["claims"]] == ["accuracy"]
    assert [entry.raw["what"] for entry in entries if entry.kind == "note"] == ["plan", "helper"]
    assert verify_run(run, TRAIL, STORE).exit_code == 0
