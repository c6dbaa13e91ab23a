"""The checkpoint that later stages read, with adapters merged into it.

A model of 4 bits takes no merge, so its weights are reread in bfloat16: 65.5 GB for 32 billion parameters, more
than a GPU of 80 GB has left. So the trained model is freed first, and the second copy is merged on the CPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specs.system.regular_files import read_regular
from training.engines import checkpoint
from training.jobs.finetuning.trained_model import PreparedModel
from training.jobs.finetuning.trainer_args import list_logged_steps
from training.jobs.job import Job, StageResult
from training.jobs.saved_steps import clear


def save_trained(trainer: Any, prepared: PreparedModel, source: Path, out: Path) -> dict[str, float]:
    """Save the checkpoint in ``out``; merge adapters and keep them under ``adapter``; return what merging changed.

    ``source`` is the checkpoint that training started from. Trainer and ``prepared`` have no model afterwards. Exits if
    the merged model computes something else than the model with adapters, or no tokenizer was saved.
    """
    trained, tokenizer = trainer.model, prepared.tokenizer
    release(trainer, prepared)
    facts: dict[str, float] = {}
    if prepared.adapter is not None:
        trained.eval()
        probe = tokenizer("The quick brown fox jumps over the lazy dog.", return_tensors="pt")["input_ids"]
        before = _logits(trained, probe)
        _save_adapter(trained, out / "adapter")
        if getattr(trained.get_base_model(), "is_loaded_in_4bit", False):
            del trained
            checkpoint.free()
            trained = read_again(source, out / "adapter")
            whole = _logits(trained, probe)
            # What training saw and what is kept differ by the rounding to 4 bits.
            facts["quantisation_difference"] = checkpoint.apart(before, whole)
            before = whole
        trained = trained.merge_and_unload()
        facts["merge_difference"] = difference = checkpoint.apart(before, _logits(trained, probe))
        dtype = checkpoint.device_of(trained)[1]
        if not difference <= checkpoint.most_difference(dtype):
            raise SystemExit(f"merging the adapters changed logits by {difference:.3g} of the largest, in {dtype}")
    checkpoint.save(trained, tokenizer, out)
    if not (out / "tokenizer.json").is_file() and not (out / "tokenizer_config.json").is_file():
        raise SystemExit(f"no tokenizer was saved in {out}: the checkpoint could not be used")
    return facts


def finish_training(
    job: Job[Any], trainer: Any, prepared: PreparedModel, effective: dict[str, Any], facts: dict[str, Any]
) -> StageResult:
    """Save what was trained as ``checkpoint``, remove the saved steps, and return what the stage reports."""
    device, dtype = checkpoint.device_of(trainer.model)
    tokens = sum(entry["tokens"] for entry in list_logged_steps(trainer))
    facts |= save_trained(trainer, prepared, job.inputs["model"], job.out / "checkpoint")
    clear(job.folder / "trainer")
    return StageResult(device, dtype, tokens, effective, facts)


def release(trainer: Any, prepared: PreparedModel) -> None:
    """Take model, gradients, optimizer and schedule from a finished trainer and from ``prepared``; keep its log."""
    trainer.model.zero_grad(set_to_none=True)
    trainer.accelerator.free_memory()
    for holder in (trainer, trainer.callback_handler):
        for name in ("model", "model_wrapped", "ref_model", "optimizer", "lr_scheduler"):
            if hasattr(holder, name):
                setattr(holder, name, None)
    prepared.model = None
    checkpoint.free()


def _logits(model: Any, ids: Any) -> Any:
    import torch

    with torch.no_grad():
        return model(ids.to(next(model.parameters()).device)).logits.float().cpu()


def read_again(source: Path, adapter: Path) -> Any:
    """Return the starting weights in bfloat16 with the adapters, on the CPU."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    whole: Any = AutoModelForCausalLM.from_pretrained(source, local_files_only=True, dtype=torch.bfloat16)
    # Without the device, peft puts the adapters on a GPU where there is one.
    return PeftModel.from_pretrained(whole, adapter, torch_device="cpu").eval()


def _save_adapter(trained: Any, folder: Path) -> None:
    """Save adapters so that their digest depends only on what was trained: no path of this job, lists in order."""
    trained.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config: dict[str, Any] = json.loads(read_regular(path).decode("utf-8"))
    config["base_model_name_or_path"] = None
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
