"""The model that is trained: where it runs, in which precision, with which adapters, and what is saved of it.

Nothing is left to a library's own choice: a GPU that is asked for and not there is refused, and so is a module name
that no layer has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specs.kinds_training import TrainingParameters
from training import checkpoint
from training.entry import refuse

_MOST_DIFFERENCE = {"float32": 1e-3, "bfloat16": 0.1}
"""Of logits before and after adapters are merged, as a share of the largest logit: rounding, and no more."""


@dataclass(frozen=True)
class Prepared:
    """A loaded model with its tokenizer, and the adapters it is still to be given (None for full training)."""

    model: Any
    tokenizer: Any
    device: str
    adapter: Any | None


def prepare(folder: Path, parameters: TrainingParameters) -> Prepared:
    """Load a checkpoint as the parameters say; leave with exit code 4 where this machine cannot do it."""
    import torch

    device = _device(parameters.device, gpu=torch.cuda.is_available())
    if parameters.method == "qlora" or parameters.optimizer_kind != "adamw":
        _require_bitsandbytes(parameters)
    if parameters.precision == "auto" and parameters.method != "qlora" and parameters.device == "auto":
        model, tokenizer = checkpoint.load(folder)
    else:
        model, tokenizer = _load(folder, parameters, device)
    return Prepared(model.train(), tokenizer, device, adapter(model, parameters))


def _device(wanted: str, *, gpu: bool) -> str:
    if wanted == "cuda" and not gpu:
        refuse(
            "device: cuda was granted, and torch finds no NVIDIA GPU on this machine; nothing runs on the CPU instead"
        )
    return "cuda:0" if gpu and wanted != "cpu" else "cpu"


def _require_bitsandbytes(parameters: TrainingParameters) -> None:
    if find_spec("bitsandbytes") is None:
        what = "method: qlora" if parameters.method == "qlora" else f"optimizer_kind: {parameters.optimizer_kind}"
        refuse(f"{what} needs the package bitsandbytes, which is not installed: pip install 'peergate[qlora]'")


def _load(folder: Path, parameters: TrainingParameters, device: str) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    precision = parameters.precision
    if precision == "auto":
        precision = "bfloat16" if device.startswith("cuda") else "float32"
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    if parameters.method == "qlora":
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=dtype, quantization_config=four_bits(), device_map={"": device}
        )
        return model, tokenizer
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=dtype)
    return model.to(device), tokenizer


def four_bits() -> Any:
    """Return NormalFloat of 4 bits with doubly quantised constants, computed in bfloat16 (arXiv:2305.14314)."""
    import torch
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def adapter(model: Any, parameters: TrainingParameters) -> Any | None:
    """Return the configuration of the granted adapters, None for full training; unknown modules are refused."""
    if parameters.method == "full":
        return None
    from peft import LoraConfig
    from torch import nn

    wanted = list(parameters.target_modules or ())
    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    ends = {name.rsplit(".", 1)[-1] for name in linear}
    unknown = sorted(one for one in wanted if not any(_is(name, one) for name in linear))
    if unknown:
        refuse(f"target_modules names {', '.join(unknown)}, the linear layers here are {', '.join(sorted(ends))}")
    return LoraConfig(
        r=parameters.lora_rank or 0,
        lora_alpha=parameters.lora_alpha or 0,
        lora_dropout=parameters.lora_dropout or 0.0,
        target_modules=wanted,
        bias="none",
        task_type="CAUSAL_LM",
    )


def _is(layer: str, module: str) -> bool:
    return layer == module or layer.endswith(f".{module}")


def save_trained(trained: Any, prepared: Prepared, source: Path, out: Path) -> dict[str, float]:
    """Save the checkpoint that later stages read; adapters are merged, and kept under ``adapter`` as well.

    Returns what the merging changed, as facts. A model of 4 bits is read again in bfloat16 before the merge.

    Raises:
        SystemExit: the merged model does not compute what the one with adapters computed, or no tokenizer was saved.
    """
    if prepared.adapter is None:
        checkpoint.save(trained, prepared.tokenizer, out)
        _require_tokenizer(out)
        return {}
    trained.eval()
    probe, facts = _probe(prepared.tokenizer), dict[str, float]()
    before = _logits(trained, probe)
    _save_adapter(trained, out / "adapter")
    if getattr(trained.get_base_model(), "is_loaded_in_4bit", False):
        trained = _read_again(source, out / "adapter", prepared.device)
        whole = _logits(trained, probe)
        # What training saw and what is kept differ by the rounding to 4 bits, which no merge can help.
        facts["quantisation_difference"] = _share(before, whole)
        before = whole
    merged = trained.merge_and_unload()
    facts["merge_difference"] = difference = _share(before, _logits(merged, probe))
    dtype = checkpoint.device_of(merged)[1]
    if not difference <= _MOST_DIFFERENCE[dtype]:
        raise SystemExit(f"merging the adapters changed logits by {difference:.3g} of the largest, in {dtype}")
    checkpoint.save(merged, prepared.tokenizer, out)
    _require_tokenizer(out)
    return facts


def _share(before: Any, after: Any) -> float:
    return float((before - after).abs().max() / before.abs().max())


def _probe(tokenizer: Any) -> Any:
    return tokenizer("The quick brown fox jumps over the lazy dog.", return_tensors="pt")["input_ids"]


def _logits(model: Any, ids: Any) -> Any:
    import torch

    with torch.no_grad():
        return model(ids.to(next(model.parameters()).device)).logits.float().cpu()


def _read_again(source: Path, adapter: Path, device: str) -> Any:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    whole: Any = AutoModelForCausalLM.from_pretrained(source, local_files_only=True, dtype=torch.bfloat16)
    return PeftModel.from_pretrained(whole.to(device), adapter).eval()


def _save_adapter(trained: Any, folder: Path) -> None:
    """Save adapters so that their digest depends on what was trained: no place of this job, lists in order."""
    trained.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = None
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _require_tokenizer(folder: Path) -> None:
    if not (folder / "tokenizer.json").is_file() and not (folder / "tokenizer_config.json").is_file():
        raise SystemExit(f"no tokenizer was saved in {folder}: the checkpoint could not be used")
