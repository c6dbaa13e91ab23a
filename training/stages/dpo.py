"""Training on preferences with TRL: every optimizer step written down, pairs kept out scored before and after."""

from __future__ import annotations

from typing import Any

from specs.kinds_training import REFERENCE_FREE
from specs.rows_training import PairScore, PreferenceStep
from specs.stages import DpoParameters
from training.checkpoint import device_of
from training.entry import Done, Job, run_stage
from training.optimise import conduct
from training.optimise.masks import MaskProof, expected
from training.optimise.merging import save_trained
from training.optimise.models import Prepared, prepare
from training.optimise.pairs import Scored, divide, read_preferences, score
from training.optimise.preference import build, single_order
from training.optimise.resuming import clear, train
from training.optimise.texts import Sides, style_of

_COMPARED = 16
"""Pairs whose reference log-probabilities are computed a second time, without TRL."""


def dpo(job: Job) -> Done:
    """Write ``rows`` (one per step), ``pairs`` (one per pair that was kept out) and ``checkpoint``."""
    parameters = job.parameters
    assert isinstance(parameters, DpoParameters)
    preferences = read_preferences(job.inputs["preferences"])
    try:
        split = divide(preferences, parameters.validation_share, parameters.seed)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    if not split.train:
        raise SystemExit("there is no pair to train on")
    prepared = prepare(job.inputs["model"], parameters)
    style = style_of(prepared.tokenizer, parameters, job.order.declared())
    sides = [Sides(style, one.prompt, (one.chosen, one.rejected)) for one in preferences]
    training, kept = [sides[place] for place in split.train], [sides[place] for place in split.validation]
    before = _scored(prepared.model, prepared, kept, parameters)
    probe = _scored(prepared.model, prepared, training[:_COMPARED], parameters)
    proof = MaskProof(expected(prepared.tokenizer, training))
    trainer = build(job, prepared, training, parameters, proof)
    facts = _reference_facts(trainer, probe, len(training), parameters)
    train(trainer, job.folder / "trainer")
    job.write_rows("rows", [_step(entry) for entry in conduct.logged(trainer)])
    after = _scored(trainer.model, prepared, kept, parameters)
    job.write_rows(
        "pairs",
        [
            PairScore(
                pair=place,
                group=preferences[place].group,
                chosen_tokens=one.chosen_tokens,
                rejected_tokens=one.rejected_tokens,
                chosen_before=one.chosen,
                rejected_before=one.rejected,
                chosen_after=two.chosen,
                rejected_after=two.rejected,
            )
            for place, one, two in zip(split.validation, before, after, strict=True)
        ],
    )
    effective = trainer.settings() | style.settings()
    facts |= conduct.seen_facts(trainer, proof)
    facts |= {"pairs": len(split.train), "validation_pairs": len(split.validation)}
    facts |= conduct.lengths(training, prepared.tokenizer, parameters.max_length)
    device, dtype = device_of(trainer.model)
    facts |= save_trained(trainer, prepared, job.inputs["model"], job.out / "checkpoint")
    clear(job.folder / "trainer")
    tokens = sum(entry["tokens"] for entry in conduct.logged(trainer))
    return Done(device, dtype, tokens, effective, facts)


def _scored(model: Any, prepared: Prepared, pairs: list[Sides], parameters: DpoParameters) -> list[Scored]:
    return score(
        model,
        prepared.tokenizer,
        pairs,
        batch_size=2 * parameters.batch_size,
        max_length=parameters.max_length,
    )


def _step(entry: dict[str, Any]) -> PreferenceStep:
    return PreferenceStep(
        step=entry["step"],
        epoch=entry["epoch"],
        loss=entry["loss"],
        learning_rate=entry["learning_rate"],
        grad_norm=entry["grad_norm"],
        tokens=entry["tokens"],
        chosen_reward=entry.get("rewards/chosen"),
        rejected_reward=entry.get("rewards/rejected"),
        margin=entry.get("rewards/margins"),
        accuracy=entry.get("rewards/accuracies"),
    )


def _reference_facts(trainer: Any, probe: list[Scored], pairs: int, parameters: DpoParameters) -> dict[str, Any]:
    """Compare TRL's reference log-probabilities with those computed here before it had the model.

    The difference is a share of the value, or nats where that is below 1. Which response is which is part of it.
    """
    if parameters.loss in REFERENCE_FREE:
        return {}
    data = trainer.train_dataset
    ours: dict[tuple[int, int], float] = {}
    for place, one in enumerate(probe):
        ours |= {(place, 0): one.chosen, (place, 1): one.rejected}
    if parameters.loss == "kto":
        theirs = dict(zip(single_order(pairs, parameters.seed), data["ref_logps"], strict=True))
    else:
        theirs = {(place, 0): value for place, value in enumerate(data["ref_chosen_logps"])}
        theirs |= {(place, 1): value for place, value in enumerate(data["ref_rejected_logps"])}
    worst = max(abs(value - theirs[place]) / max(1.0, abs(value)) for place, value in ours.items())
    return {"reference_difference": float(worst), "reference_responses": len(ours)}


if __name__ == "__main__":
    run_stage("dpo", dpo)
