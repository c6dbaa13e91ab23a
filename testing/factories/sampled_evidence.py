"""Evidence of arms that answer each held-out item several times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from testing.factories.evidence_on_disk import N, answers, evidence_of, write_rows

EACH = 4
"""Answers to each item."""
GREEDY = "parameters: {max_new_tokens: 32, seed: 7}\n"
_DRAWN = f"temperature: 0.7, samples_per_item: {EACH}"


def sampled_parameters(drawn: str = _DRAWN) -> str:
    """Return the parameters of an arm that answers each item several times."""
    return GREEDY.replace("seed", f"{drawn}, seed")


def sampled_spec(drawn: str = _DRAWN) -> tuple[tuple[str, str], ...]:
    """Return the changes by which both arms of the small spec answer several times, and the test that fits."""
    parameters = sampled_parameters(drawn)
    return (
        ("  alpha: 0.05\n", "  test: sign_flip\n  alpha: 0.05\n"),
        (f"{GREEDY}    gate", f"{parameters}    gate"),
        (f"{GREEDY}  - name: ship", f"{parameters}  - name: ship"),
    )


def sampled_answers(right: Sequence[int], samples_per_item: int = EACH) -> list[dict[str, Any]]:
    """Return rows of which so many of each item are right, item by item."""
    rows: list[list[dict[str, Any]]] = [
        [
            row | ({"sample": sample} if sample else {}) | {"output": f"{row['output']} {sample}"}
            for row in answers([sample < count for count in right])
        ]
        for sample in range(samples_per_item)
    ]
    return [row for of_item in zip(*rows, strict=True) for row in of_item]


def sampled_arms(
    folder: Path, before: Sequence[int] = (0,) * N, after: Sequence[int] = (EACH,) * 10 + (0,) * 2, drawn: str = ""
) -> Evidence:
    """Return the treatment's evidence; ``before`` and ``after`` say how many answers to each item are right."""
    spec = sampled_spec(drawn) if drawn else sampled_spec()
    evidence = evidence_of(folder, "tuned", sampled_answers(after), spec=spec)
    return replace(evidence, baseline_rows=write_rows(folder / "before.jsonl", sampled_answers(before)))
