"""Both arms read the same prompts, item by item: what differs is named, whatever answers follow them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.evidence.evidence import ArmEvidence, Evidence
from specs.session.evaluation_plan import Drift, EvaluationPlan
from specs.stages.base.sampling import digest_ids
from specs.system.digests import digest_bytes
from specs.trail.verdict import CheckResult
from testing.factories.compared_evidence import all_of, compared, rows_of
from testing.factories.evaluation_evidence import (
    choice_rows,
    choose_evidence,
    conversation_rows,
    converse_evidence,
    perplexity_evidence,
    perplexity_rows,
    row,
)
from testing.factories.evidence_on_disk import N, answers, evidence_of, with_manifest, write_rows
from testing.factories.flaws_evaluation import with_plan
from testing.factories.judged_evidence import results_of

OTHER = digest_bytes(b"another prompt")
Rows = list[dict[str, Any]]


def parity(folder: Path, before: Rows, after: Rows) -> CheckResult:
    evidence = evidence_of(folder, "tuned", after)
    return results_of(replace(evidence, baseline_rows=write_rows(folder / "before.jsonl", before)))["parity.prompts"]


def test_one_prompt_of_many_that_differs_is_named_with_its_lengths(tmp_path: Path) -> None:
    before, after = answers([False] * N), answers([True] * N)
    assert parity(tmp_path, before, after).status == "PASS"
    before[7] |= {"prompt_digest": OTHER, "prompt_tokens": 22}
    result = parity(tmp_path, before, after)
    assert (result.status, result.figure) == ("FAIL", 1.0)
    assert "items with another prompt: 1, first 'h7': 9 tokens, 22 before" in result.detail and "clock" in result.detail
    assert result.rows == ({"item": "h7", "treatment_tokens": 9, "baseline_tokens": 22},)


def test_as_many_tokens_are_no_excuse(tmp_path: Path) -> None:
    before, after = answers([False] * N), answers([True] * N)
    for place in range(1, N):
        after[place]["prompt_digest"] = OTHER
    assert (result := parity(tmp_path, before, after)).status == "FAIL" and result.figure == N - 1


@pytest.mark.parametrize("order", [slice(None, None, -1), slice(1, None)], ids=["another order", "fewer rows"])
def test_the_order_of_rows_does_not_matter_to_it(tmp_path: Path, order: slice) -> None:
    """Rows that are missing are for other checks."""
    assert parity(tmp_path, answers([False] * N), answers([True] * N)[order]).status == "PASS"


@pytest.mark.parametrize("side", ["before", "after"])
def test_rows_that_do_not_state_their_prompts_close_the_gate(tmp_path: Path, side: str) -> None:
    rows = {"before": answers([False] * N), "after": answers([True] * N)}
    del rows[side][2]["prompt_digest"]
    result = parity(tmp_path, rows["before"], rows["after"])
    assert result.status == "BLOCKED" and "1 of 12 do not state what the model read" in result.detail


def test_later_turns_follow_from_answers_and_may_differ(tmp_path: Path) -> None:
    after = rows_of(all_of(True))
    for talk in after:
        talk["turns"][1]["prompt_digest"] = OTHER
    evidence = compared(tmp_path, all_of(False), all_of(True))
    write_rows(evidence.outputs["rows"], after)
    assert results_of(evidence)["parity.prompts"].status == "PASS"
    after[3]["turns"][0]["prompt_digest"] = OTHER
    write_rows(evidence.outputs["rows"], after)
    assert results_of(evidence)["parity.prompts"].status == "FAIL"


def drift(evidence: Evidence, before: Sequence[Any], folder: Path) -> CheckResult:
    plan = EvaluationPlan(drift=(Drift(before="base", after=evidence.stage.name, margin=0.5),))
    rows = write_rows(folder / "earlier.jsonl", [row(value) for value in before])
    arm = ArmEvidence(rows, evidence.manifest, evidence.parameters)
    return results_of(replace(with_plan(evidence, plan), arms={"base": arm}))["drift.kept"]


BEST = [(0.1, 90.0), (9.0, 0.1)] * 2


@pytest.mark.parametrize("kind", ["perplexity", "multiple_choice", "multi_turn"])
def test_what_is_protected_is_compared_on_the_same_prompts(tmp_path: Path, kind: str) -> None:
    evidence, before = {
        "perplexity": lambda: (perplexity_evidence(tmp_path), perplexity_rows()),
        "multiple_choice": lambda: (choose_evidence(tmp_path, choice_rows(BEST)), choice_rows(BEST)),
        "multi_turn": lambda: (converse_evidence(tmp_path), conversation_rows(times=8)),
    }[kind]()
    assert drift(evidence, before, tmp_path).status == "PASS"
    changed: Any = before[1]
    if kind == "multi_turn":
        turn = changed.turns[0].model_copy(update={"prompt_digest": OTHER})
        changed = changed.model_copy(update={"turns": (turn, *changed.turns[1:])})
    else:
        changed = changed.model_copy(update={"prompt_digest": OTHER})
    result = drift(evidence, [before[0], changed, *before[2:]], tmp_path)
    assert result.status == "BLOCKED" and "other prompts (items with another prompt: 1" in result.detail
    other = with_manifest(evidence, dtype="bfloat16")
    assert other.manifest is not None
    assert "device or precision" in drift_of_manifests(evidence, other, before, tmp_path).detail


def drift_of_manifests(evidence: Evidence, other: Evidence, before: Sequence[Any], folder: Path) -> CheckResult:
    plan = EvaluationPlan(drift=(Drift(before="base", after=evidence.stage.name, margin=0.5),))
    rows = write_rows(folder / "earlier.jsonl", [row(value) for value in before])
    arm = ArmEvidence(rows, other.manifest, evidence.parameters)
    return results_of(replace(with_plan(evidence, plan), arms={"base": arm}))["drift.kept"]


def test_stop_tokens_are_the_same_in_both_arms(tmp_path: Path) -> None:
    evidence = with_manifest(evidence_of(tmp_path, "tuned"), facts={"stop_ids": [0, 2]})
    result = results_of(evidence)["parity.settings"]
    assert result.status == "FAIL" and "stop tokens" in result.detail


@pytest.mark.parametrize(
    ("clock", "status"),
    [
        ("", "PASS"),
        # As Llama's template with a registered date: fixed.
        ("Today Date: {{ '26 Jul 2024' }} ", "PASS"),
        ("Today Date: {{ strftime_now('%d %b %Y') }} ", "WARN"),
        ("{% if strftime_now('%H') | int < 3 %}It is night. {% endif %}", "WARN"),
        ("{% if strftime_now('%M') | int < 20 %}Early. {% endif %}", "WARN"),
        ("{% if strftime_now('%a') == 'Sun' %}Rest. {% endif %}", "WARN"),
        ("{{ ['Well', 'So', 'Now', 'Then'] | random }} ", "WARN"),
    ],
)
def test_a_template_that_reads_a_clock_or_chance_is_named(tmp_path: Path, clock: str, status: str) -> None:
    evidence = evidence_of(tmp_path, "base")
    path = evidence.inputs["model"] / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"chat_template": clock + config["chat_template"]}), encoding="utf-8")
    result = results_of(evidence)["health.template"]
    assert result.status == status, result.detail
    assert ("template_date" in result.detail) == (status == "WARN")


def test_where_the_weights_are_gone_the_template_is_not_looked_at(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "base")
    evidence = replace(evidence, inputs=evidence.inputs | {"model": tmp_path / "gone"})
    assert results_of(evidence)["health.template"].status == "PASS"


Ids = st.lists(st.integers(0, 150_000), max_size=40)


@given(Ids, Ids)
def test_other_ids_have_another_digest(ids: list[int], other: list[int]) -> None:
    assert (digest_ids(ids) == digest_ids(tuple(other))) == (ids == other)
    assert digest_ids([ids, other]) == digest_ids((tuple(ids), tuple(other)))
    assert (digest_ids([ids, other]) == digest_ids([other, ids])) == (ids == other)
