"""Limits of `health.*` on equal, short and near answers follow from what the registered right answers look like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import CheckOutcome
from reviews.checks.remedies import REMEDIES, remedy_of
from reviews.evidence.evidence import Evidence
from reviews.evidence.right_answers import RightAnswers, relative_limit, right_answers, right_targets
from reviews.evidence.weight_lineage import is_trained
from reviews.gate.check_list import CHECKS
from reviews.stages.evaluation.answer_checks import CHECKS as ANSWER_CHECKS
from reviews.stages.evaluation.label_checks import common_answer
from sessions.pages.result import _form  # pyright: ignore[reportPrivateUsage]
from specs.loading.loading import load_spec
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import Item
from specs.stages.evaluation.kinds import MULTI_TURN
from specs.stages.evaluation.rows import ConversationRow, ConversationTurn
from specs.system.digests import digest_bytes
from testing.factories import benchmark_evidence
from testing.factories.evaluation_evidence import evidence_with
from testing.factories.evidence_on_disk import evidence_of, resolved_spec, write_rows
from testing.factories.judged_evidence import results_of
from testing.factories.spec_files import write_spec
from testing.fixtures.sandbox import needs_sandbox

TWO, THREE = ("positive", "negative"), ("A", "B", "C")
SHARES = [check for check in ANSWER_CHECKS if any(limit.key.startswith("thresholds.") for limit in check.limits)]
TRAINING = re.compile(r"\bsteps\b|learning_rate|\bepochs\b|training data|\btrain")


def items_with(answers: Sequence[str]) -> tuple[Item, ...]:
    return tuple(
        Item(
            id=f"i{place}", group=f"g{place}", kind="k", prompt=f"Review {place}: fine?", constraint={"answer": answer}
        )
        for place, answer in enumerate(answers)
    )


def evaluated(
    folder: Path, stage: str, right: Sequence[str], outputs: Sequence[str], task: str = "exact_answer"
) -> Evidence:
    """Return evidence of an evaluation of a task whose items name their answers."""
    items = items_with(right)
    folder.mkdir(exist_ok=True)
    evidence = evidence_of(folder, stage)
    rows: list[dict[str, Any]] = [
        {"item": item.id, "prompt_tokens": 9, "output": output, "output_tokens": 2, "truncated": False}
        for item, output in zip(items, outputs, strict=True)
    ]
    spec = evidence.resolved.spec.model_copy(update={"task": task, "thresholds": Thresholds()})
    return replace(
        evidence,
        heldout=items,
        resolved=evidence.resolved.model_copy(update={"spec": spec}),
        outputs={"rows": write_rows(folder / "rows.jsonl", rows)},
        baseline_rows=evidence.baseline_rows and write_rows(folder / "before.jsonl", rows),
    )


def health_of(evidence: Evidence) -> dict[str, Any]:
    return {id: result for id, result in results_of(evidence).items() if id.startswith("health.")}


@pytest.mark.parametrize("labels", [TWO, THREE], ids=len)
@pytest.mark.parametrize("stage", ["base", "tuned"])
def test_no_share_of_health_refuses_a_classifier_that_is_always_right(
    tmp_path: Path, stage: str, labels: tuple[str, ...]
) -> None:
    right = [labels[place % len(labels)] for place in range(40)]
    statuses = {id: result.status for id, result in health_of(evaluated(tmp_path, stage, right, right)).items()}
    assert {check.id for check in SHARES} <= statuses.keys(), "every share is among them"
    assert set(statuses.values()) <= {"PASS", "NOT_APPLICABLE"}, statuses


def conversing(folder: Path, right: Sequence[str], outputs: Sequence[str]) -> Evidence:
    """Return evidence of conversations whose second answer must hold a label."""
    question = "In a word, please."
    items = tuple(
        item.model_copy(update={"constraint": {"turn_2": question, "require_2": label}})
        for item, label in zip(items_with(right), right, strict=True)
    )
    rows = [
        ConversationRow(
            item=item.id, turns=tuple(answered_turn(*turn) for turn in ((item.prompt, "Yes."), (question, text)))
        )
        for item, text in zip(items, outputs, strict=True)
    ]
    stage = MULTI_TURN.stage(name="talk", kind="multi_turn", inputs={"model": "model", "items": "heldout"})
    return evidence_with(folder, stage, items, rows)


def answered_turn(user: str, output: str) -> ConversationTurn:
    digest = digest_bytes(user.encode())
    return ConversationTurn(
        user=user, output=output, prompt_tokens=9, prompt_digest=digest, output_tokens=4, truncated=False
    )


def asked_elsewhere(folder: Path, kind: str, right: Sequence[str], outputs: Sequence[str]) -> Evidence:
    """Return evidence of a stage that is not ``evaluate`` and that has shares of health too."""
    if kind == "multi_turn":
        return conversing(folder, right, outputs)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(benchmark_evidence, "ANSWERS", tuple(right))
        patched.setattr(benchmark_evidence, "RIGHT", len(right))
        patched.setattr(benchmark_evidence, "write_answer", outputs.__getitem__)
        if kind == "inspect":
            return benchmark_evidence.benchmark_evidence(folder)
        return benchmark_evidence.lm_eval_evidence(folder, tuple(range(len(right))))


@pytest.mark.parametrize("kind", ["multi_turn", "inspect", "lm_eval"])
def test_no_share_of_health_refuses_a_classifier_of_another_kind(tmp_path: Path, kind: str) -> None:
    right = [TWO[place % 2] for place in range(12)]
    statuses = {
        name: {
            id: result.status
            for id, result in health_of(asked_elsewhere(tmp_path / name, kind, right, outputs)).items()
        }
        for name, outputs in (("right", right), ("one label", ["positive"] * 12))
    }
    assert {check.id for check in SHARES if kind in check.kind_names()} <= statuses["right"].keys()
    assert set(statuses["right"].values()) <= {"PASS", "NOT_APPLICABLE"}, statuses
    assert statuses["one label"]["health.collapse"] == "WARN", "the negative control"


def test_one_label_for_everything_closes_the_gate_of_a_trained_model_and_warns_of_an_untrained(tmp_path: Path) -> None:
    right = [TWO[place % 2] for place in range(40)]
    results = {
        stage: health_of(evaluated(tmp_path / stage, stage, right, ["positive"] * 40))["health.collapse"]
        for stage in ("base", "tuned")
    }
    assert results["tuned"].status == "FAIL" and "collapsed" in results["tuned"].detail
    assert results["base"].status == "WARN" and "collapsed" not in results["base"].detail
    assert "the untrained model" in results["base"].detail


def test_distinct_right_answers_leave_the_limit_where_it_was(tmp_path: Path) -> None:
    right = [f"word{place}" for place in range(40)]
    outputs = ["word0"] * 10 + right[10:]
    assert health_of(evaluated(tmp_path, "tuned", right, outputs))["health.collapse"].status == "FAIL"


@pytest.mark.parametrize(
    ("threshold", "share", "limit"),
    [
        (0.2, Fraction(0), Fraction(1, 5)),
        (0.2, Fraction(1, 2), Fraction(7, 10)),
        (0.2, Fraction(1, 4), Fraction(9, 20)),
        (0.2, Fraction(4, 5), Fraction(9, 10)),
        (0.9, Fraction(1, 2), Fraction(9, 10)),
        (0.2, Fraction(99, 100), Fraction(199, 200)),
    ],
)
def test_a_limit_lies_above_the_share_of_right_answers_and_below_one(
    threshold: float, share: Fraction, limit: Fraction
) -> None:
    assert relative_limit(threshold, share) == limit < 1


VERIFY = "def verify(item, answer):\n    return {}\n"


@needs_sandbox
@pytest.mark.parametrize(
    ("verdict", "field", "common"),
    [
        ("answer.strip().lower() == item.constraint['label']", TWO, Fraction(1, 2)),
        ("len(answer) < 100", TWO, Fraction(0)),
        ("answer == item.constraint['label']", tuple(f"w{place}" for place in range(40)), Fraction(0)),
        ("answer.startswith('{') and answer.endswith('}')", TWO, Fraction(0)),
    ],
    ids=["labels", "too kind", "distinct", "form"],
)
def test_a_verifier_of_the_users_own_is_asked_which_labels_are_right(
    tmp_path: Path, verdict: str, field: tuple[str, ...], common: Fraction
) -> None:
    spec = own_task(tmp_path, VERIFY.format(verdict))
    items = [
        Item(id=f"i{place}", group="g", kind="k", prompt="p", constraint={"label": field[place % len(field)]})
        for place in range(40)
    ]
    assert right_answers(spec, spec.task, items).common == common


def own_task(folder: Path, verifier: str) -> Any:
    (folder / "verify.py").write_text(verifier, encoding="utf-8")
    changes = (("task: format_instructions", "task: ./verify.py"),)
    return load_spec(
        write_spec(folder, *changes, ("parameters: {temperature", "parameters: {worked_example: false, temperature"))
    ).spec


@pytest.mark.parametrize("task", ["format_instructions", "instruction_following"])
def test_a_task_of_forms_has_no_labels(tmp_path: Path, task: str) -> None:
    spec = resolved_spec(tmp_path).spec
    assert right_answers(spec, task, items_with(["positive"] * 20)) == RightAnswers()


def test_targets_of_a_benchmark_are_right_answers(tmp_path: Path) -> None:
    spec = resolved_spec(tmp_path).spec
    chosen = {"choice_1": "red", "choice_2": "blue"}
    items = [
        Item(id=f"i{place}", group="g", kind="k", prompt="p", constraint=chosen | {"answer": 1 + place % 2})
        for place in range(10)
    ]
    assert right_targets(spec, items).common == Fraction(1, 2)


def common_of(folder: Path, answers: Sequence[str]) -> CheckOutcome:
    spec = resolved_spec(folder).spec.model_copy(update={"task": "exact_answer"})
    return common_answer(spec, items_with(answers), {})


def test_the_design_gate_states_the_limit_before_anything_is_spent(tmp_path: Path) -> None:
    detail = common_of(tmp_path, [TWO[place % 2] for place in range(40)]).detail
    assert "up to 28 of 40 answers may be equal (health.collapse)" in detail


@needs_sandbox
def test_a_label_that_is_taught_and_that_no_item_names_stops_the_design(tmp_path: Path) -> None:
    spec = own_task(tmp_path, VERIFY.format("item.id[1] in '02468' and answer == 'even' or answer == 'odd!'"))
    items = [Item(id=f"i{place}", group="g", kind="k", prompt="p", constraint={}) for place in range(10)]
    texts = [(f"train:{place}", "even" if place % 2 else "odd") for place in range(10)]
    refused = common_answer(spec, items, {}, texts)
    assert refused.status == "FAIL" and "known_answers()" in refused.detail and "health.collapse" in refused.detail
    varied = [(name, f"{text} {name}") for name, text in texts]
    assert common_answer(spec, items, {}, varied).status == "NOT_APPLICABLE", "the negative control"


def test_no_remedy_speaks_of_training_where_nothing_was_trained(tmp_path: Path) -> None:
    spec = resolved_spec(tmp_path).spec
    assert [stage.name for stage in spec.stages if is_trained(spec, stage)] == ["train", "tuned", "ship"]
    evaluating = {check.id for check in CHECKS if {"evaluate", "multi_turn"} & set(check.kind_names())}
    evaluating -= {check.id for check in CHECKS if check.only_treatment}
    report = {id: remedy_of(id, trained=False) for id in evaluating & REMEDIES.keys()}
    assert {id: text for id, text in report.items() if TRAINING.search(text.replace("the untrained model", ""))} == {}
    assert TRAINING.search(remedy_of("health.collapse")), "where something was trained, it does"


@needs_sandbox
def test_each_share_of_health_has_a_negative_control(tmp_path: Path) -> None:
    """What is neither right nor varied fails or warns, by each share, where right answers are known, long and few."""
    right = [f"a long right answer number {place % 8} of this very set" for place in range(40)]
    task = own_task(tmp_path, VERIFY.format("answer == item.constraint['answer']")).task
    healthy = evaluated(tmp_path / "right", "tuned", right, right, task)
    assert right_answers(healthy.resolved.spec, task, healthy.heldout) == (40, Fraction(1, 8), 0, Fraction(4, 5))
    assert {result.status for result in health_of(healthy).values()} == {"PASS", "NOT_APPLICABLE"}
    statuses = {}
    for name, outputs in {
        "health.collapse": ["the same sentence over and over again"] * 40,
        "health.empty": [""] * 40,
        "health.labels": [f"Option {place}" for place in range(40)],
        "health.near": [
            f"A bright morning brings the keeper of this old harbour a long letter about word{place}"
            for place in range(40)
        ],
    }.items():
        statuses[name] = health_of(evaluated(tmp_path / name, "tuned", right, outputs, task))[name].status
    assert statuses == {
        "health.collapse": "FAIL",
        "health.empty": "FAIL",
        "health.labels": "FAIL",
        "health.near": "WARN",
    }


def length_check(folder: Path, before: Sequence[str], after: Sequence[str], right: Sequence[str]) -> Any:
    evidence = evaluated(folder, "tuned", right, after)
    assert evidence.baseline_rows is not None
    rows = [
        {"item": item.id, "prompt_tokens": 9, "output": output, "output_tokens": 2, "truncated": False}
        for item, output in zip(evidence.heldout, before, strict=True)
    ]
    write_rows(evidence.baseline_rows, rows)
    return results_of(evidence)["scorer.length"]


def test_a_gain_of_form_alone_is_said_in_the_first_sentence(tmp_path: Path) -> None:
    right = [f"town{place}" for place in range(40)]
    sold = length_check(tmp_path / "form", [f"I would say {word}." for word in right], right, right)
    assert sold.status == "WARN" and sold.rows[0]["gain"] == 0 and "hold the right one" in sold.detail
    headline = _form({"form": sold.rows[0]})
    assert headline.startswith(", with a warning of scorer.length (40 of 40 answers of the baseline")
    honest = length_check(tmp_path / "knowledge", ["I would say Atlantis."] * 40, right, right)
    assert not honest.rows and _form({}) == "" == _form(None), "the negative control"


def test_an_answer_that_names_every_label_does_not_hold_the_right_one(tmp_path: Path) -> None:
    right = [TWO[place % 2] for place in range(40)]
    hedged = length_check(tmp_path, ["positive or negative, who knows"] * 40, right, right)
    assert not hedged.rows and "hold the right one" not in hedged.detail


def test_labels_that_are_sampled_again_and_again_are_no_repeats(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "sample")
    items = items_with([TWO[place % 2] for place in range(20)])
    spec = evidence.resolved.spec.model_copy(update={"task": "exact_answer", "thresholds": Thresholds(copies=3)})

    def sampled(completions: Sequence[str]) -> Evidence:
        rows = [
            item.model_dump(include={"group", "kind", "prompt"})
            | {"item": item.id, "sample": 0, "completion": text, "completion_tokens": 2, "truncated": False}
            for item, text in zip(items, completions, strict=True)
        ]
        return replace(
            evidence,
            data={"prompts": items},
            parameters=evidence.parameters | {"samples_per_prompt": 1, "max_prompts": None},
            resolved=evidence.resolved.model_copy(update={"spec": spec}),
            outputs={"rows": write_rows(tmp_path / "samples.jsonl", rows)},
        )

    results = results_of(sampled([str(item.constraint["answer"]) for item in items]))
    assert {results[id].status for id in ("variety.copies", "variety.near")} == {"PASS"}
    assert results_of(sampled(["positive"] * 20))["variety.copies"].status == "FAIL", "one label alone was kept"
