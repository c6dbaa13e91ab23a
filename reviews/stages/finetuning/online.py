"""The judge of ``grpo``, ``sdpo`` and ``composer`` stages: every answer that was trained on, judged again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects, as_written
from reviews.evidence.row_reader import read_rows
from reviews.stages.finetuning.measure import read as read_steps
from specs.stages.base.artifacts import Item
from specs.stages.finetuning.online_parameters import GrpoParameters
from specs.stages.finetuning.online_rows import KeptAnswer, Rollout, RolloutStep
from specs.stages.registry import STAGE_KINDS
from specs.system.errors import EvidenceMissing
from training.rules.finetuning.rewards import Hint, advantages, hints, rewards_of, sum_weighted_rewards
from training.rules.seeded_order import draw_share
from training.rules.tasks import judge_answers
from training.rules.tasks.format_instructions import Judgement

_TIED = 1e-9
"""How far rewards of a group may be apart and still be the same."""


class Worth(NamedTuple):
    """An answer that was trained on, and what it is worth when it is judged again."""

    row: Rollout
    verified: bool
    rewards: dict[str, float]
    reward: float
    advantage: float
    hint: Hint | None
    tied: bool
    """Whether all answers of its group are worth the same."""
    first: bool
    """Whether it belongs to the first fifth of the rounds of answers, which is at least one round."""
    last: bool


class ValidationPrompt(NamedTuple):
    """A prompt that was kept out of training, and whether the verifier accepts its answers."""

    row: KeptAnswer
    before: bool
    after: bool


def parse_grpo_parameters(evidence: Evidence) -> GrpoParameters:
    """Return the granted parameters; errors as :meth:`Evidence.granted`."""
    contract = evidence.parse_parameters(STAGE_KINDS[evidence.stage.kind].parameters)
    assert isinstance(contract, GrpoParameters)
    return contract


def steps_of(evidence: Evidence) -> tuple[RolloutStep, ...]:
    """Return the optimizer steps as they were logged; errors as :func:`read_rows`."""
    return read_rows(evidence.outputs.get("rows"), RolloutStep, "training rows")


def prompts_of(evidence: Evidence) -> tuple[dict[str, Item], dict[str, Item]]:
    """Return the prompts to train on and those to keep out, divided again as the granted parameters say."""
    grpo_parameters = parse_grpo_parameters(evidence)
    items = read_rows(evidence.inputs.get("prompts"), Item, "prompts")
    texts = draw_share((item.group for item in items), grpo_parameters.validation_share, grpo_parameters.seed)
    return {item.id: item for item in items if item.group not in texts}, {
        item.id: item for item in items if item.group in texts
    }


def worths(evidence: Evidence) -> tuple[Worth, ...]:
    """Return every answer that was trained on, judged again.

    Raises:
        EvidenceMissing: rows are absent or unreadable, answer a prompt that is not trained on, or are not whole groups.
    """
    grpo_parameters, (items, _) = parse_grpo_parameters(evidence), prompts_of(evidence)
    rows = read_rows(evidence.outputs.get("rollouts"), Rollout, "rollouts")
    if strange := next((rollout.item for rollout in rows if rollout.item not in items), None):
        raise EvidenceMissing(f"a rollout answers '{strange}', which is not a prompt to train on", where="rollouts")
    size = grpo_parameters.generations
    groups = [rows[at : at + size] for at in range(0, len(rows), size)]
    if any(
        {(rollout.step, rollout.item) for rollout in group} != {(group[0].step, group[0].item)} or len(group) != size
        for group in groups
    ):
        raise EvidenceMissing(f"the rollouts do not form groups of {size} answers to one prompt", where="rollouts")
    judgements = judge_answers(evidence.resolved.spec.task, [(items[rollout.item], rollout.text) for rollout in rows])
    rounds = sorted({rollout.step for rollout in rows})
    fifth = max(1, len(rounds) // 5)
    first, last = set(rounds[:fifth]), set(rounds[-fifth:])
    matching_worths: list[Worth] = []
    for group in groups:
        for worth in _group(grpo_parameters, group, [next(judgements) for _ in group]):
            matching_worths.append(worth._replace(first=worth.row.step in first, last=worth.row.step in last))
    return tuple(matching_worths)


def _group(parameters: GrpoParameters, rows: Sequence[Rollout], judgements: Sequence[Judgement]) -> Iterator[Worth]:
    """Yield what each answer of a group is worth."""
    weights: dict[str, float] = {**parameters.rewards}
    passed, most = [judgement.passed for judgement in judgements], parameters.max_new_tokens
    valued = [
        rewards_of(list(weights), verified=right, finish=row.finish, tokens=len(row.answer_ids), most=most)
        for row, right in zip(rows, passed, strict=True)
    ]
    rewards = [sum_weighted_rewards(value, weights) for value in valued]
    group_advantages = advantages(rewards, scale=parameters.scale_rewards)
    hinted: list[Hint | None] = [None] * len(rows)
    if parameters.weights.sdpo:
        hinted = hints([rollout.text for rollout in rows], judgements, parameters.distillation)
    tied = max(rewards) - min(rewards) < _TIED
    for place, row in enumerate(rows):
        yield Worth(
            row=row,
            verified=passed[place],
            rewards=valued[place],
            reward=rewards[place],
            advantage=group_advantages[place],
            hint=hinted[place],
            tied=tied,
            first=False,
            last=False,
        )


def kept_of(evidence: Evidence) -> tuple[ValidationPrompt, ...]:
    """Return the answers to prompts that were kept out, judged again; errors as :func:`worths`."""
    _, items = prompts_of(evidence)
    rows = read_rows(evidence.outputs.get("kept"), KeptAnswer, "answers to prompts kept out", may_be_empty=True)
    if strange := next((kept_answer.item for kept_answer in rows if kept_answer.item not in items), None):
        raise EvidenceMissing(f"'{strange}' is not a prompt that was kept out", where="kept")
    pairs = [
        (items[kept_answer.item], text) for kept_answer in rows for text in (kept_answer.before, kept_answer.after)
    ]
    flags = [judgement.passed for judgement in judge_answers(evidence.resolved.spec.task, pairs)]
    return tuple(ValidationPrompt(row, flags[2 * at], flags[2 * at + 1]) for at, row in enumerate(rows))


def read(evidence: Evidence, output: str) -> Subjects | None:
    """Return steps, answers or prompts for the metrics; None for ``kept_answers`` where no prompt was kept out.

    Raises:
        EvidenceMissing: as :func:`worths`, or the steps are not 1, 2, 3, ...
    """
    if output == "rows":
        return read_steps(evidence, output)
    if output == "rollouts":
        return as_written(worths(evidence), output)
    results = kept_of(evidence)
    return as_written(results, "kept") if results or output == "kept" else None
