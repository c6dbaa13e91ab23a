"""A stage that wrote data and kept none of it opens no gate, whatever its spec registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.evidence import Evidence
from reviews.gate import check_list
from specs.lint.criterion_rules import KEPT_COUNTS
from specs.stages.critique.kinds import BEST_OF_N_VERIFIED
from specs.stages.critique.parameters import BestOfNVerifiedParameters
from specs.stages.generation.rows import GenerationRow
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import STAGE_KINDS
from specs.system.digests import Contract
from testing.factories.bound_evidence import bound
from testing.factories.critic_evidence import KINDS as CRITICS
from testing.factories.critic_evidence import candidates, chains, critic_evidence
from testing.factories.evidence_on_disk import evidence_of, heldout_items, prompt_items, samples, write_rows
from testing.factories.judged_evidence import results_of
from testing.factories.spec_files import loads, problems_of, write_spec
from testing.factories.text_evidence import TEXTS, instruct_rows, respond_rows, text_evidence
from testing.factories.trace_evidence import answer_rows, trace_evidence
from tests.docs.test_failures_text import gated, outcome_of
from training.rules.critique.preference_pairs import verdicts, verified_pairs

ID = "health.kept"
AT_LEAST_TWO = "{metric: accepted, at_least: 2}"

KEPT = {name: kind.required_output for name, kind in STAGE_KINDS.items() if kind.required_output}


def refused(_: int) -> tuple[float, float]:
    """No row is accepted, in either order of the labels."""
    return -2.0, -1.5


def undecided(place: int) -> tuple[float, float]:
    """Another verdict when the labels change places."""
    return (2.0, -1.5) if place % 2 else (-2.0, 1.5)


def alike(_: int, __: int) -> str:
    return "It is always the same answer to all of this."


def silent(_: int, __: int) -> str:
    return ""


def generate(folder: Path, empty: bool) -> Evidence:
    return evidence_of(
        folder, "sample", [row | ({"completion": "A Tale In Capitals."} if empty else {}) for row in samples()]
    )


def instruct(folder: Path, empty: bool) -> Evidence:
    about_the_list = ["Another one of these"] * 6
    return text_evidence(folder, "self_instruct", instruct_rows("completion", *about_the_list) if empty else None)


def respond(folder: Path, empty: bool) -> Evidence:
    nothing: dict[str, Any] = {f"raw_{place}": "" for place in range(len(TEXTS))}
    return text_evidence(folder, "sample_responses", respond_rows(**nothing) if empty else None)


def critique_instructions(folder: Path, empty: bool) -> Evidence:
    return critic_evidence(folder, "critique_instructions", signed=refused if empty else None)


def critique_responses(folder: Path, empty: bool) -> Evidence:
    return critic_evidence(folder, "critique_responses", signed=refused if empty else None)


def revise(folder: Path, empty: bool) -> Evidence:
    return critic_evidence(folder, "revise", rows=[*chains(change=silent)] if empty else None)


def prefer(folder: Path, empty: bool) -> Evidence:
    rows = [*candidates(alike)] if empty else None  # Nothing is compared with itself.
    return critic_evidence(folder, "best_of_n", rows=rows, signed=undecided if empty else None)


def prefer_verified(folder: Path, empty: bool) -> Evidence:
    parameters = BestOfNVerifiedParameters(max_length_ratio=100)
    stage = BEST_OF_N_VERIFIED.stage(
        name="pairs",
        kind="best_of_n_verified",
        inputs={"samples": "sample.rows", "prompts": "data.prompts"},
        parameters=parameters,
    )
    rows = [GenerationRow.model_validate(row | {"truncated": empty}) for row in samples()]
    verified_rows = verdicts("format_instructions", prompt_items(), rows)
    pairs = verified_pairs(rows, verified_rows, parameters).pairs

    def write(name: str, contracts: Sequence[Contract]) -> Path:
        return write_rows(folder / f"{name}.jsonl", [contract.model_dump(mode="json") for contract in contracts])

    whole = evidence_of(folder, "base")
    inputs = {"samples": write("samples", rows), "prompts": write("prompts", prompt_items())}
    return bound(
        whole, stage, inputs, {"rows": write("rows", verified_rows), "preferences": write("preferences", pairs)}
    )


def replay(folder: Path, empty: bool) -> Evidence:
    # Answers that were all cut off leave no pair.
    return trace_evidence(folder, [row | ({"finish": "length"} if empty else {}) for row in answer_rows()])


MADE: dict[str, Callable[[Path, bool], Evidence]] = {
    "generate": generate,
    "self_instruct": instruct,
    "sample_responses": respond,
    "critique_instructions": critique_instructions,
    "critique_responses": critique_responses,
    "revise": revise,
    "best_of_n": prefer,
    "best_of_n_verified": prefer_verified,
    "replay_traces": replay,
}


def test_every_kind_that_writes_data_is_asked_what_it_kept() -> None:
    writes = {"items", "examples", "preferences"}
    assert {kind for kind, stage_kind in STAGE_KINDS.items() if writes & set(stage_kind.outputs.values())} == set(KEPT)
    assert all(STAGE_KINDS[kind].outputs[output.output] in writes for kind, output in KEPT.items())
    assert set(MADE) == set(KEPT) and set(CRITICS) < set(MADE)


@pytest.mark.parametrize("kind", MADE)
def test_an_empty_output_is_found_and_one_row_is_enough(tmp_path: Path, kind: str) -> None:
    for name in ("empty", "whole"):
        (tmp_path / name).mkdir()
    empty = MADE[kind](tmp_path / "empty", True)
    assert empty.outputs[KEPT[empty.stage.kind].output].read_bytes() == b""
    assert (results_of(empty)[ID].status, results_of(empty)[ID].figure) == ("FAIL", 0)
    # No criterion is needed for the gate to stay shut.
    assert outcome_of(gated(empty)) != "approve"
    whole = MADE[kind](tmp_path / "whole", False)
    assert results_of(whole)[ID].status == "PASS" and (results_of(whole)[ID].figure or 0) >= 1
    # And an output that is not there is no empty one.
    without = replace(whole, outputs={name: path for name, path in whole.outputs.items() if name == "rows"})
    assert results_of(without)[ID].status == "BLOCKED"


@pytest.mark.parametrize("kind", ["self_instruct", "sample_responses"])
def test_nothing_else_shuts_the_gate_of_these(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The control: with this one check gone, a stage that kept nothing is let pass.
    monkeypatch.setattr(check_list, "CHECKS", tuple(check for check in check_list.CHECKS if check.id != ID))
    assert outcome_of(gated(MADE[kind](tmp_path, True))) == "approve"


def test_instructions_that_are_all_taken_out_are_none(tmp_path: Path) -> None:
    items = heldout_items()
    rows = instruct_rows("completion", *[item.prompt for item in items[:6]])
    check = results_of(text_evidence(tmp_path, "self_instruct", rows))[ID]
    assert check.status == "FAIL" and "6 instructions were kept, 0 of them are handed on" in check.detail


@pytest.mark.parametrize("bound", ["at_most: 0", "below: 1", "at_most: 0.5"])
def test_a_criterion_that_only_nothing_can_meet_is_reported_before_the_start(tmp_path: Path, bound: str) -> None:
    # The control: one that a single row can meet.
    loads(write_spec(tmp_path, (AT_LEAST_TWO, "{metric: accepted, at_most: 1}")))
    path = write_spec(tmp_path, (AT_LEAST_TWO, f"{{metric: accepted, {bound}}}"))
    (problem,) = problems_of(path)
    assert "is met only where nothing was kept, and then the gate stays shut" in str(problem)
    assert f"stages[1].gate.criteria[1].{bound.partition(':')[0]}" in str(problem)


def test_every_kind_has_the_count_that_is_asked_so() -> None:
    assert set(KEPT_COUNTS) <= set(METRICS) and {METRICS[id].scope for id in KEPT_COUNTS} == set(KEPT)
