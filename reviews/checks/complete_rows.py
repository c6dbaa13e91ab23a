"""Is there one row for everything that was ordered, and is anything left for later stages?"""

from __future__ import annotations

from collections import Counter
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, need
from reviews.evidence.evidence import Evidence
from reviews.evidence.items import answers_per_item, items_of
from reviews.evidence.row_lines import answer_of
from reviews.evidence.row_reader import read_rows
from specs.stages.base.metric import MetricSet
from specs.stages.registry import kind_of
from specs.system.text import plural
from training.rules.tasks import choose

CHECKS = CheckRegistry(("generate", "evaluate", "multi_turn", "inspect", "lm_eval"))


@CHECKS.add(
    "health.complete",
    "Everything ordered has a row",
    source="an acceptance rate over rows that had been filtered before: 100 %, and meaningless",
)
def _check_complete(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the rows with the items that were to be answered, and with the samples of each prompt."""
    rows: tuple[Any, ...] = read_rows(evidence.outputs.get("rows"), kind_of(evidence.stage).rows["rows"], "rows")
    if "prompts" not in evidence.stage.inputs:
        sample_numbers = range(answers_per_item(evidence))
        counts = Counter((item.id, sample) for item in items_of(evidence) for sample in sample_numbers)
        return as_ordered(counts, Counter(map(answer_of, rows)), "answers")
    name = evidence.stage.inputs["prompts"].partition(".")[2]
    prompts = choose(evidence.data.get(name, ()), evidence.parameters.get("max_prompts"))
    samples = range(evidence.parameters.get("samples_per_prompt", 0))
    ordered = Counter((item.id, sample) for item in prompts for sample in samples)
    return as_ordered(ordered, Counter((row.item, row.sample) for row in rows), "samples")


def as_ordered(ordered: Counter[tuple[str, int]], counts: Counter[tuple[str, int]], what: str) -> CheckOutcome:
    """Compare the rows, by item and number, with the ordered rows."""
    if counts != ordered:
        missing, extra = (ordered - counts).total(), (counts - ordered).total()
        surplus = plural(extra, "row was", "rows were")
        detail = f"{ordered.total()} {what} were ordered; {missing} have no row, {surplus} not ordered"
        return CheckOutcome("FAIL", detail, float(missing + extra))
    return CheckOutcome("PASS", f"all {ordered.total()} ordered {what} have one row", float(ordered.total()))


@CHECKS.add(
    "health.kept",
    "The stage kept some rows",
    source="gates without a number: 30 examples instead of the requested 100 to 200, and scaled to 15,000 anyway",
    kinds=lambda kind: kind.required_output,
)
def _check_kept(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Count what later stages will read; instructions that are held-out prompts are not among it."""
    declared = kind_of(evidence.stage).required_output
    if declared is None:
        return CheckOutcome("NOT_APPLICABLE", "no later stage reads its outputs")
    output = declared.output
    count = len(read_rows(evidence.outputs.get(output), declared.row, output, may_be_empty=True))
    remaining = min(count, int(need(metrics, declared.count_metric))) if declared.count_metric else count
    message = f"{count} {output} were kept" + (f", {remaining} of them are handed on" if remaining < count else "")
    if remaining > 0:
        return CheckOutcome("PASS", message, float(remaining))
    return CheckOutcome("FAIL", f"{message}: nothing is left for later stages", 0.0)
