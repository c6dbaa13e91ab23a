"""How the memory of self-distillation grows with tokens and vocabulary: in pieces, from whole logits, and TRL's.

    .venv/bin/python -m bench.composer.growth --out bench/results/composer_growth.json

Medians of five runs of ``bench.composer.step`` over random models 128 wide, of which all weights are trained: the bytes
of the peak above that of a pass which comes back without the last layer.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.composer.step import LOSSES, runs_of

SETTINGS = ((8192, 256), (49_152, 64), (49_152, 256), (49_152, 1024), (151_936, 256))
"""The vocabulary, and the tokens of each of two answers."""
HIDDEN, LAYERS = 128, 4


def measured(vocabulary: int, tokens: int, namespace: argparse.Namespace) -> dict[str, Any]:
    """Return the peaks of all programs at one setting."""
    from bench.random_models import random_checkpoint
    from training.planning.model_shapes import Shape

    runs = namespace.runs and namespace.runs.with_name(f"{namespace.runs.name}.{vocabulary}.{tokens}")
    named = argparse.Namespace(**vars(namespace) | {"tokens": tokens, "runs": runs})
    with tempfile.TemporaryDirectory() as name:
        shape = Shape(LAYERS, HIDDEN, 3 * HIDDEN, 4, 2, vocabulary, tied=True)
        results = runs_of(LOSSES, random_checkpoint(Path(name) / "model", shape, "float32"), named)
    return {"vocabulary": vocabulary, "tokens": tokens * namespace.rows} | {
        program: [value["peak_bytes"] for value in some] for program, some in results.items()
    }


def table(results: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the table that pages quote: megabytes."""
    lines = ["| words | tokens | body | pieces above it | whole logits | TRL's loss |", "|---|---|---|---|---|---|"]
    for result in results:
        body, *others = (median(result[program]) / 1e6 for program in LOSSES)
        above = " | ".join(f"{other - body:,.0f}" for other in others)
        lines.append(f"| {result['vocabulary']:,} | {result['tokens']:,} | {body:,.0f} | {above} |")
    return lines


def main() -> int:
    """Print the table; with ``--out`` write what it is made of."""
    parser = argparse.ArgumentParser(prog="python -m bench.composer.growth", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    parser.add_argument("--runs", type=Path, help="where each run is kept: a file for each setting, named after this")
    namespace = parser.parse_args()
    fixed = argparse.Namespace(
        repeats=namespace.repeats, runs=namespace.runs, rows=2, prompt=32, threads=1, device="cpu", adapters=False
    )
    results: list[dict[str, Any]] = []
    for vocabulary, tokens in SETTINGS:
        results.append(measured(vocabulary, tokens, fixed))
        print("\n".join(table(results[-1:])[2:] if results[1:] else table(results)), flush=True)
    if namespace.out:
        namespace.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
