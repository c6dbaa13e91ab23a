"""Are the rollouts what the rows say: sampled by the weights of their step, worth what they were worth, all of them?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, unless
from reviews.checks.leakage_checks import (
    NEAREST_SOURCE,
    SIMILARITY,
    SOURCE,
    groups_of,
    nearest_pairs,
    overlap_of,
    question_text_of,
    texts_of_pairs,
)
from reviews.checks.witness_checks import coarser_type, witness_of, wrong_rows
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from reviews.stages.finetuning.checks import ONLINE, fact
from reviews.stages.finetuning.online import kept_of, parse_grpo_parameters, prompts_of, steps_of, worths
from specs.stages.base.artifacts import Preference, earlier_turn_texts
from specs.stages.base.metric import MetricSet
from specs.stages.base.witness import FALSE_ALARM, GREEDY_GAP, WitnessRow
from specs.stages.finetuning.distributed import ReplicaRound
from specs.stages.finetuning.online_parameters import ComposerParameters
from specs.stages.finetuning.online_rows import Rollout
from specs.system.errors import EvidenceMissing
from specs.system.text import plural
from training.rules.finetuning.schedules import steps_of as planned_steps

CHECKS = CheckRegistry(ONLINE)
_ROUNDING = 2e-3
"""The rounding of an advantage: rewards are summed in float32 by the trainer."""


@CHECKS.add("rollouts.overlap", "No held-out prompt is trained on", source=SOURCE, limits=SIMILARITY)
def _check_overlap(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare prompts and pairs, and the answers and hints that were learned from."""
    rows = read_rows(evidence.outputs.get("rollouts"), Rollout, "rollouts", may_be_empty=True)
    learned = [(row.item, text) for row in rows for text in (row.text, row.hint) if text]
    return overlap_of([*_texts(evidence), *learned], evidence.reserved_items, evidence.resolved.spec.thresholds)


def _pairs(evidence: Evidence) -> tuple[Preference, ...]:
    path = evidence.inputs.get("pairs")
    return () if path is None else read_rows(path, Preference, "pairs")


def _texts(evidence: Evidence) -> list[tuple[str, str]]:
    items, kept_items = prompts_of(evidence)
    prompts = [
        (item.id, text)
        for item in (items | kept_items).values()
        for text in (item.prompt, question_text_of(item), *earlier_turn_texts(item))
    ]
    return [*prompts, *texts_of_pairs(_pairs(evidence))]


@CHECKS.add(
    "rollouts.nearest",
    "No prompt stands out as near to a held-out prompt",
    source=NEAREST_SOURCE,
    blocking=False,
)
def _check_nearest(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    return nearest_pairs(_texts(evidence), evidence.reserved_items)


@CHECKS.add("rollouts.groups", "Prompts, pairs and held-out items share no group", source="leakage through topics")
def _check_groups(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    items, kept_items = prompts_of(evidence)
    return groups_of([*(items | kept_items).values(), *_pairs(evidence)], evidence.reserved_items)


@CHECKS.add(
    "rollouts.complete",
    "Every planned step was done with all of its answers",
    source="answers left out of the rows; an early stop",
)
def _check_complete(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare steps and answers with what prompts, batch size and epochs imply."""
    grpo_parameters, (items, kept_items) = parse_grpo_parameters(evidence), prompts_of(evidence)
    rows, count = steps_of(evidence), planned_steps(len(items), grpo_parameters.model_dump())
    if [row.step for row in rows] != list(range(1, count + 1)):
        return CheckOutcome(
            "FAIL", f"{len(rows)} steps have a row; {len(items)} prompts take {count}", float(len(rows))
        )
    counts = dict.fromkeys(range(1, count + 1, grpo_parameters.updates), 0)
    for worth in worths(evidence):
        if worth.row.step not in counts:
            return CheckOutcome(
                "FAIL", f"answers of step {worth.row.step}, which takes no new ones", float(worth.row.step)
            )
        counts[worth.row.step] += 1
    answers_per_process = grpo_parameters.batch_size * grpo_parameters.gradient_accumulation
    takes = {step: answers_per_process * sharers for step, sharers in _sharers(evidence, list(counts)).items()}
    short = [{"step": step, "answers": n, "due": takes[step]} for step, n in counts.items() if n != takes[step]]
    if short:
        message = (
            f"{plural(len(short), 'step has', 'steps have')} not the answers that are due, "
            f"{answers_per_process} of each process"
        )
        return CheckOutcome("FAIL", message, float(len(short)), tuple(short))
    if [value.row.item for value in kept_of(evidence)] != list(kept_items):
        return CheckOutcome("FAIL", f"the answers are not to the {len(kept_items)} prompts that were kept out")
    return CheckOutcome(
        "PASS", f"{count} steps on {sum(counts.values())} answers; {len(kept_items)} prompts were kept out", 0.0
    )


def _sharers(evidence: Evidence, steps: Sequence[int]) -> dict[int, int]:
    """Return for each step how many processes answered prompts for it: the replicas whose steps count, or one."""
    if parse_grpo_parameters(evidence).distributed is None:
        return dict.fromkeys(steps, 1)
    rounds = read_rows(evidence.outputs.get("replicas"), ReplicaRound, "rows of replicas")
    return {
        step: sum(
            replica_round.counts and replica_round.first_step <= step <= replica_round.last_step
            for replica_round in rounds
        )
        for step in steps
    }


@CHECKS.add(
    "rollouts.rewards",
    "Judging every answer again gives the same reward",
    source="rewards that the rows do not earn; an advantage against another group",
)
def _check_rewards(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Judge every answer again, and compute rewards, advantages and hints from that."""
    wrong: list[dict[str, Any]] = []
    every = worths(evidence)
    for line, worth in enumerate(every, 1):
        row = worth.row
        same = row.verified == worth.verified and row.rewards.keys() == worth.rewards.keys()
        same = same and (row.hint, row.span) == (worth.hint or (None, None)) and _in_answer(row)
        same = same and all(
            math.isclose(row.rewards[name], value, abs_tol=1e-6) for name, value in worth.rewards.items()
        )
        same = same and math.isclose(row.reward, worth.reward, abs_tol=1e-5)
        if not (same and math.isclose(row.advantage, worth.advantage, rel_tol=_ROUNDING, abs_tol=_ROUNDING)):
            facts = {
                "line": line,
                "step": row.step,
                "item": row.item,
                "reward": row.reward,
                "judged again": worth.reward,
            }
            wrong.append(facts | {"advantage": row.advantage, "due": round(worth.advantage, 6)})
    facts = f"{len(wrong)} of {len(every)} answers are worth something else than their rows say"
    return unless(wrong, facts, f"{len(every)} answers have the rewards of their rows", repairable=False)


def _in_answer(row: Rollout) -> bool:
    """Return whether an answer with a span names its tokens, and an answer without a span names none."""
    if row.span is None or row.span_tokens is None:
        return row.span is row.span_tokens
    return row.span_tokens[0] < row.span_tokens[1] <= len(row.answer_ids)


@CHECKS.add(
    "rollouts.channels",
    "Every channel learned from something, and what it learned reached the weights",
    source="a channel that is zero all the time and 'works'",
)
def _check_channels(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look for channels without rows, and for steps in which rows made no gradient."""
    grpo_parameters, rows = parse_grpo_parameters(evidence), steps_of(evidence)
    weights: dict[str, float] = grpo_parameters.weights.model_dump()
    texts = {name for name, weight in weights.items() if weight}
    if other := [row.step for row in rows if set(row.channels) != texts]:
        return CheckOutcome(
            "FAIL", f"step {other[0]} is not of the channels {', '.join(sorted(texts))}", float(len(other))
        )
    parts: list[str] = []
    for name in sorted(texts):
        channel_steps = [row.channels[name] for row in rows]
        fired = [channel_step for channel_step in channel_steps if channel_step.rows]
        if not fired:
            return CheckOutcome("FAIL", f"channel {name} learned from no row in {len(rows)} steps", 0.0)
        if dead := sum(
            channel_step.grad_norm == 0 or not math.isfinite(channel_step.grad_norm) or not channel_step.tokens
            for channel_step in fired
        ):
            return CheckOutcome("FAIL", f"channel {name}: rows of {dead} steps made no gradient", float(dead))
        parts.append(f"{name} {sum(channel_step.rows for channel_step in fired)} rows in {len(fired)} steps")
    return CheckOutcome("PASS", f"{'; '.join(parts)}, of {len(rows)}", float(len(texts)))


@CHECKS.add(
    "rollouts.pairs",
    "Every pair was read whole",
    source="long agent prompts cut where the answer was, and a loss of nothing",
    kinds=("composer",),
    blocking=False,
)
def _check_pairs(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the pairs that were read with the granted ones; of long ones the beginning of the prompt is cut."""
    rows, grpo_parameters = _pairs(evidence), parse_grpo_parameters(evidence)
    if not rows or not isinstance(grpo_parameters, ComposerParameters):
        return CheckOutcome("NOT_APPLICABLE", "channel dpo has no weight")
    read, cut = fact(evidence, "pairs"), fact(evidence, "pairs_cut")
    left_out, most = len(rows) - read, grpo_parameters.replayed_pairs.max_length
    detail = f"{read:.0f} of {len(rows)} pairs were read"
    if left_out or cut:
        message = (
            f"{detail}; {left_out:.0f} have a response of more than {most} tokens, {cut:.0f} lost some of their prompt"
        )
        return CheckOutcome("WARN", message, left_out + cut)
    return CheckOutcome("PASS", f"{detail}, each within {most} tokens", 0.0)


@CHECKS.add(
    "witness.rollouts",
    "The weights of its step could have written each answer",
    source="answers of another model, or picked after the fact, trained on as the model's own",
    threshold=f"as of witness.answers; drawn at p >= {FALSE_ALARM:g}",
)
def _check_witnessed_rollouts(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare a witness's readings, with the weights it reached by retraining, with the granted stage."""
    witness = witness_of(evidence)
    rows = read_rows(witness.rows, WitnessRow, "witness rows", which=_is_answer)
    grpo_parameters, replayed = parse_grpo_parameters(evidence), {place + 1 for place in witness.challenge.rows}
    every = worths(evidence)
    counts = {place for place, worth in enumerate(every) if worth.row.step in replayed}
    matching_counts = {row.row for row in rows if not row.part}
    if not counts or not matching_counts >= counts:
        raise EvidenceMissing("the witness did not read the answers of the steps that it trained again")
    if (remaining := kept_of(evidence)) and {row.part for row in rows if row.part} != {"before", "after"}:
        raise EvidenceMissing("the witness did not read the answers to prompts that were kept out")
    message = f"{len(matching_counts)} of {len(every)} answers recomputed with the weights of their step"
    wrong = list(wrong_rows(witness.challenge.ended, rows, coarser_type(evidence, GREEDY_GAP)))
    if wrong:
        return CheckOutcome(
            "FAIL",
            f"{message}: {len(wrong)} do not match",
            float(len(wrong)),
            tuple(wrong),
            repairable=False,
        )
    more = f", and {min(len(remaining), 16)} to prompts kept out" if remaining else ""
    return CheckOutcome("PASS", f"{message}{more}, at temperature {grpo_parameters.temperature:g}", 0.0)


def _is_answer(line: Any) -> bool:
    return isinstance(line, dict) and "ending" in line
