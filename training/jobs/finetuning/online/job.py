"""The process of ``grpo``, ``sdpo`` and ``composer`` stages: answers, steps, and answers to prompts kept out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.stages.finetuning.online_parameters import ComposerParameters, GrpoParameters, SdpoParameters
from specs.stages.finetuning.online_rows import KeptAnswer, RolloutStep
from training.engines.checkpoint import evaluating
from training.engines.engine import Batched
from training.engines.token_sampling import Sampling
from training.jobs.finetuning import trainer_args
from training.jobs.finetuning.adapter_merge import finished
from training.jobs.finetuning.online.build import Granted, build, granted
from training.jobs.finetuning.online.recorded import kept_rows
from training.jobs.job import Done, Job
from training.jobs.saved_steps import newest_whole, train


def grpo(job: Job[GrpoParameters]) -> Done:
    """Write ``rows`` (steps), ``rollouts``, ``kept`` (prompts kept out), ``checkpoint``, and ``snapshots`` if due."""
    return train_on_rollouts(job)


def sdpo(job: Job[SdpoParameters]) -> Done:
    """Write what :func:`grpo` does."""
    return train_on_rollouts(job)


def composer(job: Job[ComposerParameters]) -> Done:
    """Write what :func:`grpo` does."""
    return train_on_rollouts(job)


def train_on_rollouts(job: Job[Any]) -> Done:
    """Train on the model's answers to the granted prompts, and answer those that were kept out before and after."""
    given = granted(job)
    before = _answers(given, given.prepared.model, job.parameters)
    built = build(job, given)
    trainer = built.trainer
    built.rollouts.rows += kept_rows(newest_whole(job.folder / "trainer"))
    train(trainer, job.folder / "trainer")
    lines = trainer_args.logged(trainer)
    job.write_rows("rows", [step_of(line) for line in lines])
    job.write_rows("rollouts", built.rollouts.rows)
    after = _answers(given, trainer.model, job.parameters)
    job.write_rows(
        "kept",
        [
            KeptAnswer(
                item=item.id,
                group=item.group,
                before=one.text,
                before_ids=one.ids,
                before_finish=one.finish,
                after=two.text,
                after_ids=two.ids,
                after_finish=two.finish,
            )
            for item, one, two in zip(given.kept, before, after, strict=True)
        ],
    )
    effective = trainer.settings() | given.style.settings()
    facts: dict[str, Any] = {
        "prompts": len(given.training),
        "kept_prompts": len(given.kept),
        "pairs": len(given.pairs),
        "pairs_cut": given.pairs_cut,
        "sequences": sum(line["sequences"] for line in lines),
        "epochs_done": trainer.state.epoch,
        "resumed_from": trainer.resumed_from,
        "step_seconds": [round(one, 4) for one in trainer.step_seconds],
        "attention": trainer_args.attention_of(trainer.model),
    }
    return finished(job, trainer, given.prepared, effective, facts)


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


def _answers(given: Granted, model: Any, parameters: GrpoParameters) -> Sequence[Any]:
    """Return the greedy answer to each prompt that was kept out."""
    if not given.kept:
        return []
    prompts = [given.prompt_ids(item) for item in given.kept]
    with evaluating(model):
        engine = Batched(model, given.prepared.tokenizer, parameters.batch_size, share=False)
        return [one for (one,) in engine.complete(prompts, greedy(parameters), seed=parameters.seed)]


def greedy(parameters: GrpoParameters) -> Sampling:
    """Return how prompts that were kept out are answered."""
    return Sampling(parameters.max_new_tokens)
