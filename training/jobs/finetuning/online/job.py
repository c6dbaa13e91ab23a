"""The process of ``grpo``, ``sdpo`` and ``composer`` stages: answers, steps, and answers to prompts kept out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.stages.finetuning.online_parameters import GrpoParameters
from specs.stages.finetuning.online_rows import KeptAnswer, RolloutStep
from training.engines.checkpoint import evaluating
from training.engines.engine import BatchedEngine
from training.engines.token_sampling import TokenSampling
from training.jobs.finetuning import trainer_args
from training.jobs.finetuning.adapter_merge import finish_training
from training.jobs.finetuning.online.build import OnlineInputs, build, prepare_online_inputs
from training.jobs.finetuning.online.recorded import rollouts_until
from training.jobs.job import Job, StageResult
from training.jobs.saved_steps import newest_whole, train


def train_on_rollouts(job: Job[Any]) -> StageResult:
    """Write ``rows`` (steps), ``rollouts``, ``kept`` (prompts kept out), ``checkpoint``, and ``snapshots`` if due."""
    arguments = prepare_online_inputs(job)
    before = answers(arguments, arguments.prepared.model, job.parameters)
    built = build(job, arguments)
    trainer = built.trainer
    built.rollouts.rows += rollouts_until(newest_whole(job.folder / "trainer"))
    train(trainer, job.folder / "trainer")
    lines = trainer_args.list_logged_steps(trainer)
    job.write_rows("rows", [step_of(line) for line in lines])
    job.write_rows("rollouts", built.rollouts.rows)
    write_validation_answers(job, arguments, before, trainer.model)
    facts = facts_of(arguments) | seen_facts(trainer)
    return finish_training(job, trainer, arguments.prepared, trainer.settings() | arguments.style.settings(), facts)


def facts_of(arguments: OnlineInputs) -> dict[str, Any]:
    """Return what the manifest says of the granted data."""
    return {
        "prompts": len(arguments.training),
        "kept_prompts": len(arguments.validation),
        "pairs": len(arguments.pairs),
        "pairs_cut": arguments.pairs_cut,
    }


def seen_facts(trainer: Any) -> dict[str, Any]:
    """Return what the manifest says of what a trainer did."""
    return {
        "sequences": sum(line["sequences"] for line in trainer_args.list_logged_steps(trainer)),
        "epochs_done": trainer.state.epoch,
        "resumed_from": trainer.resumed_from,
        "step_seconds": [round(step_second, 4) for step_second in trainer.step_seconds],
        "attention": trainer_args.attention_of(trainer.model),
    }


def write_validation_answers(job: Job[Any], arguments: OnlineInputs, before: Sequence[Any], model: Any) -> None:
    """Write ``kept``: the answers to prompts that were kept out, before and by a trained model."""
    after = answers(arguments, model, job.parameters)
    job.write_rows(
        "kept",
        [
            KeptAnswer(
                item=item.id,
                group=item.group,
                before=value.text,
                before_ids=value.ids,
                before_finish=value.finish,
                after=two.text,
                after_ids=two.ids,
                after_finish=two.finish,
            )
            for item, value, two in zip(arguments.validation, before, after, strict=True)
        ],
    )


def step_of(line: dict[str, Any]) -> RolloutStep:
    """Return the row of a logged step."""
    same = {name: line[name] for name in ("step", "epoch", "loss", "learning_rate", "grad_norm", "tokens")}
    return RolloutStep(
        **same,
        # A saved step has them by name: rows of a resumed run are those of an undisturbed one, byte for byte.
        channels=dict(sorted(line["channels"].items())),
        batches=tuple(line["batches"]),
        sketch=tuple(line["sketch"]),
        kl=line.get("kl"),
        entropy=line.get("entropy"),
        clipped=line.get("clip_ratio/region_mean"),
    )


def answers(arguments: OnlineInputs, model: Any, parameters: GrpoParameters) -> Sequence[Any]:
    """Return the greedy answer to each prompt that was kept out."""
    if not arguments.validation:
        return []
    prompts = [arguments.prompt_ids(item) for item in arguments.validation]
    with evaluating(model):
        engine = BatchedEngine(model, arguments.prepared.tokenizer, parameters.batch_size, share=False)
        return [output for (output,) in engine.complete(prompts, greedy(parameters), seed=parameters.seed)]


def greedy(parameters: GrpoParameters) -> TokenSampling:
    """Return how prompts that were kept out are answered."""
    return TokenSampling(parameters.max_new_tokens)
