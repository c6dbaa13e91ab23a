"""Checks of what ``generate`` sampled: is all of it there, was it cut, was what is kept accepted?"""

from __future__ import annotations

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, need_exact
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from reviews.stages.generation.generate import judged_rows
from specs.stages.base.artifacts import Example
from specs.stages.base.metric import MetricSet
from specs.system.exact import holds
from specs.system.text import plural

CHECKS = CheckRegistry(("generate",))


@CHECKS.add("health.accepted", "The kept examples are those the verifier accepts", source="edited training data")
def _check_accepted_examples(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the kept examples with what the verifier accepts when it is asked again."""
    examples = read_rows(evidence.outputs.get("accepted"), Example, "accepted examples", may_be_empty=True)
    ours = {judged_row.answer for judged_row in judged_rows(evidence) if judged_row.accepted}
    theirs = [(example.prompt, example.completion) for example in examples]
    wrong = [example for example in examples if (example.prompt, example.completion) not in ours]
    if wrong:
        visible = tuple(
            {"item": example.item, "sample": example.sample, "completion": example.completion} for example in wrong
        )
        return CheckOutcome(
            "FAIL",
            f"{plural(len(wrong), 'kept example is', 'kept examples are')} not accepted by the verifier",
            float(len(wrong)),
            visible,
        )
    if set(theirs) != ours or len(theirs) != len(ours):
        return CheckOutcome(
            "FAIL",
            f"{plural(len(theirs), 'example was', 'examples were')} kept, the verifier accepts {len(ours)}",
            float(len(theirs)),
        )
    return CheckOutcome("PASS", f"the verifier accepts all {len(ours)} kept examples and no others", float(len(ours)))


@CHECKS.add(
    "health.samples",
    "Few samples hit the token limit",
    source="token-limit hits in generated data",
    blocking=False,
    limits=(CheckLimit("<=", "thresholds.truncated_samples"),),
)
def _check_samples(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    rate = need_exact(metrics, "generate_truncation_rate")
    rows = [judged_row.row for judged_row in judged_rows(evidence)]
    visible = tuple({"item": row.item, "completion": row.completion} for row in rows if row.truncated)
    status = "PASS" if holds(rate, "<=", evidence.resolved.spec.thresholds.truncated_samples) else "WARN"
    return CheckOutcome(status, f"{float(rate):.3f} of the samples hit the token limit", float(rate), visible)
