"""What the gate finds of replicas that were not one model, or not all there; each flaw planted in healthy rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reviews.checks.definition import apply
from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning import checks as training_checks
from reviews.stages.finetuning.measure import steps_of
from reviews.stages.finetuning.replica_checks import CHECKS
from specs.stages.finetuning.distributed import DistributedTraining
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import evidence_of, with_manifest
from testing.fixtures.tiny_training import write_lines

Rows = list[dict[str, Any]]
DISTRIBUTED: dict[str, Any] = {
    "strategy": "diloco",
    "replicas": 2,
    "sync_every": 2,
    "outer": {"lr": 0.7, "momentum": 0.9},
}


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _healthy(evidence: Evidence) -> Rows:
    """Return the rows of two replicas whose tokens are those of the steps."""
    steps = steps_of(evidence)
    rows: Rows = []
    for sync in range(1, -(-len(steps) // 2) + 1):
        own = steps[2 * sync - 2 : 2 * sync]
        tokens = sum(step.tokens for step in own)
        for replica in range(2):
            rows.append(
                {
                    "sync": sync,
                    "replica": replica,
                    "process": 1,
                    "first_step": own[0].step,
                    "last_step": own[-1].step,
                    "tokens": tokens // 2 if replica else tokens - tokens // 2,
                    "sequences": 1,
                    "start": _digest("model", sync - 1),
                    "before": _digest("own", sync, replica),
                    "after": _digest("model", sync),
                    "quorum": 1,
                    "participants": 2,
                    "healed": False,
                    "drift": 0.5,
                    "bytes": 400,
                    "seconds": 0.1,
                }
            )
    return rows


def _evidence(folder: Path, change: Callable[[Rows], object] = lambda _: None, **granted: Any) -> Evidence:
    evidence = evidence_of(folder, "train")
    rows = _healthy(evidence)
    number = len(rows)
    change(rows)
    assert evidence.manifest is not None
    effective = evidence.manifest.effective | {"trained_parameters": 100}
    facts = evidence.manifest.facts | {"sequences_due": number, "starts": []}
    return replace(
        with_manifest(evidence, effective=effective, facts=facts),
        parameters=evidence.parameters | {"distributed": DISTRIBUTED} | granted,
        outputs=evidence.outputs | {"replicas": write_lines(folder / "replicas.jsonl", rows)},
    )


def _beside(evidence: Evidence, share: float = 1.0, **other: Any) -> Evidence:
    """Return evidence with a training in one process before it, of a share of the tokens."""
    own = evidence.stage
    distributed = own.parameters.model_copy(update={"distributed": DistributedTraining.model_validate(DISTRIBUTED)})
    stages = [own.model_copy(update={"name": "single"} | other), own.model_copy(update={"parameters": distributed})]
    resolved = evidence.resolved
    tokens = share * sum(step.tokens for step in steps_of(evidence))
    metric = SimpleNamespace(value=tokens)
    return replace(
        evidence,
        stage=stages[1],
        resolved=resolved.model_copy(update={"spec": resolved.spec.model_copy(update={"stages": tuple(stages)})}),
        earlier={"single": SimpleNamespace(metrics={"train_tokens": metric})},
    )


def _results(evidence: Evidence) -> dict[str, CheckResult]:
    return {check.id: apply(check, evidence, None) for check in CHECKS}


def test_healthy_replicas_pass_every_check(tmp_path: Path) -> None:
    results = _results(_beside(_evidence(tmp_path)))
    assert {id: result.detail for id, result in results.items() if result.status != "PASS"} == {}
    assert "no sequence is lost" in results["replicas.samples"].detail
    assert "0.5" in results["replicas.bytes"].detail or "of what averaging" in results["replicas.bytes"].detail


def test_a_training_in_one_process_is_not_asked(tmp_path: Path) -> None:
    assert {result.status for result in _results(evidence_of(tmp_path, "train")).values()} == {"NOT_APPLICABLE"}


def test_without_rows_or_order_every_check_is_blocked(tmp_path: Path) -> None:
    evidence = _evidence(tmp_path)
    bare = replace(evidence, outputs={name: path for name, path in evidence.outputs.items() if name != "replicas"})
    # Only replicas.single asks the steps alone.
    assert {id for id, result in _results(bare).items() if result.status != "BLOCKED"} == {"replicas.single"}
    assert {result.status for result in _results(replace(evidence, parameters={})).values()} == {"BLOCKED"}


def _set(place: int, **values: Any) -> Callable[[Rows], object]:
    return lambda rows: rows[place].update(values)


def _all(**values: Any) -> Callable[[Rows], object]:
    return lambda rows: [row.update(values) for row in rows]


def _begun_anew(rows: Rows) -> None:
    rows[2]["start"] = rows[3]["start"] = rows[0]["start"]


FLAWS: dict[str, tuple[str, str, Callable[[Rows], object]]] = {
    "an all-reduce that does nothing": ("replicas.equal", "FAIL", _set(1, after=_digest("own", 1, 1))),
    "unequal weights at the start": ("replicas.equal", "FAIL", _set(1, start=_digest("other"))),
    "a restart that begins at step 0": ("replicas.equal", "FAIL", _begun_anew),
    "one replica copied": ("replicas.apart", "FAIL", _set(1, before=_digest("own", 1, 0))),
    "a replica that did not move": ("replicas.apart", "FAIL", _set(0, drift=0.0)),
    "a synchronisation that is missing": ("replicas.quorum", "FAIL", lambda rows: rows.__delitem__(slice(2, 4))),
    "a replica alone": ("replicas.quorum", "FAIL", lambda rows: rows.pop(3)),
    "one replica too many": ("replicas.quorum", "FAIL", _set(1, replica=2)),
    "other steps than those due": ("replicas.quorum", "FAIL", _set(2, first_step=1)),
    "tokens of no step": ("replicas.samples", "FAIL", _set(1, tokens=10_000)),
    "sequences counted twice": ("replicas.samples", "FAIL", _set(0, sequences=9)),
    "sequences lost": ("replicas.samples", "FAIL", _all(sequences=0)),
    "the whole base sent": ("replicas.bytes", "FAIL", _set(0, bytes=10_000)),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_found(tmp_path: Path, flaw: str) -> None:
    check, status, change = FLAWS[flaw]
    assert _results(_evidence(tmp_path, change))[check].status == status


def test_every_check_has_a_flaw() -> None:
    assert {check for check, _, _ in FLAWS.values()} | {"replicas.single"} == {check.id for check in CHECKS}


@pytest.mark.parametrize(
    ("share", "other", "status"),
    [
        (1.05, {}, "PASS"),
        (2.0, {}, "WARN"),
        (0.5, {}, "WARN"),
        (2.0, {"inputs": {"model": "model", "examples": "data.other"}}, "NOT_APPLICABLE"),
    ],
)
def test_tokens_are_compared_with_a_training_in_one_process(
    tmp_path: Path, share: float, other: dict[str, Any], status: str
) -> None:
    assert _results(_beside(_evidence(tmp_path), share, **other))["replicas.single"].status == status


def test_a_replica_that_took_over_weights_does_not_count(tmp_path: Path) -> None:
    def heal(rows: Rows) -> None:
        # The steps are then those of the other replica alone, and its digest before the synchronisation the same.
        rows[0]["tokens"] += rows[1]["tokens"]
        rows[1] |= {
            "healed": True,
            "before": rows[0]["before"],
            "start": _digest("old"),
            "first_step": 1,
            "last_step": 1,
        }

    evidence = _evidence(tmp_path, heal)
    results = _results(evidence)
    assert [results[id].status for id in ("replicas.equal", "replicas.apart", "replicas.quorum")] == ["PASS"] * 3
    lost = results["replicas.samples"]
    assert f"1 of {len(_healthy(evidence))} sequences are lost" in lost.detail or lost.status == "FAIL"


@pytest.mark.parametrize(("number", "status"), [(20, "PASS"), (21, "WARN"), (22, "WARN"), (23, "FAIL"), (19, "FAIL")])
def test_a_tenth_of_the_sequences_may_be_lost(tmp_path: Path, number: int, status: str) -> None:
    evidence = _evidence(
        tmp_path, lambda rows: [row.update(sequences=0) for row in rows[1:]] and rows[0].update(sequences=20)
    )
    assert evidence.manifest is not None
    result = with_manifest(evidence, facts=evidence.manifest.facts | {"sequences_due": number})
    assert _results(result)["replicas.samples"].status == status


def test_who_was_started_again_is_said(tmp_path: Path) -> None:
    evidence = _evidence(tmp_path)
    assert evidence.manifest is not None
    starts = [
        {"replica": 1, "process": 1, "step": 0, "why": ""},
        {"replica": 1, "process": 2, "step": 4, "why": "was ended by SIGKILL"},
    ]
    result = with_manifest(evidence, facts=evidence.manifest.facts | {"starts": starts})
    assert "replica 1 was ended by SIGKILL, again from step 4" in _results(result)["replicas.quorum"].detail


def test_three_replicas_of_which_two_suffice_are_a_warning(tmp_path: Path) -> None:
    evidence = _evidence(tmp_path, distributed=DISTRIBUTED | {"replicas": 3})
    assert _results(evidence)["replicas.quorum"].status == "WARN"


@pytest.mark.parametrize(
    ("used", "status"),
    [({"lowercase": 4}, "PASS"), ({"lowercase": 5}, "PASS"), ({"lowercase": 3}, "FAIL"), ({"other": 4}, "FAIL")],
)
def test_only_what_fills_no_shard_may_be_left_out(tmp_path: Path, used: dict[str, int], status: str) -> None:
    evidence = _evidence(tmp_path)
    assert evidence.manifest is not None
    result = with_manifest(evidence, facts=evidence.manifest.facts | {"examples_by_kind": used})
    check = next(gate_check for gate_check in training_checks.CHECKS if gate_check.id == "training.data")
    assert apply(check, result, None).status == status
