"""A held-out prompt among the earlier turns of a conversation is found as in any prompt, at both gates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.checks.leakage_checks import texts_of
from sessions.runtime.preflight import design_forecast
from specs.loading.loading import load_spec
from specs.stages.base.artifacts import DialogueTurn, Item
from testing.factories.evidence_on_disk import evidence_of, examples, heldout_items, write_rows
from testing.factories.judged_evidence import results_of
from tests.training.planning.test_data_fit import ITEMS, experiment


def chat(question: str) -> dict[str, Any]:
    turns = [
        ("system", "Be brief."),
        ("user", question),
        ("assistant", "Yes."),
        ("user", "And now?"),
        ("assistant", "No."),
    ]
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def test_the_design_gate_reads_every_turn_of_a_conversation(tmp_path: Path) -> None:
    results: dict[str, str] = {}
    for name, text in (("leaky", str(ITEMS[0]["prompt"])), ("clean", "Who wrote the Iliad, and when was that?")):
        (tmp_path / name).mkdir()
        resolved = load_spec(experiment(tmp_path / name, None, [chat(text), chat("How long is the river Rhine?")]))
        (results[name],) = [check.status for check in design_forecast(resolved).checks if check.id == "design.overlap"]
    assert results == {"leaky": "FAIL", "clean": "PASS"}


def test_the_gate_of_a_training_does_too(tmp_path: Path) -> None:
    base = evidence_of(tmp_path, "train")
    rows = examples()
    before = [{"role": "user", "content": heldout_items()[0].prompt}, {"role": "assistant", "content": "Yes."}]
    statuses: list[str] = []
    for more in ([], before):
        path = write_rows(tmp_path / f"rows{len(more)}.jsonl", [rows[0] | {"before": more}, *rows[1:]])
        evidence = replace(base, inputs={**base.inputs, "examples": path})
        statuses.append(results_of(evidence)["leakage.overlap"].status)
    assert statuses == ["PASS", "FAIL"]


def test_of_a_held_out_conversation_the_longer_turns_of_the_user_may_not_be_trained_on() -> None:
    before = (
        DialogueTurn(role="system", content="a b c d e f g"),
        DialogueTurn(role="user", content="one two three four five"),
        DialogueTurn(role="assistant", content="six seven eight nine ten"),
    )
    item = Item(id="i", group="g", kind="k", prompt="And then?", constraint={}, before=before)
    assert texts_of(item, 5) == ("one two three four five\nAnd then?", "one two three four five")
    assert json.loads(item.model_dump_json())["before"][0]["role"] == "system"
