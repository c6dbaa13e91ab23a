"""The judge of ``grpo``, ``sdpo`` and ``composer`` stages: every answer that was trained on, judged again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects, as_written
from reviews.evidence.row_reader import read_rows
from reviews.stages.finetuning.measure import read as read_steps
from specs.errors import EvidenceMissing
from specs.stages.artifacts import Item
from specs.stages.finetuning.online_parameters import GrpoParameters
from specs.stages.finetuning.online_rows import KeptAnswer, Rollout, RolloutStep
from specs.stages.registry import STAGE_KINDS
from training.rules.finetuning.rewards import Hint, advantages, combined, hints, rewards_of
from training.rules.seeded_order import drawn
from training.rules.tasks import judged
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
    """Of the first fifth of the rounds of answers, which is one round at least."""
    last: bool


class Kept(NamedTuple):
    """A prompt that was kept out of training, and whether the verifier accepts its answers."""

    row: KeptAnswer
    before: bool
    after: bool


def given_of(evidence: Evidence) -> GrpoParameters:
    """Return the granted parameters; errors as :meth:`Evidence.granted`."""
    found = evidence.granted(STAGE_KINDS[evidence.stage.kind].parameters)
    assert isinstance(found, GrpoParameters)
    return found


def steps_of(evidence: Evidence) -> tuple[RolloutStep, ...]:
    """Return the optimizer steps as they were logged; errors as :func:`read_rows`."""
    return read_rows(evidence.outputs.get("rows"), RolloutStep, "training rows")


def prompts_of(evidence: Evidence) -> tuple[dict[str, Item], dict[str, Item]]:
    """Return the prompts to train on and those to keep out, divided again as the granted parameters say."""
    given = given_of(evidence)
    items = read_rows(evidence.inputs.get("prompts"), Item, "prompts")
    kept = drawn((one.group for one in items), given.validation_share, given.seed)
    return {one.id: one for one in items if one.group not in kept}, {one.id: one for one in items if one.group in kept}


def worths(evidence: Evidence) -> tuple[Worth, ...]:
    """Return every answer that was trained on, judged again.

    Raises:
        EvidenceMissing: rows are absent or unreadable, answer a prompt that is not trained on, or are not whole groups.
    """
    given, (items, _) = given_of(evidence), prompts_of(evidence)
    rows = read_rows(evidence.outputs.get("rollouts"), Rollout, "rollouts")
    if strange := next((one.item for one in rows if one.item not in items), None):
        raise EvidenceMissing(f"a rollout answers '{strange}', which is no prompt to train on", where="rollouts")
    size = given.generations
    groups = [rows[at : at + size] for at in range(0, len(rows), size)]
    if any(
        {(one.step, one.item) for one in some} != {(some[0].step, some[0].item)} or len(some) != size for some in groups
    ):
        raise EvidenceMissing(f"the rollouts are not groups of {size} answers to one prompt", where="rollouts")
    said = judged(evidence.resolved.spec.task, [(items[one.item], one.text) for one in rows])
    rounds = sorted({one.step for one in rows})
    fifth = max(1, len(rounds) // 5)
    first, last = set(rounds[:fifth]), set(rounds[-fifth:])
    found: list[Worth] = []
    for some in groups:
        for one in _group(given, some, [next(said) for _ in some]):
            found.append(one._replace(first=one.row.step in first, last=one.row.step in last))
    return tuple(found)


def _group(given: GrpoParameters, rows: Sequence[Rollout], said: Sequence[Judgement]) -> Iterator[Worth]:
    """Yield what each answer of a group is worth."""
    weights: dict[str, float] = {**given.rewards}
    passed, most = [one.passed for one in said], given.max_new_tokens
    valued = [
        rewards_of(list(weights), verified=right, finish=row.finish, tokens=len(row.answer_ids), most=most)
        for row, right in zip(rows, passed, strict=True)
    ]
    rewards = [combined(one, weights) for one in valued]
    each = advantages(rewards, scale=given.scale_rewards)
    hinted: list[Hint | None] = [None] * len(rows)
    if given.weights.sdpo:
        hinted = hints([one.text for one in rows], said, given.distilled)
    tied = max(rewards) - min(rewards) < _TIED
    for place, row in enumerate(rows):
        yield Worth(
            row=row,
            verified=passed[place],
            rewards=valued[place],
            reward=rewards[place],
            advantage=each[place],
            hint=hinted[place],
            tied=tied,
            first=False,
            last=False,
        )


def kept_of(evidence: Evidence) -> tuple[Kept, ...]:
    """Return the answers to prompts that were kept out, judged again; errors as :func:`worths`."""
    _, items = prompts_of(evidence)
    rows = read_rows(evidence.outputs.get("kept"), KeptAnswer, "answers to prompts kept out", may_be_empty=True)
    if strange := next((one.item for one in rows if one.item not in items), None):
        raise EvidenceMissing(f"'{strange}' is no prompt that was kept out", where="kept")
    asked = [(items[one.item], text) for one in rows for text in (one.before, one.after)]
    said = [one.passed for one in judged(evidence.resolved.spec.task, asked)]
    return tuple(Kept(row, said[2 * at], said[2 * at + 1]) for at, row in enumerate(rows))


def read(evidence: Evidence, output: str) -> Subjects | None:
    """Return steps, answers or prompts for the metrics; None for ``kept_answers`` where no prompt was kept out.

    Raises:
        EvidenceMissing: as :func:`worths`, or the steps are not 1, 2, 3, ...
    """
    if output == "rows":
        return read_steps(evidence, output)
    if output == "rollouts":
        return as_written(worths(evidence), output)
    found = kept_of(evidence)
    return as_written(found, "kept") if found or output == "kept" else None
