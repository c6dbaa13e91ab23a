"""Evaluations as ``.eval`` logs of inspect_ai: the newest attempt of each stage whose items are right or wrong.

A stage that ran a task of the library has its log, which is copied; of the others one is written from rows that are
what the trail recorded, judged again.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.gather import gather
from reviews.stages.evaluation.benchmark import log_file
from reviews.stages.evaluation.judged_answers import Answered, read_judged_items
from sessions.exports.source import ExportSource
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing
from specs.system.masking import current
from specs.system.text import plural
from specs.trail.session_bodies import ExitEntry
from training.rules.evaluation.inspect_log import write_log
from training.rules.tasks.conversation import user_turns_of
from training.rules.tasks.exact_answer import named_answers

SCORER = "registered_verifier"


def write(source: ExportSource, folder: Path) -> list[str]:
    """Write a log for each evaluation; returns a line for each, and for each that is left out."""
    newest = {entry.body.stage: entry.body.attempt for entry in source.history.of(ExitEntry)}
    lines: list[str] = []
    for stage, attempt in newest.items():
        evidence = gather(source.run, source.history, stage, attempt)
        kind = kind_of(evidence.stage)
        name = f"{stage}.{attempt}.eval"
        if kind.arm is None:
            if kind.only_measures:
                lines.append(f"{stage}.{attempt} is left out: items of a {kind.name} stage are not right or wrong")
            continue
        try:
            counts = (
                _copy_log(evidence, folder / name)
                if kind.environment
                else _write_answers(source, evidence, folder / name)
            )
        except EvidenceMissing as error:
            lines.append(f"{stage}.{attempt} is left out: {error.message}")
        else:
            lines.append(f"{name}: {counts}")
    return lines


def _copy_log(evidence: Evidence, target: Path) -> str:
    shutil.copyfile(log_file(evidence), target)
    return "the log that its task left"


def _write_answers(source: ExportSource, evidence: Evidence, target: Path) -> str:
    answers = read_judged_items(evidence, evidence.outputs.get("rows"))
    right = sum(answer.passed for answer in answers)
    write_log(
        target,
        current().value(_header(source, evidence, answers)),
        [current().value(_sample(answer)) for answer in answers],
    )
    return f"{right} of {plural(len(answers), 'item')} right"


def _sample(value: Answered) -> dict[str, Any]:
    item, pairs = value.item, _turns(value)
    answer = pairs[-1][1]
    truncated = "max_tokens" if value.truncated else "stop"
    messages = [
        {"role": role, "content": text, "id": f"{item.id}-{number}-{role}"}
        for number, turn in enumerate(pairs)
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    return {
        "id": item.id,
        "epoch": getattr(value.row, "sample", 0) + 1,
        "input": item.prompt,
        "target": named_answers(item) or "",
        "messages": messages,
        "output": {
            "model": "peergate",
            "choices": [{"message": messages[-1], "stop_reason": truncated}],
            "completion": answer,
        },
        "scores": {
            SCORER: {
                "value": "C" if value.passed else "I",
                "answer": value.text,
                "explanation": value.reason or "accepted",
            }
        },
        "metadata": {"group": item.group, "kind": item.kind, **item.constraint},
        "store": {},
        "events": [],
        "attachments": {},
    }


def _turns(value: Answered) -> list[tuple[str, str]]:
    """Return prompts and answers, turn by turn."""
    turns: Sequence[Any] = getattr(value.row, "turns", ())
    if turns:
        return list(zip(user_turns_of(value.item), (turn.output for turn in turns), strict=True))
    return [(value.item.prompt, value.text)]


def _header(source: ExportSource, evidence: Evidence, answers: Sequence[Answered]) -> dict[str, Any]:
    stage, history = evidence.stage, source.history
    session, key = history.session, f"{stage.name}.{evidence.attempt}"
    started, ended = (_moment(at) for at in (evidence.launched or 0.0, evidence.ended or 0.0))
    registered = evidence.manifest.outputs if evidence.manifest else {}
    accuracy = sum(answer.passed for answer in answers) / len(answers)
    ids = list(dict.fromkeys(answer.item.id for answer in answers))
    config = {
        "max_tokens": evidence.parameters.get("max_new_tokens"),
        "temperature": evidence.parameters.get("temperature") or 0.0,
    }
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": f"{session}.{key}",
            "run_id": session,
            "created": started,
            "task": stage.name,
            "task_id": key,
            "task_version": 0,
            "task_args": evidence.parameters,
            "dataset": {
                "name": stage.inputs.get("items"),
                "samples": len(ids),
                "sample_ids": ids,
                "shuffled": False,
            },
            "model": f"peergate/{stage.inputs.get('model', 'model')}",
            "model_generate_config": config,
            "config": {"epochs": len(answers) // len(ids)},
            "packages": {},
            "metadata": {
                "session": session,
                "stage": stage.name,
                "attempt": evidence.attempt,
                "registration": evidence.registered,
                "rows": registered.get("rows"),
                "newest_entry": history[-1].digest,
            },
        },
        "plan": {"name": "plan", "steps": [{"solver": "generate", "params": {}}], "config": config},
        "results": {
            "total_samples": len(answers),
            "completed_samples": len(answers),
            "scores": [
                {
                    "name": SCORER,
                    "scorer": SCORER,
                    "params": {},
                    "metrics": {"accuracy": {"name": "accuracy", "value": accuracy, "params": {}}},
                }
            ],
        },
        "stats": {"started_at": started, "completed_at": ended, "model_usage": {}},
    }


def _moment(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).isoformat()
