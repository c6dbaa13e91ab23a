"""The evidence of a stage that replays transcripts: two answers to each state, alike in all but a few."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from specs.stages.base.artifacts import Item
from specs.stages.traces.kinds import REPLAY_TRACES
from specs.stages.traces.parameters import ReplayTracesParameters
from specs.stages.traces.rows import TraceAnswer
from testing.factories.bound_evidence import bound
from testing.factories.evidence_on_disk import evidence_of, write_rows
from training.items.agent_sessions import sessions
from training.rules.traces.local_replay import States, pairs_of, states_in

PARAMETERS = ReplayTracesParameters(
    teacher="smollm", student="smollm", license="Apache-2.0", circular="the tests need no other model", seed=7
)
READS = json.dumps({"tool": "Read", "arguments": {"file_path": "a.py"}})


def transcripts() -> list[Item]:
    """Return the transcripts of the demo, packed."""
    return [
        Item(id=session.path, group=session.path, kind="transcript", prompt=session.text, constraint={})
        for session in sessions()
    ]


@cache
def states() -> States:
    """Return their states."""
    return states_in(transcripts(), PARAMETERS)


def answer_rows() -> list[dict[str, Any]]:
    """Return answers: to the first state two kinds, to the second a call cut off, else a text twice."""
    results: list[dict[str, Any]] = []
    for place, item in enumerate(states().items()):
        for sample in range(PARAMETERS.answers):
            text, finish = f"I would say {sample}.", "eos"
            if place == 0 and sample:
                text = READS
            if place == 1:
                text, finish = READS, "length" if sample else "eos"
            if place in (2, 3):
                text = READS
            results.append(
                {
                    **{"item": item.id, "group": item.group, "kind": item.kind, "sample": sample},
                    **{"prompt": item.prompt, "prompt_tokens": 90, "text": text, "tokens": 9},
                    **{"finish": finish, "stop": None, "answer_ids": [5] * 9},
                }
            )
    return results


def trace_evidence(folder: Path, rows: list[dict[str, Any]] | None = None, **changes: Any) -> Evidence:
    """Return the healthy evidence of a ``replay_traces`` stage; ``changes`` go to the evidence."""
    whole = evidence_of(folder, "sample")
    arguments = answer_rows() if rows is None else rows
    inputs = {"model": whole.inputs["model"]}
    inputs["transcripts"] = write_rows(
        folder / "transcripts.jsonl", [backlog_item.model_dump() for backlog_item in transcripts()]
    )
    named = {"model": "model", "transcripts": "data.sessions"}
    stage = REPLAY_TRACES.stage(name="replay", kind="replay_traces", inputs=named, parameters=PARAMETERS)
    pairs = pairs_of(states(), [TraceAnswer.model_validate(row) for row in arguments], PARAMETERS).pairs
    outputs = {
        "rows": write_rows(folder / "replay" / "rows.jsonl", arguments),
        "pairs": write_rows(
            folder / "replay" / "pairs.jsonl", [preference.model_dump(mode="json") for preference in pairs]
        ),
    }
    return replace(bound(whole, stage, inputs, outputs), **changes)
