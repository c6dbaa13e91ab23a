"""The judge of ``generate`` stages."""

from __future__ import annotations

from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import ROWS, Part, every, part
from reviews.evidence.row_reader import ROW_CHARACTERS, read_rows
from reviews.stages.generation.measure import accepted_rows
from reviews.stages.generation.measure import measure_generation as measure
from specs.stages.generation.rows import GenerationRow
from specs.text import plain

__all__ = ["measure", "shown", "trace"]


def trace(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the lines of a metric; errors as :func:`accepted_rows`."""
    rows = read_rows(evidence.outputs.get("rows"), GenerationRow, "generation rows")
    if metric == "generate_truncation_rate":
        return (part("hit the token limit", rows, lambda row: row.truncated),)
    if metric == "samples":
        return (every("every sample", rows),)
    # Both are in the order of the file, so the next accepted row is the next one that equals it.
    accepted = list(accepted_rows(evidence)[1])
    lines: list[int] = []
    repeated: list[int] = []
    seen: set[tuple[str, str]] = set()
    for number, row in enumerate(rows, 1):
        if not accepted or row != accepted[0]:
            continue
        accepted.pop(0)
        lines.append(number)
        answer = row.prompt, row.completion.strip()
        if answer in seen:
            repeated.append(number)
        seen.add(answer)
    found = [Part("end by themselves and are accepted by the verifier", ROWS, tuple(lines), len(rows))]
    if metric != "acceptance_rate":
        found.append(Part("of these, say what an earlier one says", ROWS, tuple(repeated), len(rows)))
    return tuple(found)


def shown(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every sample, and whether it was accepted; errors as :func:`accepted_rows`."""
    rows, accepted = accepted_rows(evidence)
    kept = {id(row) for row in accepted}
    return [
        {
            "item": row.item,
            "prompt": plain(row.prompt, ROW_CHARACTERS),
            "completion": plain(row.completion, ROW_CHARACTERS),
            "truncated": row.truncated,
            "accepted": id(row) in kept,
        }
        for row in rows
    ]
