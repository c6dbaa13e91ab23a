"""Is there anything left to go on with? A stage that wrote data and kept none of it opens no gate."""

from __future__ import annotations

from typing import NamedTuple

from reviews.checks.definition import Check, Found, need
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from specs.digests import Contract
from specs.stages.artifacts import Example, Item, Preference
from specs.stages.metric import MetricSet
from specs.stages.registry import Kind


class Kept(NamedTuple):
    """The output of a kind of stage that later ones go on with."""

    output: str
    row: type[Contract]


OF: dict[Kind, Kept] = {
    "generate": Kept("accepted", Example),
    "instruct": Kept("instructions", Item),
    "respond": Kept("examples", Example),
    "critique_instructions": Kept("accepted", Item),
    "critique_responses": Kept("accepted", Example),
    "revise": Kept("preferences", Preference),
    "prefer": Kept("preferences", Preference),
    "prefer_verified": Kept("preferences", Preference),
}
"""Kind of stage -> what it writes."""


def _something(evidence: Evidence, metrics: MetricSet | None) -> Found:
    """Count what later stages will read; instructions that are held-out prompts are not among it."""
    output, row = OF[evidence.stage.kind]
    kept = len(read_rows(evidence.outputs.get(output), row, output, may_be_empty=True))
    left = min(kept, int(need(metrics, "instructions_left"))) if evidence.stage.kind == "instruct" else kept
    told = f"{kept} {output} were kept" + (f", {left} of them are handed on" if left < kept else "")
    if left > 0:
        return Found("PASS", told, float(left))
    return Found("FAIL", f"{told}: there is nothing to go on with", 0.0)


CHECKS = (
    Check(
        "health.kept",
        "Something was kept",
        tuple(OF),
        _something,
        "gates without a number: 30 examples where 100 to 200 were asked for, and scaled to 15,000 anyway",
    ),
)
