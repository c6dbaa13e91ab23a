"""Where the demo's seconds go, next to a plain script of transformers and TRL that does its jobs and checks nothing.

    .venv/bin/python -m bench.plain_demo [RUN]      # five to eleven minutes on two quiet cores

The script has the demo's items, prompts, limits and settings: greedy answers before and after, three samples of each
training prompt, SFT on answers that pass. Batches are written by ``generate``, in the order of the file. The session is
RUN, by default that of the last `make demo`; its seconds are those of its trail.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from reviews.trail.tables.open_table import read_entries
from sessions.run.run_layout import TRAIL
from specs.stages.base.artifacts import Item
from specs.system.home import HOME
from training.rules.tasks import judge_answers, load_items, worked_example

RUN = HOME / "runs" / "demo"
DATA = HOME / "specs" / "library" / "data"
TASK = "format_instructions"
PARTS = ("model", "job", "witness", "gate and rest")


def turns_of(item: Item, *, worked: bool) -> list[dict[str, str]]:
    """Return the turns of a prompt, after those of a worked example if wanted."""
    before = zip(("user", "assistant"), worked_example(TASK, item), strict=True) if worked else ()
    return [{"role": role, "content": text} for role, text in (*before, ("user", item.prompt))]


def answer(
    model: Any, tokenizer: Any, items: Sequence[Item], batch: int, *, worked: bool = False, **settings: Any
) -> list[tuple[Item, str]]:
    """Return the answers to items, written in batches of so many prompts."""
    written: list[tuple[Item, str]] = []
    for start in range(0, len(items), batch):
        chunk = items[start : start + batch]
        turns = [turns_of(item, worked=worked) for item in chunk]
        inputs = tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        out = model.generate(**inputs, max_new_tokens=64, pad_token_id=tokenizer.pad_token_id, **settings)
        texts = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        texts_per_item = len(texts) // len(chunk)
        written += [(chunk[place // texts_per_item], text) for place, text in enumerate(texts)]
    return written


def passing(answers: Sequence[tuple[Item, str]]) -> list[tuple[Item, str]]:
    """Return the answers that the task's verifier passes."""
    judgements = judge_answers(TASK, answers)
    return [pair for pair, judgement in zip(answers, judgements, strict=True) if judgement.passed]


def train(model: Any, tokenizer: Any, examples: Sequence[tuple[Item, str]]) -> Any:
    """Train on at most 24 examples of each kind, and return the model."""
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    counts, rows = Counter[str](), list[dict[str, Any]]()
    for item, text in examples:
        counts[item.kind] += 1
        if counts[item.kind] <= 24:
            rows.append(
                {"prompt": turns_of(item, worked=False), "completion": [{"role": "assistant", "content": text.strip()}]}
            )
    with tempfile.TemporaryDirectory() as folder:
        config = SFTConfig(
            output_dir=folder, per_device_train_batch_size=8, learning_rate=2e-5, num_train_epochs=1, seed=11,
            activation_checkpointing=False, bf16=False, use_cpu=True, save_strategy="no", report_to="none",
            disable_tqdm=True,
        )  # fmt: skip
        SFTTrainer(model=model, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer).train()
    return model.eval()


def measure() -> dict[str, float]:
    """Run the parts and return their seconds; print how many answers pass before and after."""
    from testing.fixtures.real_model import smollm2_checkpoint
    from training.engines.checkpoint import import_libraries, load

    import_libraries()
    seconds, began = dict[str, float](), time.perf_counter()

    def lap(name: str) -> None:
        nonlocal began
        seconds[name], began = time.perf_counter() - began, time.perf_counter()

    heldout, prompts = (load_items(DATA / f"format_{part}.jsonl") for part in ("heldout", "train"))
    model, tokenizer = load(smollm2_checkpoint())
    tokenizer.padding_side = "left"
    lap("load")
    before = passing(answer(model, tokenizer, heldout, 32, do_sample=False))
    lap("baseline")
    drawn: dict[str, Any] = {"do_sample": True, "temperature": 0.7, "top_k": 0, "num_return_sequences": 3}
    passed = passing(answer(model, tokenizer, prompts, 16, worked=True, **drawn))
    examples = list({(item.id, text): (item, text) for item, text in passed}.values())
    lap("generate")
    model = train(model, tokenizer, examples)
    lap("sft")
    after = passing(answer(model, tokenizer, heldout, 32, do_sample=False))
    lap("evaluate")
    print(f"{len(before)} of {len(heldout)} before, {len(after)} after, {len(examples)} examples")
    return seconds


def seconds_of(run: Path) -> dict[str, dict[str, float]]:
    """Return the seconds between the entries of a session's trail, by stage and by what was done."""
    parts: dict[str, dict[str, float]] = {}
    stage, entries = "", read_entries(run / TRAIL)
    for before, entry in pairwise(entries):
        match = re.search(r"(?:^|[/.])([a-z_]+)\.\d+(?:\.witness)?(?:/|$)", entry.key)
        stage = match[1] if match else stage
        what = {"exit": "job", "witness": "witness", "model": "model"}.get(entry.kind, "gate and rest")
        row = parts.setdefault(stage or "begin", {})
        row[what] = row.get(what, 0.0) + (entry.time_ns - before.time_ns) / 1e9
    return parts


def main() -> None:
    """Print the seconds of each part and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path, default=RUN, help="the session (default: that of `make demo`)")
    run = parser.parse_args().run
    session = seconds_of(run) if (run / TRAIL).exists() else {}
    plain = measure()
    print(f"| | {' | '.join(PARTS)} | plain script |\n|---|{'---|' * (len(PARTS) + 1)}")
    for stage in [*session, *(name for name in plain if name not in session)]:
        cells = [session.get(stage, {}).get(part) for part in PARTS] + [plain.get(stage)]
        print(f"| {stage} | {' | '.join('' if cell is None else f'{cell:.1f}' for cell in cells)} |")
    sums = [sum(row.get(part, 0) for row in session.values()) for part in PARTS]
    print(f"| all: {sum(sums):.1f} | {' | '.join(f'{value:.1f}' for value in sums)} | {sum(plain.values()):.1f} |")


if __name__ == "__main__":
    main()
