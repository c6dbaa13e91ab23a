"""Every metric of every kind is followed to lines, and the lines give its value wherever it counts lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reviews.audit.metric_lines import parts_of
from reviews.comparison.transfer import TRANSFER_METRICS
from reviews.evidence.evidence import Evidence
from reviews.gate.measurer import measure
from specs.stages.metric_catalog import METRICS, metrics_of
from specs.stages.registry import STAGE_KINDS
from testing.factories.benchmark_evidence import benchmark_evidence, lm_eval_evidence
from testing.factories.critic_evidence import JUDGED, candidates, chains, critic_evidence
from testing.factories.evaluation_evidence import (
    choice_rows,
    choose_evidence,
    compare_evidence,
    conversation_rows,
    converse_evidence,
    perplexity_evidence,
)
from testing.factories.evidence_on_disk import N, answers, evidence_of, samples
from testing.factories.preference_evidence import dpo_evidence
from testing.factories.programs_evidence import code_evidence, code_row, problems, solution_of
from testing.factories.rollout_evidence import rollout_evidence
from testing.factories.sampled_evidence import EACH, sampled_arms
from testing.factories.text_evidence import ANSWERS, TEXTS, guard_rows, instruct_rows, respond_rows, text_evidence
from testing.factories.trace_evidence import trace_evidence
from testing.factories.transfer_evidence import with_transfer
from testing.fixtures.sandbox import WHY_UNAVAILABLE
from tests.stages.critique import test_verified_pairs
from tests.stages.finetuning.test_validation import kept_rows, validated
from tests.stages.packaging.test_bench import bench_evidence


def turning(place: int) -> tuple[float, float]:
    """Good, good with little margin, turned by the labels, bad."""
    return ((2.0, 1.5), (0.3, 0.2), (1.5, -1.2), (-2.0, -1.5))[place % 4]


def erring(place: int) -> tuple[float, float]:
    """Right but for every fourth item, where the labels turn the verdict."""
    right = 2.0 if place % 2 == 0 else -2.0
    return (right, -right) if place % 4 == 2 else (right, right)


def _guard(folder: Path) -> Evidence:
    rows = guard_rows(bare=2, templated=8, control=7, control_bare=3)
    rows[1]["template_ids"] = [1]
    return text_evidence(folder, "base_model_check", rows)


def _respond(folder: Path) -> Evidence:
    same = f" {ANSWERS[1]}"
    broken = {"raw_4": f"{ANSWERS[4]} ###", "raw_5": " very" * 120, "finish_5": "length"}
    rows = respond_rows("completion", raw_0=same, raw_1=same, raw_2=same, **broken)
    return text_evidence(folder, "sample_responses", rows)


def _instruct(folder: Path) -> Evidence:
    rows = instruct_rows("completion", *TEXTS[:2], "More examples of instructions", TEXTS[0], *TEXTS[4:])
    rows[1]["finish"] = "length"
    rows.insert(2, rows[1] | {"call": 1, "raw": ""})
    rows[4]["raw"] = "another"
    return text_evidence(folder, "self_instruct", rows)


def _converse(folder: Path) -> Evidence:
    rows = conversation_rows(times=8)
    cut = rows[3].turns[0].model_copy(update={"truncated": True})
    rows[3] = rows[3].model_copy(update={"turns": (cut, *rows[3].turns[1:])})
    # Written in another order than the items': lines are those of the file.
    return converse_evidence(folder, list(reversed(rows)))


def _revise(folder: Path) -> Evidence:
    changed = {1: "", 2: "I'm sorry, I cannot help with that.", 4: "I'm sorry, I cannot help with that."}
    rows = chains(change=lambda place, number: changed.get(place, f"A better line {place} on round {number}."))
    cut = rows[5].rounds[0].model_copy(update={"critique_finish": "length"})
    rows[5] = rows[5].model_copy(update={"rounds": (cut, *rows[5].rounds[1:])})
    return critic_evidence(folder, "revise", stage=JUDGED, rows=rows, signed=turning, labels=erring)


def _prefer(folder: Path) -> Evidence:
    rows = candidates()
    rows[2] = rows[2].model_copy(update={"finish": "length"})
    return critic_evidence(folder, "best_of_n", rows=rows, labels=erring)


def _write_programs(folder: Path) -> Evidence:
    items = problems()
    rows = [code_row(item, solution_of(item) if place else "no code") for place, item in enumerate(items)]
    return code_evidence(folder, rows)


MAKE: dict[str, Callable[[Path], Evidence]] = {
    "base_model_check": _guard,
    "self_instruct": _instruct,
    "sample_responses": _respond,
    "critique_instructions": lambda folder: critic_evidence(
        folder, "critique_instructions", signed=turning, labels=erring
    ),
    "critique_responses": lambda folder: critic_evidence(folder, "critique_responses", signed=turning, labels=erring),
    "revise": _revise,
    "best_of_n": _prefer,
    "best_of_n_verified": test_verified_pairs.evidence,
    "generate": lambda folder: evidence_of(folder, "sample", samples()),
    "sft": lambda folder: validated(folder, kept_rows()),
    "dpo": dpo_evidence,
    "grpo": rollout_evidence,
    "sdpo": lambda folder: rollout_evidence(folder, "sdpo"),
    "composer": lambda folder: rollout_evidence(folder, "composer"),
    "evaluate": lambda folder: evidence_of(folder, "tuned", answers([n % 3 > 0 for n in range(N)])),
    "perplexity": perplexity_evidence,
    "multiple_choice": lambda folder: choose_evidence(
        folder, choice_rows([(1.0, 9.0), (1.0, 9.0), (9.0, 1.0), (2.0, 2.0)])
    ),
    "pairwise_judge": lambda folder: compare_evidence(
        folder,
        ["candidate", "candidate", "reference", "first", "last"],
        ["candidate", "reference", "tie", "candidate"],
        ["candidate", "reference", "first", "reference"],
    ),
    "multi_turn": _converse,
    "inspect": benchmark_evidence,
    "lm_eval": lm_eval_evidence,
    "code_eval": _write_programs,
    "bench": bench_evidence,
    "package": lambda folder: evidence_of(folder, "ship"),
    "replay_traces": trace_evidence,
}

OF_SOME = {
    *("sentinels_followed", "templated_followed", "control_followed", "control_bare_followed", "sentences_completed"),
    *("instruct_token_limit_rate", "empty_calls_rate", "instruct_repeatable", "instruct_seed_effect"),
    *("response_near_rate", "response_residue", "lowest_kind_pass_rate", "instruct_leak_rate", "instruct_repeat_rate"),
    *("duplicate_rate", "grpo_first_verified", "grpo_last_verified", "composer_first_verified"),
    *("composer_last_verified", "sdpo_first_verified", "sdpo_last_verified"),
}
"""Their population is not every line: it is the last part."""
WITHOUT = {"response_uniqueness"}
"""The first part of these is the repeats, which are what they do not count."""
NOT_BY_LINES = {
    # Of instructions, of which a call gives several; of turns, of which a conversation has several.
    *("instructions_kept_rate", "instruction_uniqueness", "instruction_near_rate", "cross_shard_rate", "meta_rate"),
    *("turn_pass_rate", "turn_truncation_rate"),
    # Halves, differences, and what a regression gives.
    *(
        "trace_agreement",
        "trace_like_teacher",
        "win_rate",
        "win_rate_controlled",
        "pair_judge_first_rate",
        "judge_longer",
        "accuracy_gain",
        "chance_rate",
    ),
}
COUNTED = {
    *("samples", "items", "steps", "probes", "gained", "lost", "sentinels", "encoding_faults", "instruct_calls"),
    *("instructions_kept", "responses", "responses_kept", "dpo_steps", "validation_pairs", "chains", "candidates"),
    *("instructions_judged", "instructions_accepted", "responses_judged", "responses_accepted", "responses_labelled"),
    *("instructions_labelled", "revision_pairs", "pair_comparisons", "pair_judge_labelled", "pairs"),
    *("pairs_for_validation", "verified_samples", "verified_pairs", "verified_pairs_for_validation", "texts"),
    *("sdpo_steps", "sdpo_rollouts", "sdpo_kept_prompts"),
    *("grpo_steps", "grpo_rollouts", "grpo_kept_prompts", "composer_steps", "composer_rollouts"),
    *("composer_kept_prompts", "questions", "duels", "conversations", "response_multiplicity", "code_answers"),
    *("bench_rounds", "trace_states", "trace_answers", "trace_pairs"),
}
"""As many as the first part has lines."""


@pytest.mark.parametrize("kind", MAKE)
def test_every_metric_is_followed_to_lines_that_give_it(tmp_path: Path, kind: str) -> None:
    if kind == "code_eval" and WHY_UNAVAILABLE:
        pytest.skip(f"no sandbox: {WHY_UNAVAILABLE}")
    evidence = MAKE[kind](tmp_path)
    assert evidence.stage.kind == kind
    metrics = measure(evidence).metrics
    # Only of several answers to each item, as in the next test.
    expected = set(metrics_of(kind)) - {"accuracy_at_k"}  # pyright: ignore[reportArgumentType]
    assert expected <= set(metrics)
    for id, metric in metrics.items():
        parts = parts_of(evidence, id)
        assert parts, id
        for part in parts:
            path = evidence.baseline_rows if part.file == "baseline" else evidence.outputs[part.file]
            assert path is not None and part.of == len(path.read_text(encoding="utf-8").splitlines()), (id, part)
            assert list(part.lines) == sorted({n for n in part.lines if 1 <= n <= part.of}), (id, part)
            assert part.what
        first, last = len(parts[0].lines), len(parts[-1].lines)
        if id in COUNTED:
            assert metric.value == first, id
        elif id in WITHOUT:
            assert metric.value == pytest.approx(1 - first / last), id
        elif METRICS[id].unit == "fraction" and id not in NOT_BY_LINES:
            of = last if id in OF_SOME else parts[0].of
            assert metric.value == pytest.approx(first / of), (id, parts)


def test_pass_at_k_is_followed_to_the_right_answers(tmp_path: Path) -> None:
    evidence = sampled_arms(tmp_path, [1] * N, [2] * N, f"temperature: 0.7, samples_per_item: {EACH}, k: 2")
    assert "accuracy_at_k" in measure(evidence).metrics
    (part,) = parts_of(evidence, "accuracy_at_k")
    assert (part.what, len(part.lines), part.of) == ("the verifier accepts it", 2 * N, EACH * N)


@pytest.mark.parametrize("metric", TRANSFER_METRICS)
def test_the_gain_on_a_second_split_is_followed_to_the_rows_of_its_two_stages(tmp_path: Path, metric: str) -> None:
    before, after = [True, *[False] * (N - 1)], [False, True, True, *[False] * (N - 3)]
    evidence = evidence_of(tmp_path, "tuned")
    parts = parts_of(with_transfer(evidence, before, after), metric)
    assert [(part.file, part.lines) for part in parts] == [
        *(("other_tuned", (2, 3)), ("other_base", (2, 3))),
        *(("other_tuned", (1,)), ("other_base", (1,))),
    ]
    assert all(part.of == N for part in parts) and parts[0].what.startswith("gained")
    assert parts_of(evidence, metric) == ()


def test_kinds_with_metrics_are_all_here() -> None:
    # An export is measured from a session (tests/sessions/shipping/test_exported.py).
    missing = {kind for kind in STAGE_KINDS if metrics_of(kind)} ^ (set(MAKE) | {"export"})
    assert not missing, f"MAKE has to make evidence of exactly the kinds with metrics: {sorted(missing)}"
    known = {id for names in (OF_SOME, WITHOUT, NOT_BY_LINES, COUNTED) for id in names}
    assert known <= set(METRICS)
