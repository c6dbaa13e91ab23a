"""Checks and metrics of replayed traces: pass on healthy evidence, and each finds its flaw."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import CHECKS
from reviews.gate.measurer import measure
from specs.system.errors import EvidenceMissing
from testing.factories.evidence_on_disk import write_rows
from testing.factories.judged_evidence import results_of
from testing.factories.trace_evidence import PARAMETERS, answer_rows, states, trace_evidence, transcripts
from training.rules.traces import local_replay

OWN = "traces."


def own(evidence: Evidence) -> dict[str, str]:
    return {id: check.status for id, check in results_of(evidence).items() if id.startswith(OWN)}


def test_healthy_evidence_passes_every_check(tmp_path: Path) -> None:
    results = own(trace_evidence(tmp_path))
    assert set(results.values()) == {"PASS"} and len(results) == 3


def test_metrics_by_hand(tmp_path: Path) -> None:
    count = len(states().shown_states)
    metrics = measure(trace_evidence(tmp_path)).metrics
    values = {id: metric.value for id, metric in metrics.items()}
    assert (values["trace_states"], values["trace_answers"]) == (count, 2 * count)
    # One answer was cut off; the first state has one call of two, the second one, two states have two each.
    assert values["trace_whole"] == pytest.approx((2 * count - 1) / (2 * count))
    assert values["trace_calls"] == pytest.approx(6 / (2 * count))
    assert values["trace_agreement"] == pytest.approx((count - 2) / count)
    # Of the states in which the answers agree, those in which the trace did something else.
    did_text = [all(part.type != "tool_use" for part in state.state.parts) for state in states().shown_states]
    assert values["trace_pairs"] == count - 2 - sum(did_text[4:])


def _other_prompt(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rows[0] | {"prompt": "Say yes."}, *rows[1:]]


def _left_out(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows[:-1]


def _another_state(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*rows, rows[0] | {"item": "nowhere"}]


ROW_FLAWS: dict[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = {
    "a prompt that is not the state's": _other_prompt,
    "an answer that was left out": _left_out,
    "an answer to no state": _another_state,
}


@pytest.mark.parametrize("flaw", ROW_FLAWS)
def test_other_states_than_are_due_are_found(tmp_path: Path, flaw: str) -> None:
    assert own(trace_evidence(tmp_path, ROW_FLAWS[flaw](answer_rows())))["traces.states"] == "FAIL"


def _pairs(evidence: Evidence, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Evidence:
    path = evidence.outputs["pairs"]
    write_rows(path, change([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]))
    return evidence


PAIR_FLAWS: dict[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = {
    "a side that no one wrote": lambda rows: [rows[0] | {"chosen": "Something better."}, *rows[1:]],
    "a pair left out": lambda rows: rows[1:],
    "a pair twice": lambda rows: [*rows, rows[0]],
    "sides that were swapped": lambda rows: [
        rows[0] | {"chosen": rows[0]["rejected"], "rejected": rows[0]["chosen"]},
        *rows[1:],
    ],
    "a circle that is not told": lambda rows: [row | {"taught": row["taught"] | {"circular": []}} for row in rows],
    "another family": lambda rows: [row | {"taught": row["taught"] | {"families": ["gpt"]}} for row in rows],
}


@pytest.mark.parametrize("flaw", PAIR_FLAWS)
def test_pairs_that_do_not_follow_from_the_answers_are_found(tmp_path: Path, flaw: str) -> None:
    results = own(_pairs(trace_evidence(tmp_path), PAIR_FLAWS[flaw]))
    assert results == {"traces.accounted": "PASS", "traces.states": "PASS", "traces.pairs": "FAIL"}


def test_records_that_no_one_accounts_for_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = trace_evidence(tmp_path)
    whole = local_replay.ingest

    def loses(*values: Any) -> Any:
        ingested = whole(*values)
        return ingested._replace(account=ingested.account.model_copy(update={"used": ingested.account.used - 1}))

    monkeypatch.setattr(local_replay, "ingest", loses)
    assert own(evidence)["traces.accounted"] == "FAIL"


@pytest.mark.parametrize("id", ["../session.jsonl", "/tmp/session.jsonl", ""])
def test_a_transcript_is_written_nowhere_else(tmp_path: Path, id: str) -> None:
    rows = [item.model_copy(update={"id": id}) for item in transcripts()]
    with pytest.raises(ValueError, match="not a name of a transcript"):
        local_replay.states_in(rows, PARAMETERS)
    evidence = trace_evidence(tmp_path)
    write_rows(evidence.inputs["transcripts"], [item.model_dump() for item in rows])
    with pytest.raises(EvidenceMissing):
        measure(evidence)


def test_every_check_has_a_flaw() -> None:
    assert {check.id for check in CHECKS if check.id.startswith(OWN)} == {
        "traces.accounted",
        "traces.states",
        "traces.pairs",
    }


def test_every_pair_says_in_which_circle_it_is_and_who_accepted_that() -> None:
    circles = local_replay.circles_of(states(), PARAMETERS)
    assert len(circles) == 3 and "student's own family" in circles[1] and "is not known" in circles[2]
    other = PARAMETERS.model_copy(update={"student": "llama"})
    assert local_replay.circles_of(states(), other) == (circles[0], circles[2])
