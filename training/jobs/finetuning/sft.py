"""Supervised fine-tuning with TRL: loss on the completion only, a row per optimizer step."""

from __future__ import annotations

from collections import Counter
from typing import Any

from specs.stages.base.artifacts import Example
from specs.stages.finetuning.parameters import SftParameters
from specs.stages.finetuning.rows import TrainingRow
from training.compat.transformers_internals import computing_attention
from training.engines.checkpoint import apart, device_of, evaluating, most_difference
from training.jobs.finetuning import trainer_args, trainer_hooks
from training.jobs.finetuning.adapter_merge import finish_training
from training.jobs.finetuning.kept_examples import KeptExamples, split_examples, take_best, watch
from training.jobs.finetuning.loss_masks import MaskProof, encode_known_prompts
from training.jobs.finetuning.trained_model import PreparedModel, prepare
from training.jobs.finetuning.trainer_hooks import TrainerBuild
from training.jobs.finetuning.training_texts import PromptWithResponses, style_of
from training.jobs.job import Job, StageResult, refuse
from training.jobs.saved_steps import train
from training.rules.finetuning.replica_rounds import Share
from training.rules.finetuning.schedules import steps_of, warmup_of
from training.rules.seeded_order import file_order


def build(job: Job[SftParameters], share: Share | None = None) -> TrainerBuild:
    """Return the trainer of the granted examples, or of one replica's share of them."""
    parameters = job.parameters
    examples = examples_of(job)
    if share is not None:
        examples = share.of(examples)
    if not examples:
        raise SystemExit("no example to train on")
    prepared = prepare(job.inputs["model"], parameters)
    facts = facts_of(examples)
    if parameters.packing:
        facts["packing_difference"] = require_packing(prepared.model, prepared.device)
    style = style_of(prepared.tokenizer, parameters, job.order.model_kind)
    sides = [PromptWithResponses(style, example.prompt, (example.completion,), example.before) for example in examples]
    proof = MaskProof(encode_known_prompts(prepared.tokenizer, sides))
    return TrainerBuild(_trainer(job, prepared, sides, proof), prepared, sides, style, proof, facts, dict)


def facts_of(examples: list[Example]) -> dict[str, Any]:
    """Return what the manifest says of the examples that were trained on."""
    return {
        "examples": len(examples),
        "examples_by_kind": dict(Counter(example.kind for example in examples)),
        "groups": len({example.group for example in examples}),
    }


def examples_of(job: Job[SftParameters]) -> list[Example]:
    """Return the granted examples that are not kept out, balanced, in the order that the seed gives."""
    return balance(split_examples(job).training, job.parameters.max_examples_per_kind, job.parameters.seed)


def sft(job: Job[SftParameters]) -> StageResult:
    """Write ``rows`` (one per step) and ``checkpoint``, and ``snapshots`` and ``validation`` if granted."""
    parameters = job.parameters
    built = build(job)
    trainer = built.trainer
    remaining, rule = None, parameters.early_stopping
    if parameters.validation_share:
        remaining = KeptExamples(job, built.style, built.prepared.tokenizer)
        if rule is not None and not remaining.examples:
            raise SystemExit("early_stopping: no example is kept out, all are of one group")
        watch(trainer, remaining, rule)
    train(trainer, job.folder / "trainer")
    job.write_rows("rows", [step_of(entry) for entry in trainer_args.list_logged_steps(trainer)])
    effective = trainer.settings() | built.style.settings()
    if remaining is not None:
        job.write_rows("validation", remaining.rows(trainer))
        if rule is not None:
            effective |= take_best(trainer, remaining, rule, job.folder / "trainer")
    facts = built.facts | trainer_args.seen_facts(trainer, built.proof)
    facts |= trainer_args.lengths(built.sides, built.prepared.tokenizer, parameters.max_length)
    return finish_training(job, trainer, built.prepared, effective, facts)


def step_of(entry: dict[str, Any]) -> TrainingRow:
    """Return the row of a logged step."""
    return TrainingRow(**{name: entry[name] for name in TrainingRow.model_fields if name in entry})


def require_packing(model: Any, device: str) -> float:
    """Return by how much logits of packed examples differ from those alone; exit with code 4 if they mix.

    Two short sequences are laid out like TRL's packed batches: end to end, positions restarted, no mask. If a model
    ignores the positions, the second sequence reads the first, and its logits change.
    """
    import torch

    vocabulary = model.config.get_text_config().vocab_size
    first, second = [(7 * n) % vocabulary for n in range(1, 9)], [(11 * n) % vocabulary for n in range(1, 7)]
    with evaluating(model):
        alone = model(torch.tensor([second], device=device)).logits[0].float()
        places = torch.tensor([[*range(len(first)), *range(len(second))]], device=device)
        packed = model(torch.tensor([first + second], device=device), position_ids=places, use_cache=False)
        together = packed.logits[0, len(first) :].float()
    difference = apart(alone, together)
    if not difference <= most_difference(device_of(model)[1]):
        attention = computing_attention(model.config)
        refuse(
            f"packing: true, but {type(model).__name__} with attention '{attention}' lets packed examples see "
            f"each other: logits differ by {difference:.3g} of the largest"
        )
    return difference


def balance(examples: list[Example], per_kind: int | None, seed: int) -> list[Example]:
    """Return at most ``per_kind`` examples of each kind, spread over topics, in an order fixed by the seed."""
    shuffled = sorted(examples, key=lambda example: file_order(f"{example.item}/{example.sample}", seed))
    if per_kind is None:
        return shuffled
    # First the first example of every topic, then the second: a topic with many must not crowd out others.
    seen_counts = Counter[tuple[str, str]]()
    ranked: list[tuple[int, Example]] = []
    for example in shuffled:
        ranked.append((seen_counts[example.kind, example.group], example))
        seen_counts[example.kind, example.group] += 1
    counts = Counter[str]()
    kept_examples: list[Example] = []
    for _, example in sorted(ranked, key=lambda pair: pair[0]):
        counts[example.kind] += 1
        if counts[example.kind] <= per_kind:
            kept_examples.append(example)
    return sorted(kept_examples, key=lambda example: file_order(f"{example.item}/{example.sample}", seed))


def _trainer(
    job: Job[SftParameters], prepared: PreparedModel, sides: list[PromptWithResponses], proof: MaskProof
) -> Any:
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    parameters = job.parameters
    config = SFTConfig(
        **trainer_args.arguments(job, parameters, steps_of(len(sides), parameters.model_dump()), prepared.device),
        max_length=parameters.max_length,
        completion_only_loss=True,
        packing=parameters.packing,
    )
    rows = [
        {"prompt": with_responses.prompt(), "completion": with_responses.response(with_responses.responses[0])}
        for with_responses in sides
    ]
    trainer = trainer_hooks.build(SFTTrainer, config, job, prepared, rows, proof)
    if parameters.packing:
        # Only now it is known how many rows the packing makes, and with them the steps of the warm-up.
        arguments = parameters.model_dump()
        trainer.args.warmup_steps = warmup_of(steps_of(len(trainer.train_dataset), arguments), arguments)
    return trainer
