"""A workbench on a session without jobs: what opens a stage, measures it or ends its job is written by the test."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from agents.turns import ModelTurn, TurnUsage
from sessions.builder.workbench import SessionWorkbench
from sessions.nodes.build import open_bench
from sessions.session import Session
from specs.jobs.job_records import ExitRecord
from specs.system.vendors.conversation import ToolCall, ToolResult
from specs.trail.tool_arguments import Phase
from specs.trail.verdict import Decision, RequiredChange
from testing.factories.bodies import NAME, append_json, body_of
from testing.factories.evidence_on_disk import samples
from testing.factories.small_run import metric_set
from testing.fixtures.quick_session import open_quick, quick_session

ORDER = ("base", "sample", "train", "tuned", "ship")
HELDOUT = "Write one line on elm."
"""A held-out prompt of the session."""
READABLE = "Tell a short tale of the sea."
"""A training prompt of it."""


def open_stage(session: Session, stage: str = "sample", attempt: int = 1, **revised: Any) -> None:
    """Record the decision that opens an attempt; ``revised`` is what one says that sends a stage back."""
    before = ORDER[ORDER.index(stage) - 1] if stage != "base" else None
    if attempt > 1:
        body = body_of("decision", stage=stage, attempt=attempt - 1, outcome="revise", **revised)
        body["decision"] = keep_decision(session, stage, attempt - 1)
    else:
        body = body_of("decision", stage=before, attempt=1)
    body["opens"] = {"stage": stage, "attempt": attempt}
    append_json(session.trail, "decision", f"decision/{body['stage'] or 'design'}.{body['attempt']}", body)


def keep_decision(session: Session, stage: str, attempt: int, *tasks: str) -> str:
    """Keep a decision that sends an attempt back with tasks in words; return its digest."""
    words = tuple(RequiredChange(text=task, by_builder=True) for task in tasks)
    decision = Decision(
        stage=stage, attempt=attempt, outcome="revise", reasons=(), required_changes=words, packet=NAME, verdict=NAME
    )
    return session.store.put_value(decision)


def end_job(
    session: Session,
    stage: str,
    outputs: Mapping[str, bytes],
    attempt: int = 1,
    reason: Literal["exited", "cancelled"] = "exited",
) -> None:
    """Record that a job has ended and what it left."""
    key = f"{session.name}.{stage}.{attempt}"
    remaining = {
        name: {"path": name, "digest": session.store.put(data), "bytes": len(data), "stored": True}
        for name, data in outputs.items()
    }
    log = session.store.put(b"a log\n")
    record = ExitRecord(key=key, code=0, reason=reason, started=1.0, ended=2.0, host="here", log=log)
    messages = {"outputs": remaining, "log": log, "exit": session.store.put_value(record)}
    body = body_of("exit", key=key, stage=stage, attempt=attempt, **messages)
    append_json(session.trail, "exit", f"exit/{key}", body)


def measure(session: Session, stage: str, values: dict[str, float], attempt: int = 1) -> None:
    """Record metrics."""
    digest = session.store.put_value(metric_set(stage, attempt, values))
    body = body_of("metrics", stage=stage, attempt=attempt, metrics=digest)
    append_json(session.trail, "metrics", f"metrics/{stage}.{attempt}", body)


def new_session(folder: Path, *changes: tuple[str, str], **parts: Any) -> Session:
    """Register a session; its ``run`` is in the folder."""
    return quick_session(open_quick(folder, *changes), **parts)


def copy_of(run: Path, folder: Path, **parts: Any) -> Session:
    """Copy a registered run, keys and all, and wire a session on the copy."""
    shutil.copytree(run.parent, folder / "runs")
    return quick_session(folder / "runs" / run.name, **parts)


def bench_of(session: Session, phase: Phase = "plan", stage: str = "sample", attempt: int = 1) -> SessionWorkbench:
    """Return the workbench of a phase."""
    return open_bench(session, session.resolved.spec.stage(stage), attempt, phase)


def call(bench: SessionWorkbench, tool: str, id: str = "c", **arguments: Any) -> ToolResult:
    """Call a tool."""
    return bench.call(ToolCall(id=id, name=tool, arguments=json.dumps(arguments)))


def turn(*calls: ToolCall, text: str = "", **other: Any) -> ModelTurn:
    """Return a turn of a model."""
    values: dict[str, Any] = {
        "text": text,
        "calls": calls,
        "stop": "tool_use" if calls else "end",
        "model": "some-model",
        "usage": TurnUsage(input_tokens=100, output_tokens=10),
        "usd": 0.01,
        "usd_is_measured": True,
    }
    return ModelTurn.model_validate(values | other)


def take(bench: SessionWorkbench, turn_entry: ModelTurn, request: bytes = b"{}", response: bytes = b"{}") -> None:
    """Reserve and record a turn."""
    bench.record(turn_entry, bench.reserve(0.02), request, response)


def job_folder(session: Session, stage: str = "sample", attempt: int = 1) -> Path:
    """Return the job's folder, made if it is not there."""
    folder = session.run / "jobs" / f"{session.name}.{stage}.{attempt}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def rows(*texts: str) -> bytes:
    """Return sample rows with these completions."""
    results = [row | {"completion": text} for row, text in zip(samples(), texts, strict=False)]
    return "".join(json.dumps(row) + "\n" for row in results).encode()
