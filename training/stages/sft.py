"""Full supervised fine-tuning with TRL, loss on the completion only, every optimizer step written down."""

from __future__ import annotations

import math
from typing import Any

from specs.digests import digest_value
from specs.evidence import Example, TrainingRow
from specs.stages import SftParameters
from training.checkpoint import device_of, load, save
from training.entry import Done, Job, file_order, run_stage


def sft(job: Job) -> Done:
    """Write ``rows`` (one per step) and ``checkpoint``."""
    parameters = job.parameters
    assert isinstance(parameters, SftParameters)
    with job.inputs["examples"].open("rb") as handle:
        accepted = [Example.model_validate_json(line) for line in handle if line.strip()]
    examples = balance(accepted, parameters.max_examples_per_kind, parameters.seed)
    if not examples:
        raise SystemExit("there is no example to train on")
    model, tokenizer = load(job.inputs["model"])
    trainer = _trainer(job, model.train(), tokenizer, examples, parameters)
    trainer.train()
    rows = [
        TrainingRow(
            step=entry["step"],
            epoch=entry["epoch"],
            loss=entry["loss"],
            learning_rate=entry["learning_rate"],
            grad_norm=entry["grad_norm"],
            tokens=trainer.tokens_of_step[entry["step"]],
        )
        for entry in trainer.state.log_history
        if "loss" in entry
    ]
    job.write_rows("rows", rows)
    save(model, tokenizer, job.out / "checkpoint")
    device, dtype = device_of(model)
    return Done(device, dtype, sum(row.tokens for row in rows), _read_back(trainer), _facts(trainer, examples))


def balance(examples: list[Example], per_kind: int | None, seed: int) -> list[Example]:
    """Return at most ``per_kind`` examples of each kind, spread over topics, in an order fixed by the seed."""
    shuffled = sorted(examples, key=lambda one: file_order(f"{one.item}/{one.sample}", seed))
    if per_kind is None:
        return shuffled
    # First of all topics the first example, then the second: a topic with many must not crowd out others.
    seen: dict[tuple[str, str], int] = {}
    ranked: list[tuple[int, Example]] = []
    for one in shuffled:
        place = seen.get((one.kind, one.group), 0)
        seen[one.kind, one.group] = place + 1
        ranked.append((place, one))
    taken: dict[str, int] = {}
    kept: list[Example] = []
    for _, one in sorted(ranked, key=lambda pair: pair[0]):
        taken[one.kind] = taken.get(one.kind, 0) + 1
        if taken[one.kind] <= per_kind:
            kept.append(one)
    return sorted(kept, key=lambda one: file_order(f"{one.item}/{one.sample}", seed))


def _trainer(job: Job, model: Any, tokenizer: Any, examples: list[Example], parameters: SftParameters) -> Any:
    import torch
    from datasets import Dataset, disable_progress_bars
    from transformers import TrainerCallback
    from transformers.utils import logging
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    disable_progress_bars()
    logging.set_verbosity_error()
    batches = math.ceil(len(examples) / parameters.batch_size)
    steps = math.ceil(batches / parameters.gradient_accumulation) * parameters.epochs
    config = SFTConfig(
        output_dir=str(job.folder / "trainer"),
        learning_rate=parameters.learning_rate,
        num_train_epochs=parameters.epochs,
        per_device_train_batch_size=parameters.batch_size,
        gradient_accumulation_steps=parameters.gradient_accumulation,
        max_length=parameters.max_length,
        warmup_steps=math.ceil(steps * parameters.warmup_ratio),
        lr_scheduler_type=parameters.scheduler,
        weight_decay=parameters.weight_decay,
        max_grad_norm=parameters.max_grad_norm,
        seed=parameters.seed,
        data_seed=parameters.seed,
        completion_only_loss=True,
        packing=False,
        gradient_checkpointing=False,
        bf16=False,
        fp16=False,
        use_cpu=not torch.cuda.is_available(),
        logging_steps=1,
        logging_first_step=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )

    class Counting(SFTTrainer):
        """Counts what the steps really saw: loss-carrying tokens, masked tokens, distinct batches."""

        tokens_of_step: dict[int, int]
        masked: int
        batches: list[str]

        def training_step(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            labels = inputs["labels"]
            carried = int((labels != -100).sum())
            step = self.state.global_step + 1
            self.tokens_of_step[step] = self.tokens_of_step.get(step, 0) + carried
            self.masked += int(inputs["attention_mask"].sum()) - carried
            self.batches.append(digest_value(inputs["input_ids"].tolist()))
            return super().training_step(model, inputs, *rest, **named)

    class Report(TrainerCallback):
        """Turns the trainer's log lines into progress."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs:
                job.progress(state.global_step, state.max_steps, "steps", loss=float(logs["loss"]))

    trainer = Counting(
        model=model,
        args=config,
        train_dataset=Dataset.from_list([_row(tokenizer, example) for example in examples]),
        processing_class=tokenizer,
        callbacks=[Report()],
    )
    trainer.tokens_of_step, trainer.masked, trainer.batches = {}, 0, []
    return trainer


def _row(tokenizer: Any, example: Example) -> dict[str, Any]:
    """Return the example in the form TRL masks: chat turns, or bare text for a model without a chat template."""
    if tokenizer.chat_template is None:
        return {"prompt": f"{example.prompt}\n\n", "completion": example.completion}
    return {
        "prompt": [{"role": "user", "content": example.prompt}],
        "completion": [{"role": "assistant", "content": example.completion}],
    }


def _read_back(trainer: Any) -> dict[str, Any]:
    """Return the settings from the objects that did the work, by the name of the granted parameter."""
    args, group = trainer.args, trainer.optimizer.param_groups[0]
    trained = sum(one.numel() for one in trainer.model.parameters() if one.requires_grad)
    return {
        "learning_rate": group.get("initial_lr", group["lr"]),
        "epochs": int(args.num_train_epochs),
        "batch_size": trainer._train_batch_size,
        "gradient_accumulation": args.gradient_accumulation_steps,
        "max_length": args.max_length,
        "scheduler": str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)),
        "weight_decay": max(one["weight_decay"] for one in trainer.optimizer.param_groups),
        "max_grad_norm": args.max_grad_norm,
        "seed": args.seed,
        "optimizer": type(getattr(trainer.optimizer, "optimizer", trainer.optimizer)).__name__,
        "steps": trainer.state.global_step,
        "planned_steps": trainer.state.max_steps,
        "trained_share": trained / sum(one.numel() for one in trainer.model.parameters()),
    }


def _facts(trainer: Any, examples: list[Example]) -> dict[str, Any]:
    by_kind: dict[str, int] = {}
    for example in examples:
        by_kind[example.kind] = by_kind.get(example.kind, 0) + 1
    return {
        "examples": len(examples),
        "examples_by_kind": by_kind,
        "groups": len({example.group for example in examples}),
        "batches": len(trainer.batches),
        "distinct_batches": len(set(trainer.batches)),
        "masked_tokens": trainer.masked,
    }


if __name__ == "__main__":
    run_stage("sft", sft)
