"""Checks and metrics of training on rollouts: pass on healthy evidence, and each finds its flaw."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import CHECKS
from reviews.gate.measurer import measure
from reviews.stages.finetuning.online_checks import _sharers  # pyright: ignore[reportPrivateUsage]
from specs.stages.base.stage import Kind
from testing.factories.evidence_on_disk import heldout_items, with_manifest, write_rows
from testing.factories.judged_evidence import results_of
from testing.factories.rollout_evidence import (
    course,
    rollout_evidence,
    rollouts,
    sampled,
    validation_rows,
    witness_reads,
)
from testing.fixtures.tiny_training import write_lines

SPANS = {"feedback": "verifier", "target": "span"}
WANTED = ("training.", "rollouts.", "witness.")


def own(evidence: Evidence) -> dict[str, tuple[str, str]]:
    """Return status and detail of the checks that are about training."""
    return {id: (check.status, check.detail) for id, check in results_of(evidence).items() if id.startswith(WANTED)}


@pytest.mark.parametrize(
    ("kind", "arguments"), [("grpo", {}), ("sdpo", {}), ("sdpo", {"self_distillation": SPANS}), ("composer", {})]
)
def test_healthy_evidence_passes_every_check(tmp_path: Path, kind: Kind, arguments: dict[str, Any]) -> None:
    results = own(rollout_evidence(tmp_path, kind, **arguments))
    assert {id for id, (status, _) in results.items() if status == "NOT_APPLICABLE"} == {"rollouts.clipped"}
    assert {id: pair for id, pair in results.items() if pair[0] not in ("PASS", "NOT_APPLICABLE")} == {}
    assert len(results) == (22 if kind == "composer" else 21)
    assert results["rollouts.hacking"][1].endswith("kept out 4 were gained and 0 lost")


def test_metrics_by_hand(tmp_path: Path) -> None:
    values = {id: (metric.value, metric.n) for id, metric in measure(rollout_evidence(tmp_path)).metrics.items()}
    steps = len(course())
    assert values["grpo_steps"] == (steps, steps) and values["grpo_rollouts"][0] == 8 * steps
    # One right answer of four and an end each, then three of four.
    assert values["grpo_first_reward"][0] == pytest.approx(0.75) and values["grpo_last_reward"][0] == pytest.approx(
        1.25
    )
    assert (values["grpo_first_verified"][0], values["grpo_last_verified"][0]) == (0.25, 0.75)
    assert values["grpo_first_length"][0] == 9 and values["grpo_ties"][0] == 0
    count = len(validation_rows())
    assert values["grpo_kept_prompts"][0] == count
    assert values["grpo_kept_before"] == (0.0, count) and values["grpo_kept_after"][0] == pytest.approx(4 / count)


def _lengthening(at: float) -> int:
    return 9 if at < 0.5 else 30


def _hacked(folder: Path) -> Evidence:
    """Return a training whose reward rises because answers get longer, and right ones stay as rare as they were."""
    weights = {"verified": 0.2, "length": 1.0}
    answers = rollouts(lambda _: 1, lambda at: 9 + round(8 * at), weights)
    return rollout_evidence(folder, answers=answers, rewards=weights)


def _row(change: Callable[[dict[str, Any]], dict[str, Any]], place: int = 5) -> Callable[[Path], Evidence]:
    def made(folder: Path) -> Evidence:
        rows = rollouts()
        rows[place] |= change(rows[place])
        return rollout_evidence(folder, answers=rows)

    return made


def _spanned(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Path], Evidence]:
    def made(folder: Path) -> Evidence:
        evidence = rollout_evidence(folder, "sdpo", self_distillation=SPANS)
        path = evidence.outputs["rollouts"]
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        place = next(n for n, row in enumerate(rows) if "span" in row)
        write_rows(path, [row | (change(row) if n == place else {}) for n, row in enumerate(rows)])
        return evidence

    return made


def _change_input(folder: Path, name: str, **changes: Any) -> Evidence:
    evidence = rollout_evidence(folder, "composer")
    path = evidence.inputs[name]
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    write_rows(path, [rows[0] | changes, *rows[1:]])
    return evidence


def _silent(name: str, **changes: Any) -> Callable[[Path], Evidence]:
    def made(folder: Path) -> Evidence:
        steps = course("grpo", "dpo")
        for row in steps:
            row["channels"] = row["channels"] | {name: row["channels"][name] | changes}
        return rollout_evidence(folder, "composer", steps=steps)

    return made


def _of(**changes: Any) -> Callable[[Path], Evidence]:
    return lambda folder: rollout_evidence(folder, **changes)


def _read(change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Callable[[Path], Evidence]:
    return lambda folder: witness_reads(rollout_evidence(folder), change)


def _line(name: str, **changes: Any) -> Callable[[Path], Evidence]:
    return lambda folder: _change_input(folder, name, **changes)


def _fewer_pairs(folder: Path) -> Evidence:
    return with_manifest(rollout_evidence(folder, "composer"), facts={"pairs": 4})


def _many_lost() -> list[dict[str, Any]]:
    return validation_rows(before=len(validation_rows()), after=0)


def _collapsed() -> list[dict[str, Any]]:
    return [row | {"entropy": 3.0 if row["step"] < 13 else 0.1} for row in course()]


def _unlikely(line: dict[str, Any]) -> dict[str, Any]:
    return line if line.get("part") else sampled(line["row"], beyond=0.2)


def _left_out(line: dict[str, Any]) -> dict[str, Any] | None:
    return None if line["row"] == 3 and not line.get("part") else line


def _apart(line: dict[str, Any]) -> dict[str, Any]:
    return line | {"gap": 2.0} if line.get("part") == "after" else line


_HELD = heldout_items()[0].prompt
FLAWS: list[tuple[str, str, str, Callable[[Path], Evidence]]] = [
    ("longer answers pay", "rollouts.hacking", "FAIL", _hacked),
    ("kept-out answers got wrong", "rollouts.hacking", "FAIL", _of(after=_many_lost())),
    ("kept-out answers as before", "rollouts.hacking", "WARN", _of(after=validation_rows(0, 0))),
    ("a verdict that no one gives", "rollouts.rewards", "FAIL", _row(lambda row: {"verified": not row["verified"]})),
    ("a reward that was not earned", "rollouts.rewards", "FAIL", _row(lambda row: {"reward": row["reward"] + 0.1})),
    ("an advantage of another group", "rollouts.rewards", "FAIL", _row(lambda row: {"advantage": -row["advantage"]})),
    ("a hint in a stage without a teacher", "rollouts.rewards", "FAIL", _row(lambda _: {"hint": "say it"})),
    ("tokens that no span names", "rollouts.rewards", "FAIL", _row(lambda _: {"span_tokens": (0, 1)})),
    ("another span", "rollouts.rewards", "FAIL", _spanned(lambda row: {"span": (2, 3)})),
    ("tokens beyond the answer", "rollouts.rewards", "FAIL", _spanned(lambda row: {"span_tokens": (0, 99)})),
    ("answers of a step left out", "rollouts.complete", "FAIL", _of(answers=rollouts()[4:])),
    ("a step left out", "rollouts.complete", "FAIL", _of(steps=course()[:-1])),
    ("a prompt kept out without answers", "rollouts.complete", "FAIL", _of(after=validation_rows()[1:])),
    ("a held-out prompt", "rollouts.overlap", "FAIL", _line("prompts", prompt=_HELD)),
    ("a held-out prompt in a pair", "rollouts.overlap", "FAIL", _line("pairs", chosen=_HELD)),
    ("a held-out topic", "rollouts.groups", "FAIL", _line("pairs", group="hg3")),
    ("a channel that never fired", "rollouts.channels", "FAIL", _silent("dpo", rows=0, tokens=0, grad_norm=0.0)),
    ("a channel without a gradient", "rollouts.channels", "FAIL", _silent("dpo", grad_norm=0.0)),
    ("pairs left out", "rollouts.pairs", "WARN", _fewer_pairs),
    ("far from the reference", "rollouts.kl", "WARN", _of(steps=course(kl=3.0))),
    ("no divergence measured", "rollouts.kl", "WARN", _of(steps=course(kl=None))),
    ("entropy gone", "rollouts.entropy", "WARN", _of(steps=_collapsed())),
    ("answers three times as long", "rollouts.length", "WARN", _of(answers=rollouts(tokens=_lengthening))),
    ("all answers alike", "rollouts.ties", "WARN", _of(answers=rollouts(lambda _: 0))),
    ("most tokens clipped", "rollouts.clipped", "WARN", _of(steps=course(clipped=0.6), updates=2)),
    ("unlikely answers", "witness.rollouts", "FAIL", _read(_unlikely)),
    ("answers that were not read", "witness.rollouts", "BLOCKED", _read(_left_out)),
    ("kept-out answers of other weights", "witness.rollouts", "FAIL", _read(_apart)),
]


@pytest.mark.parametrize(("check", "status", "make"), [flaw[1:] for flaw in FLAWS], ids=[flaw[0] for flaw in FLAWS])
def test_a_flaw_is_found_by_its_check(
    tmp_path: Path, check: str, status: str, make: Callable[[Path], Evidence]
) -> None:
    result = results_of(make(tmp_path))[check]
    assert result.status == status, result.detail


def test_answers_are_due_of_the_replicas_whose_steps_count(tmp_path: Path) -> None:
    def row(sync: int, replica: int, *, healed: bool = False) -> dict[str, Any]:
        digests = dict.fromkeys(("start", "before", "after"), "0" * 64)
        rest = dict.fromkeys(("tokens", "sequences", "quorum", "drift", "bytes", "seconds"), 0)
        steps = {"first_step": 2 * sync - 1, "last_step": 2 * sync, "process": 1, "participants": 2}
        return {"sync": sync, "replica": replica, "healed": healed} | digests | rest | steps

    single = rollout_evidence(tmp_path, "grpo")
    assert _sharers(single, [1, 3]) == {1: 1, 3: 1}
    rows = [row(1, 0), row(1, 1), row(2, 0), row(2, 1, healed=True)]
    shared = replace(
        single,
        parameters=single.parameters | {"distributed": {"replicas": 2, "sync_every": 2}},
        outputs=single.outputs | {"replicas": write_lines(tmp_path / "replicas.jsonl", rows)},
    )
    assert _sharers(shared, [1, 2, 3]) == {1: 2, 2: 2, 3: 1}


def test_every_check_has_a_flaw() -> None:
    known = {check.id for check in CHECKS if check.id.startswith("rollouts.")} | {"witness.rollouts"}
    # Nearness has no limit that a single prompt could pass here; the function is that of dpo.nearest.
    assert known - {flaw[1] for flaw in FLAWS} == {"rollouts.nearest"}


def test_a_rise_of_the_verified_reward_alone_is_no_hacking(tmp_path: Path) -> None:
    """The negative control of the planted case: the same rise of length next to more right answers."""
    weights = {"verified": 1.0, "length": 0.5}
    answers = rollouts(tokens=lambda at: 9 + round(4 * at), weights=weights)
    result = results_of(rollout_evidence(tmp_path, answers=answers, rewards=weights))["rollouts.hacking"]
    assert result.status == "PASS" and "right answers explain" in result.detail
