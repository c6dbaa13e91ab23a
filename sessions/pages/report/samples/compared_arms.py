"""Both arms of the registered comparison, item by item: what the report counts of each kind, and shows as examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reviews.evidence.gather import gather
from reviews.evidence.subgroups import count_right, each_kind
from reviews.history.history import History
from reviews.stages.evaluation.judged_answers import Answered, pair_answers, read_judged_items
from specs.system.errors import EvidenceMissing
from specs.trail.gate_bodies import MetricsEntry
from training.rules.tasks.conversation import user_turns_of

Arms = tuple[tuple[Answered, ...], tuple[Answered, ...]]
"""The judged rows of the registered comparison: baseline, treatment."""


def arms_of(run: Path, history: History) -> Arms | None:
    """Return the judged rows of both arms; None if the comparison was not reached."""
    treatment = history.resolved.spec.analysis.treatment
    attempts = [entry.body.attempt for entry in history.of(MetricsEntry) if entry.body.stage == treatment]
    if not attempts:
        return None
    evidence = gather(run, history, treatment, attempts[-1])
    try:
        return read_judged_items(evidence, evidence.baseline_rows), read_judged_items(
            evidence, evidence.outputs.get("rows")
        )
    except EvidenceMissing:
        return None


def by_kind(arms: Arms | None) -> dict[str, dict[str, Any]]:
    """Return each kind's counts and test; gained and lost are the discordant cells of McNemar's table."""
    pairs = pair_answers(zip(*arms, strict=True)) if arms else ()
    return {
        value.part.kind: {
            "items": value.part.n,
            "baseline": count_right(pair.before for pair in pairs if pair.kind == value.part.kind),
            "treatment": count_right(pair.after for pair in pairs if pair.kind == value.part.kind),
            "gained": value.part.gained,
            "lost": value.part.lost,
            "p": value.p,
            "p_adjusted": value.adjusted,
        }
        for value in each_kind(pairs)
    }


def examples_of(arms: Arms | None) -> list[dict[str, Any]]:
    """Return one item of each constraint kind, at a fixed place, whatever its result."""
    by_kind: dict[str, list[tuple[Answered, Answered]]] = {}
    for pair in zip(*arms, strict=True) if arms else ():
        by_kind.setdefault(pair[0].item.kind, []).append(pair)
    chosen = [pairs[index * len(pairs) // len(by_kind)] for index, pairs in enumerate(by_kind.values())]
    return [
        {
            "prompt": " / ".join(user_turns_of(before.item)),
            "before": before.text,
            "before_passed": before.passed,
            "after": after.text,
            "after_passed": after.passed,
        }
        for before, after in chosen
    ]
