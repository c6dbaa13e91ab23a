"""The judge of ``multi_turn`` stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import ROW_CHARACTERS
from reviews.stages.evaluation.measure import held
from reviews.stages.evaluation.measure import measure_conversations as measure
from reviews.stages.evaluation.trace import conversations as trace
from specs.session.evaluation_plan import Outcome
from specs.text import plain

__all__ = ["measure", "outcomes", "shown", "trace"]


def outcomes(evidence: Evidence, path: Path | None, outcome: Outcome) -> list[float]:
    """Return whether each conversation passes, or how many of its turns do; errors as :func:`held`."""
    talks = held(evidence, path)
    if outcome == "binary":
        return [float(one.passed) for one in talks]
    return [float(sum(turn.passed for turn in one.turns)) for one in talks]


def shown(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every conversation with its judgement; errors as :func:`held`."""
    return [
        {
            "item": one.item.id,
            **{
                f"turn_{number}": plain(f"{turn.user}\n-> {turn.output}", ROW_CHARACTERS)
                for number, turn in enumerate(one.row.turns, 1)
            },
            "truncated": any(turn.truncated for turn in one.row.turns),
            "passed": one.passed,
            "reason": plain("; ".join(turn.reason for turn in one.turns if not turn.passed), ROW_CHARACTERS),
        }
        for one in held(evidence, evidence.outputs.get("rows"))
    ]
