"""The measurer: every metric, from raw rows only. What a job or a builder says about itself never enters here.

Outputs are judged again by the registered verifier; definitions stand in ``specs/stages/metric_catalog.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from reviews.checks.measuring_code import measuring_code
from reviews.comparison.arms import measure_comparison
from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import Measured, metric_of
from reviews.stages.critique.measure import measure_critiques, measure_prefer, measure_revise, measure_verified
from reviews.stages.evaluation.judged_answers import judged_rows, measure_answers
from reviews.stages.evaluation.measure import measure_evaluation
from reviews.stages.finetuning.measure import measure_dpo, measure_sft
from reviews.stages.generation.measure import measure_generation, measure_guard, measure_instruct, measure_respond
from reviews.stages.packaging.measure import measure_package
from reviews.stages.recipes.measure import measure_recipe
from reviews.stages.sampled_rows import COUNTED, measure_sampled
from specs.digests import digest_file
from specs.errors import EvidenceMissing
from specs.stages.metric import MetricSet
from specs.stages.registry import Kind
from specs.text import plain


def measure(evidence: Evidence) -> MetricSet:
    """Compute every metric of the attempt's stage kind, and the comparison at the treatment stage.

    Raises:
        EvidenceMissing: raw rows are absent, unreadable, or not one per registered item.
    """
    stage = evidence.stage
    rows = {stage.name: evidence.output_digests["rows"]} if "rows" in evidence.output_digests else {}
    try:
        values = _MEASURERS[stage.kind](evidence)
        values |= measure_sampled(evidence) if stage.kind in COUNTED else {}
        metrics = {id: metric_of(id, measured) for id, measured in values.items()}
    except EvidenceMissing:
        raise
    except Exception as error:
        # Whatever rows can do to the arithmetic, they are no evidence then; a gate closes, and no session breaks off.
        raise EvidenceMissing(f"they cannot be measured: {plain(str(error), 200)}", where="raw rows") from error
    if stage.name == evidence.resolved.spec.analysis.treatment and evidence.baseline_rows is not None:
        rows["baseline"] = digest_file(evidence.baseline_rows)
    return MetricSet(
        stage=stage.name,
        attempt=evidence.attempt,
        rows=rows,
        code=measuring_code(),
        metrics=metrics,
    )


def _answers(evidence: Evidence) -> dict[str, Measured]:
    values = measure_answers(judged_rows(evidence, evidence.outputs.get("rows")))
    if evidence.stage.name == evidence.resolved.spec.analysis.treatment:
        values |= measure_comparison(evidence)
    return values


def _talks(evidence: Evidence) -> dict[str, Measured]:
    values = measure_evaluation(evidence)
    if evidence.stage.name == evidence.resolved.spec.analysis.treatment:
        values |= measure_comparison(evidence)
    return values


_MEASURERS: dict[Kind, Callable[[Evidence], dict[str, Measured]]] = {
    "guard": measure_guard,
    "instruct": measure_instruct,
    "respond": measure_respond,
    "critique_instructions": lambda evidence: measure_critiques(evidence, "instructions"),
    "critique_responses": lambda evidence: measure_critiques(evidence, "responses"),
    "revise": measure_revise,
    "prefer": measure_prefer,
    "prefer_verified": measure_verified,
    "generate": measure_generation,
    "sft": measure_sft,
    "dpo": measure_dpo,
    "evaluate": _answers,
    "perplexity": measure_evaluation,
    "choose": measure_evaluation,
    "compare": measure_evaluation,
    "converse": _talks,
    "package": measure_package,
    "recipe": measure_recipe,
}
