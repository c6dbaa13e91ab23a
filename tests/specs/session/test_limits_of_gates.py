"""Every number that can loosen a gate has a limit, or a reason why it cannot let everything pass."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from specs.session.design import Analysis, Budget, HeldBack
from specs.session.evaluation_plan import Drift, Gap, KindRule, PairedTest
from specs.session.thresholds import Thresholds
from specs.stages.base.stage import Criterion

MODELS: tuple[type[BaseModel], ...] = (
    *(Thresholds, Analysis, Gap, Drift, PairedTest, KindRule, Budget, HeldBack, Criterion),
)
PASSES_ALL: dict[str, float] = {
    "Thresholds.items_per_kind": 0,
    "Thresholds.common_answer": 1,
    "Thresholds.kind_dependence": 0,
    "Thresholds.prompt_similarity": 1,
    "Thresholds.contained_words": 1000,
    "Thresholds.written_heldout": 1,
    "Thresholds.repeated_rows": 1,
    "Thresholds.ceiling_kind": 0,
    "Thresholds.empty_answers": 1,
    "Thresholds.identical_answers": 1,
    "Thresholds.near_answers": 1,
    "Thresholds.off_topic": 1,
    "Thresholds.scorer_agreement": 0,
    "Thresholds.scorer_length": 1,
    "Thresholds.scorer_labelled": 1,
    "Thresholds.scorer_sides": 0,
    "Thresholds.scorer_matched": 100,
    "Thresholds.truncated_samples": 1,
    "Thresholds.delimiters": 1,
    "Thresholds.refusals": 1,
    "Thresholds.prompt_copies": 1,
    "Thresholds.repeated_edges": 1,
    "Thresholds.near_duplicates": 1,
    "Thresholds.base_follows": 1,
    "Thresholds.control_follows": 0,
    "Thresholds.critic_kappa": 0,
    "Thresholds.labelled_items": 1,
    "Thresholds.labelled_minority": 0,
    "Thresholds.swap_inconsistency": 1,
    "Thresholds.length_bias": 2,
    "Thresholds.passes": 1000,
    "Thresholds.gradient_spike": 1e4,
    "Thresholds.schedule_deviation": 1,
    "Thresholds.lost_sequences": 1,
    "Thresholds.idle_steps": 1,
    "Thresholds.rollout_kl": 100,
    "Thresholds.entropy_left": 0,
    "Thresholds.tied_groups": 1,
    "Thresholds.clipped_tokens": 1,
    "Thresholds.verified_rise": 0,
    "Analysis.alpha": 1,
    "Analysis.minimum_effect": 0,
    "Analysis.expected_lost": 1,
    "Analysis.power": 0,
    "Analysis.n": 0,
    "Gap.base_at_most": 1,
    "Gap.ceiling_at_least": 0,
    "Gap.slack": 1,
    "Drift.margin": 1,
    "PairedTest.alpha": 0.5,
    "PairedTest.minimum_effect": 0,
    "PairedTest.expected_lost": 0.5,
    "PairedTest.power": 0.05,
    "KindRule.risen": 0,
    "KindRule.not_fallen": 0,
    "KindRule.false_discovery": 0.5,
    "KindRule.margin": 1,
    "Budget.max_cost_usd": 0,
    "Budget.max_hours": 0,
    "HeldBack.evaluation": 1.1,
    "HeldBack.review": 1.1,
    "HeldBack.teardown": 1.1,
}
"""Field -> a value with which its check would pass everything; the contract refuses it."""
REASONS = {
    "Thresholds.truncated_answers": "1 is for models that do not stop yet; learned_stops then decides what counts",
    "Thresholds.learned_stops": "a gain of it is named in the first sentence, and health.collapse reads the answers",
    "Thresholds.label_answers": "1 is for tasks that ask for a label, and identical_answers still counts",
    "Thresholds.damaged_texts": "1 is for tasks about such texts; what is damaged is then shown as a warning",
    "Thresholds.copies": "identical_answers and near_duplicates count shares of the same completions",
    "Thresholds.length_spread": "its check only warns",
    "Thresholds.parameters_per_token": "its check only warns",
    "Thresholds.loss_drop": "at 0 the loss may stay, and training.moved asks whether weights did",
    "Thresholds.warmup_share": "at 1 design.schedule still refuses a warm-up as long as the run",
    "Thresholds.loss_rise": "its check only warns",
    "Thresholds.training_speed": "at 0 no speed is asked for; the replay of steps shows that training took place",
    "Thresholds.speed_spread": "it chooses between two figures of a bench, and closes no gate",
    "Thresholds.rollout_length": "its check only warns",
    "Analysis.seeds": "names a seed",
    "Budget.machine_usd_per_hour": "a machine of one's own may cost nothing, and max_hours limits it",
    "Budget.builder_max_usd": "lies within max_cost_usd",
    "Budget.storage_usd_per_gb": "more of it spends the budget sooner",
    "Budget.max_disk_gb": "the free space of the disk is the limit beyond it",
    "Budget.dead_man_minutes": "decides when a job without an orchestrator ends, and no gate",
    "Criterion.at_least": "a criterion closes a gate in addition to its checks: without it nothing is loosened",
    "Criterion.at_most": "as at_least",
    "Criterion.above": "as at_least",
    "Criterion.below": "as at_least",
}


def numbers(model: type[BaseModel]) -> list[str]:
    """Return the numeric fields of a contract."""
    return [name for name, field in model.model_fields.items() if _is_number(field.annotation)]


def _is_number(annotation: Any) -> bool:
    return annotation in (int, float) or any(_is_number(part) for part in get_args(annotation))


def test_every_number_has_a_limit_or_a_reason() -> None:
    every = {f"{model.__name__}.{name}" for model in MODELS for name in numbers(model)}
    assert every == PASSES_ALL.keys() | REASONS.keys() and not PASSES_ALL.keys() & REASONS.keys()


@pytest.mark.parametrize("name", PASSES_ALL)
def test_a_value_that_lets_everything_pass_is_refused(name: str) -> None:
    owner, _, field_name = name.partition(".")
    field = next(model for model in MODELS if model.__name__ == owner).model_fields[field_name]
    contract: Any = TypeAdapter(_annotated(field))
    with pytest.raises(ValidationError):
        contract.validate_python(int(PASSES_ALL[name]) if _is_whole(field.annotation) else PASSES_ALL[name])
    if field.default is not None and not field.is_required():
        contract.validate_python(field.default)


def _annotated(field: Any) -> Any:
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def _is_whole(annotation: Any) -> bool:
    return annotation is int or any(_is_whole(part) for part in get_args(annotation) if part is not type(None))
