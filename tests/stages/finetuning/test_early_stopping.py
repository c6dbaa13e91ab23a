"""A registered rule ends a training, saves the best weights, and is decided again by the gate."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reviews.checks.definition import apply
from reviews.stages.finetuning import replay_checks
from reviews.stages.finetuning.replay_checks import differs
from specs.stages.base.witness import REPLAYED
from specs.stages.finetuning.parameters import DpoParameters, ExampleStopping, PairStopping, SftParameters, StopRule
from specs.stages.finetuning.rows import PairReading, ValidationRow
from specs.system.digests import digest_file, digest_tree
from testing.factories.evidence_on_disk import write_rows
from testing.factories.judged_evidence import results_of
from testing.fixtures.needed import need
from testing.fixtures.simulated_kill import SimulatedKill
from testing.fixtures.tiny_training import tiny_checkpoint, train
from tests.stages.finetuning.test_training import ADAPTER, dpo_job, judged_evidence, sft_job
from tests.stages.finetuning.test_training import quiet_warnings as quiet_warnings
from tests.training.jobs.test_replay import replayed_by
from training.jobs.job import Job, StageResult
from training.rules.finetuning.validation_split import (
    StopDecision,
    decide_stop,
    example_values,
    measured_after,
    pair_values,
)

need("torch", "trl", "peft")
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]

RULE: dict[str, Any] = {"every_steps": 2, "patience": 2}
Make = Callable[..., Job]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


def stopping_job(make: Make, folder: Path, model: Path, **changes: Any) -> Job:
    """Return a job whose rate is so high that what is kept out soon gets worse."""
    arguments: dict[str, Any] = {"validation_share": 0.34, "epochs": 6, "learning_rate": 0.02, "warmup_ratio": 0.0}
    return make(folder, model, **arguments | {"scheduler": "constant", "early_stopping": RULE} | changes)


def rows_of(job: Job, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.out / f"{name}.jsonl").read_text().splitlines()]


def decide_with_transformers(values: dict[int, float], rule: StopRule) -> StopDecision:
    """Return what transformers' own callback and trainer decide of the same values."""
    from transformers import EarlyStoppingCallback, Trainer, TrainerControl, TrainerState, TrainingArguments

    lower = rule.metric == "validation_loss"
    args = TrainingArguments(eval_strategy="steps", metric_for_best_model="eval_x", greater_is_better=not lower,
                             load_best_model_at_end=True, use_cpu=True, report_to="none")  # fmt: skip
    state, control = TrainerState(), TrainerControl()
    callback = EarlyStoppingCallback(rule.patience, rule.min_improvement)
    trainer: Any = SimpleNamespace(args=args, state=state)
    for step, value in values.items():
        state.global_step = step
        callback.on_evaluate(args, state, control, {"eval_x": value})
        decide: Any = Trainer._determine_best_metric  # pyright: ignore[reportPrivateUsage]
        decide(trainer, {"eval_x": value}, None)
        if control.should_training_stop:
            return StopDecision(state.best_global_step, step)
    return StopDecision(state.best_global_step, None)


@pytest.mark.parametrize("metric", ["validation_loss", "validation_token_accuracy"])
def test_the_rule_decides_as_transformers_does(metric: Any) -> None:
    generator = random.Random(metric)
    ended = 0
    for _ in range(300):
        rule = ExampleStopping(every_steps=3, patience=generator.randint(1, 4), metric=metric,
                               min_improvement=generator.choice((0.0, 0.05, 0.3)))  # fmt: skip
        values = {3 * at: round(generator.uniform(0.2, 2), generator.choice((1, 6))) for at in range(1, 15)}
        expected = decide_with_transformers(values, rule)
        assert decide_stop(values, rule) == expected
        # What was read before the first step is no candidate.
        assert decide_stop({0: 0.0 if metric == "validation_loss" else 9.0} | values, rule) == expected
        ended += expected.last is not None
    assert 0 < ended < 300
    assert decide_stop({0: 1.0}, ExampleStopping(every_steps=3)) == StopDecision(None, None)


def test_values_are_those_that_numpy_computes() -> None:
    import numpy as np

    generator = random.Random(4)
    rows = [ValidationRow(step=step, example=line, group="g", tokens=(tokens := generator.randint(1, 9)),
                          correct=generator.randint(0, tokens), log_probability=-generator.random() * tokens)
            for step in (0, 2) for line in range(5)]  # fmt: skip
    table = np.array([(row.step, row.tokens, row.correct, row.log_probability) for row in rows])
    for step in (0, 2):
        _, tokens, correct, logs = table[table[:, 0] == step].T
        assert example_values(rows, ExampleStopping(every_steps=2))[step] == pytest.approx(-logs.sum() / tokens.sum())
        accuracy = example_values(rows, ExampleStopping(every_steps=2, metric="validation_token_accuracy"))[step]
        assert accuracy == pytest.approx(correct.sum() / tokens.sum())
    pairs = [PairReading(step=step, pair=line, chosen=-generator.random(), rejected=-generator.random())
             for step in (0, 2) for line in range(5)]  # fmt: skip
    sides = np.array([row.chosen - row.rejected for row in pairs]).reshape(2, 5)
    assert pair_values(pairs, PairStopping(every_steps=2))[2] == pytest.approx((sides[1] - sides[0]).mean())
    share = pair_values(pairs, PairStopping(every_steps=2, metric="validation_accuracy"))
    assert share == {0: 0.0, 2: float((sides[1] > sides[0]).mean())}
    with pytest.raises(ValueError, match="pair 1 was not read before the first step"):
        pair_values(pairs[:1] + pairs[6:], PairStopping(every_steps=2))


def test_a_rule_needs_what_it_reads() -> None:
    with pytest.raises(ValueError, match="early_stopping reads examples that are kept out: give validation_share"):
        SftParameters.model_validate({"early_stopping": RULE})
    with pytest.raises(ValueError, match="early_stopping is for one process"):
        DpoParameters.model_validate({"early_stopping": RULE, "distributed": {"replicas": 2, "sync_every": 4}})
    with pytest.raises(ValueError, match="metric"):
        DpoParameters.model_validate({"early_stopping": RULE | {"metric": "validation_loss"}})
    assert "early_stopping" not in SftParameters().model_dump()
    assert measured_after(7, 3) == (0, 3, 6, 7) and measured_after(6, 3) == (0, 3, 6)


CASES: dict[str, tuple[Make, dict[str, Any]]] = {
    "sft": (sft_job, {}),
    "adapters": (
        sft_job,
        ADAPTER | {"snapshot_steps": 2, "early_stopping": RULE | {"metric": "validation_token_accuracy"}},
    ),
    "dpo": (dpo_job, {"snapshot_steps": 2, "early_stopping": RULE | {"metric": "validation_accuracy"}}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_training_ends_by_its_rule_and_saves_the_best_weights(tmp_path: Path, model: Path, case: str) -> None:
    make, changes = CASES[case]
    job = stopping_job(make, tmp_path, model, **changes)
    done = train(job)
    rows, rule = rows_of(job, "rows"), job.parameters.early_stopping
    if isinstance(rule, PairStopping):
        values = pair_values([PairReading.model_validate(row) for row in rows_of(job, "validation")], rule)
    else:
        values = example_values([ValidationRow.model_validate(row) for row in rows_of(job, "validation")], rule)
    decision = decide_with_transformers(dict(list(values.items())[1:]), rule)
    assert decision == (done.effective["saved_step"], len(rows)), values
    assert decision.best is not None and decision.best < len(rows) < done.effective["planned_steps"]
    results = results_of(judged_evidence(tmp_path, job, done))
    assert {
        id: results[id].status
        for id in ("training.steps", "training.stop", "training.moved", "training.schedule", "training.path")
    } == dict.fromkeys(
        ("training.steps", "training.stop", "training.moved", "training.schedule", "training.path"), "PASS"
    ), results
    text = results["training.stop"].detail
    assert f"is best after step {decision.best}" in text and f"ended after step {len(rows)}: " in text
    assert "planned steps were not taken, about" in text and "USD of the forecast" in text
    # The witness comes to the same steps, and to the saved weights where it reaches their step.
    replayed, facts = replayed_by(job, done.effective)
    typed = [job_row(job, row) for row in rows]
    assert [why for row in replayed if (why := differs(typed, row, REPLAYED["float32"]))] == []
    assert list(facts["saved"]) == rows[decision.best - 1]["sketch"]
    assert facts["end_apart"] < 1e-6 if "snapshot_steps" in changes else "end_apart" not in facts
    if case != "dpo":
        for line, _, after, correct in facts["kept"]:
            (row,) = (
                row for row in rows_of(job, "validation") if (row["step"], row["example"]) == (decision.best, line)
            )
            assert (row["log_probability"], row["correct"]) == (pytest.approx(after, abs=1e-3), correct)


def job_row(job: Job, row: dict[str, Any]) -> Any:
    from specs.stages.registry import STAGE_KINDS

    return STAGE_KINDS[job.order.kind].rows["rows"].model_validate(row)


@pytest.mark.parametrize(
    ("make", "changes", "after"),
    [
        (sft_job, {}, 3),
        pytest.param(sft_job, {}, 5, marks=pytest.mark.slow),
        pytest.param(sft_job, {}, 6, marks=pytest.mark.slow),
        pytest.param(dpo_job, ADAPTER | {"early_stopping": RULE}, 5, marks=pytest.mark.slow),
        (dpo_job, ADAPTER | {"early_stopping": RULE}, 6),
    ],
)
def test_a_training_that_is_killed_comes_to_the_same_decision(
    tmp_path: Path, model: Path, make: Make, changes: dict[str, Any], after: int
) -> None:
    """Killed between two readings, and while the step of one is saved: another attempt takes the newest step over."""
    whole = stopping_job(make, tmp_path / "whole", model, **changes)
    decided = train(whole).effective["saved_step"]
    job = stopping_job(make, tmp_path / "killed", model, **changes)

    def progress(step: int, *_: Any, **__: Any) -> None:
        if step == after:
            raise SimulatedKill

    job.progress = progress  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(SimulatedKill):
        train(job)
    done = train(Job(job.folder, job.order))
    # Adapters leave a snapshot, which is a saved step, after each of so few steps.
    saved = after - 1 if changes else (after - 1) // 2 * 2
    assert done.facts["resumed_from"] == saved and done.effective["saved_step"] == decided
    for path in whole.out.glob("*.jsonl"):
        assert digest_file(job.out / path.name) == digest_file(path), path.name
    assert digest_tree(job.out / "checkpoint") == digest_tree(whole.out / "checkpoint")


def flawed(folder: Path, model: Path, flaw: Callable[[Job, StageResult], StageResult | None]) -> dict[str, str]:
    """Return what the gate says of a training that did something else than its rule says."""
    job = stopping_job(sft_job, folder, model)
    done = train(job)
    results = results_of(judged_evidence(folder, job, flaw(job, done) or done))
    return {id: f"{result.status}: {result.detail}" for id, result in results.items()}


def _other_step(_: Job, done: StageResult) -> StageResult:
    return replace(done, effective=done.effective | {"saved_step": done.effective["steps"]})


def _better_end(job: Job, _: StageResult) -> None:
    """State a last reading that is better than all, which the saved weights do not have."""
    rows = rows_of(job, "validation")
    last = max(row["step"] for row in rows)
    write_rows(job.out / "validation.jsonl",
               [row | ({"log_probability": -0.01} if row["step"] == last else {}) for row in rows])  # fmt: skip


def _earlier(job: Job, done: StageResult) -> StageResult:
    """End one reading earlier than the rule does."""
    last = len(rows_of(job, "rows")) - 2
    for name in ("rows", "validation"):
        write_rows(job.out / f"{name}.jsonl", [row for row in rows_of(job, name) if row["step"] <= last])
    return replace(done, effective=done.effective | {"steps": last})


def _without_a_reading(job: Job, _: StageResult) -> None:
    rows = rows_of(job, "validation")
    write_rows(job.out / "validation.jsonl", [row for row in rows if row["step"] != 2])


@pytest.mark.parametrize(
    ("flaw", "check", "text"),
    [
        (_other_step, "training.stop", "were saved, the rule saves step"),
        (_better_end, "training.stop", "steps were done, the rule ends the training after step"),
        (_earlier, "training.steps", "the registered rule ends it after step 12"),
        (_without_a_reading, "training.validation", "FAIL: examples were read after steps 0, 4"),
    ],
)
def test_what_the_rule_does_not_say_closes_the_gate(
    tmp_path: Path, model: Path, flaw: Any, check: str, text: str
) -> None:
    results = flawed(tmp_path, model, flaw)
    assert results[check].startswith("FAIL") and text in results[check], results[check]


def test_a_training_that_ends_without_a_rule_is_refused_as_before(tmp_path: Path, model: Path) -> None:
    job = sft_job(tmp_path, model)
    done = train(job)
    rows = rows_of(job, "rows")
    write_rows(job.out / "rows.jsonl", rows[:-1])
    shorter = replace(done, effective=done.effective | {"steps": len(rows) - 1})
    results = results_of(judged_evidence(tmp_path, job, shorter))
    assert results["training.steps"].status == "FAIL" and results["training.stop"].status == "NOT_APPLICABLE"


def test_weights_of_the_last_step_are_not_those_of_the_rule(tmp_path: Path, model: Path) -> None:
    """A witness that reads a sketch of the last step's weights closes the gate."""
    from testing.factories.evidence_on_disk import evidence_of

    job = stopping_job(sft_job, tmp_path, model)
    done = train(job)
    evidence = judged_evidence(tmp_path, job, done)
    rows, (check,) = rows_of(job, "rows"), [check for check in replay_checks.CHECKS if check.id == "witness.weights"]
    (tmp_path / "other").mkdir()
    witness = evidence_of(tmp_path / "other", "train").witness
    assert witness is not None and witness.manifest is not None
    read = {(row["step"], row["example"]): row for row in rows_of(job, "validation")}
    scores = [
        [line, read[0, line]["log_probability"], row["log_probability"], row["correct"]]
        for (step, line), row in read.items()
        if step == done.effective["saved_step"]
    ]
    outcomes: dict[int, str] = {}
    for step in (done.effective["saved_step"], len(rows)):
        facts: dict[str, Any] = {
            "saved": rows[step - 1]["sketch"],
            "files": [],
            "read_loss": 0.1,
            "read": 4,
            "kept": scores,
        }
        manifest = witness.manifest.model_copy(update={"facts": facts})
        outcomes[step] = apply(check, replace(evidence, witness=witness._replace(manifest=manifest)), None).status
    assert list(outcomes.values()) == ["PASS", "FAIL"]
