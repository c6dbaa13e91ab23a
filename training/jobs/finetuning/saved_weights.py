"""What a witness finds in the weights that a training saved: are they those of its last step, and merged as granted?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specs.jobs.job_records import LEFT
from training.engines import checkpoint
from training.jobs.finetuning.dpo import data_of, score_pairs
from training.jobs.finetuning.kept_examples import KeptExamples
from training.jobs.finetuning.loss_comparison import sums
from training.jobs.finetuning.sft import examples_of
from training.jobs.finetuning.trained_model import PreparedModel, prepare
from training.jobs.finetuning.training_texts import PromptWithResponses, style_of
from training.jobs.finetuning.weight_sketch import sketch
from training.jobs.job import Job
from training.jobs.witness.prompted_answers import UnusableRow
from training.rules.seeded_order import file_order
from training.rules.weight_files import describing, read_description

READ = 16
"""Examples, or pairs, that the saved weights read."""


def saved_facts(job: Job[Any], seed: str) -> dict[str, Any]:
    """Return ``saved`` (a sketch), how far merging is off, and what the saved weights read of their own examples.

    Raises NotAsked where the weights cannot be read or are not of the granted model.
    """
    folder = job.inputs[LEFT + "checkpoint"]
    facts = weight_facts(job)
    if job.order.kind == "sft":
        return facts | _loss_facts(job, folder, seed) | _kept_facts(job, folder, seed)
    return facts | _pair_facts(job, folder, seed)


def weight_facts(job: Job[Any]) -> dict[str, Any]:
    """Return ``saved`` (a sketch) and how far merging is off; raises NotAsked as :func:`saved_facts`."""
    folder = job.inputs[LEFT + "checkpoint"]
    if job.parameters.method == "full":
        return {"saved": saved_sketch(job)}
    adapter = _tensors(folder / "adapter")
    return {"saved": sketch(adapter)} | _merge_facts(job, folder, adapter)


def saved_sketch(job: Job[Any]) -> tuple[float, ...]:
    """Return the sketch of a saved checkpoint of full weights; raises NotAsked where it cannot be read."""
    return sketch(_tensors(job.inputs[LEFT + "checkpoint"]))


def apart_from_end(job: Job[Any], ours: Mapping[str, Any]) -> float:
    """Return the distance of all saved weights from the end of a replay, as a share of their movement in training.

    A job knows which weights a sketch holds, and could save others in every other place. Adapters move from a product
    of zero: what their second factors are. Raises NotAsked where the weights cannot be read or are not of this model.
    """
    folder, start = job.inputs[LEFT + "checkpoint"], dict[str, Any]()
    if getattr(job.parameters, "method", "full") == "full":
        start = _tensors(job.inputs["model"])
    else:
        folder = folder / "adapter"
    saved, far, moved = _tensors(folder), 0.0, 0.0
    for name, mine in ours.items():
        if name not in saved or (start and name not in start):
            raise UnusableRow(f"the weights in {folder.name} lack {name}")
        here = mine.cpu().float()
        far += float((saved[name].float() - here).square().sum())
        if start:
            moved += float((here - start[name].float()).square().sum())
        elif ".lora_B." in name:
            moved += float(here.square().sum())
    return math.sqrt(far) / (math.sqrt(moved) or 1.0)


def files_apart(job: Job[Any], model: Any, tokenizer: Any) -> list[str]:
    """Return the files of a saved checkpoint that would have it compute, read or write otherwise than what was trained.

    They are saved here from the granted model, as it is before its first step, and compared. Weights in 4 bits are read
    again before they are merged: how they were stored is not part of the comparison then. A cache only saves time.
    """
    saved, ours = job.inputs[LEFT + "checkpoint"], job.folder / "described"
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    ours.mkdir(exist_ok=True)
    checkpoint.describe(bare, tokenizer, ours)
    left_out = ["use_cache"]
    if getattr(bare, "is_loaded_in_4bit", False):
        left_out += ["quantization_config", "dtype"]
    names = sorted({*describing(ours), *describing(saved)})
    return [
        name for name in names if read_description(saved / name, left_out) != read_description(ours / name, left_out)
    ]


def _tensors(folder: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    results: dict[str, Any] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            results |= load_file(path)
    except (SafetensorError, OSError) as error:
        raise UnusableRow(f"the weights in {folder.name} cannot be read: {error}") from error
    if not results:
        raise UnusableRow(f"no weights in {folder.name}")
    return results


def _merge_facts(job: Job[Any], folder: Path, adapter: dict[str, Any]) -> dict[str, Any]:
    """Return how far the saved weights are from base plus adapters: with adapters, and of the others, as shares."""
    scale = job.parameters.lora_alpha / job.parameters.lora_rank
    base, saved = _tensors(job.inputs["model"]), _tensors(folder)
    pairs = dict(_factors(adapter))
    if unknown := sorted(set(pairs) - set(base)):
        raise UnusableRow(f"an adapter is for {unknown[0]}, which the model does not have")
    merged = frozen = 0.0
    for name, was in base.items():
        if name not in saved:
            continue
        now, pending = saved[name].float(), was.to(saved[name].dtype).float()
        if name in pairs:
            down, up = pairs[name]
            pending = was.float() + scale * (up.float() @ down.float())
        apart = float((now - pending).norm() / (pending.norm() or 1.0))
        if name in pairs:
            merged = max(merged, apart)
        else:
            frozen = max(frozen, apart)
    modules = {name.rsplit(".", 2)[-2] for name in pairs}
    return {"merged_apart": merged, "frozen_apart": frozen, "merged_modules": sorted(modules), "merged": len(pairs)}


def _factors(adapter: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield for each adapted tensor of the model its two factors."""
    for name, down in adapter.items():
        head, text, tail = name.partition(".lora_A.")
        if text:
            yield f"{head.removeprefix('base_model.model.')}.{tail}", (down, adapter[f"{head}.lora_B.{tail}"])


def _loss_facts(job: Job[Any], folder: Path, seed: str) -> dict[str, Any]:
    """Return the loss of the saved weights on some of the granted examples, in nats per token."""
    model, tokenizer = checkpoint.load(folder)
    style = style_of(tokenizer, job.parameters, job.order.model_kind)
    examples = sorted(examples_of(job), key=lambda example: file_order(f"{example.item}/{example.sample} {seed}", 0))[
        :READ
    ]
    pairs: list[tuple[float, int]] = []
    with checkpoint.evaluating(model):
        for example in examples:
            encoded = PromptWithResponses(style, example.prompt, (example.completion,), example.before).encode_sides(
                tokenizer
            )
            whole, begin = encoded.wholes[0][: job.parameters.max_length], encoded.begins()[0]
            if begin < len(whole):
                pairs += sums(model, [(whole, begin)])
    tokens = sum(count for _, count in pairs)
    return {"read_loss": -sum(total for total, _ in pairs) / tokens if tokens else None, "read": len(pairs)}


def _kept_facts(job: Job[Any], folder: Path, seed: str) -> dict[str, Any]:
    """Return scores of some examples that were kept out of training, by the granted weights and by the saved ones."""
    if not job.parameters.validation_share:
        return {}
    prepared = prepare(job.inputs["model"], job.parameters)
    style = style_of(prepared.tokenizer, job.parameters, job.order.model_kind)
    kept_examples = KeptExamples(job, style, prepared.tokenizer)
    lines = sorted(kept_examples.examples, key=lambda line: file_order(f"{line} {seed}", 0))[:READ]
    before = kept_examples.read(prepared.model, lines)
    _take_trained(job, prepared, folder)
    after = kept_examples.read(prepared.model, lines)
    return {"kept": [[line, before[line].total, after[line].total, after[line].correct] for line in lines]}


def _take_trained(job: Job[Any], prepared: PreparedModel, folder: Path) -> None:
    """Replace the granted model by what was trained, on the device and in the type in which the job scored it.

    Over 4 bits the job scores with its adapters; merged into 16 bits they come to other scores.
    """
    if job.parameters.method == "qlora":
        from peft import PeftModel

        # By default adapters of bfloat16 would become float32.
        prepared.model = PeftModel.from_pretrained(prepared.model, folder / "adapter", autocast_adapter_dtype=False)
        return
    device, dtype = checkpoint.device_of(prepared.model)
    prepared.model = None
    checkpoint.free()
    import torch

    prepared.model, _ = checkpoint.load(folder, device, getattr(torch, dtype))


def _pair_facts(job: Job[Any], folder: Path, seed: str) -> dict[str, Any]:
    """Return scores of some pairs that were kept out of training, by the granted weights and by the saved ones."""
    data = data_of(job)
    places = sorted(range(len(data.validation)), key=lambda place: file_order(f"{place} {seed}", 0))[:READ]
    pairs = [data.validation[place] for place in sorted(places)]
    lines = [data.split.validation[place] for place in sorted(places)]
    before = score_pairs(data.prepared.model, data.prepared, pairs, job.parameters)
    _take_trained(job, data.prepared, folder)
    after = score_pairs(data.prepared.model, data.prepared, pairs, job.parameters)
    parts = [
        [line, scorer_value.chosen, scorer_value.rejected, two.chosen, two.rejected]
        for line, scorer_value, two in zip(lines, before, after, strict=True)
    ]
    return {"pairs": parts}
