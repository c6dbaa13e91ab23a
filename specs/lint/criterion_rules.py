"""Rules for the criteria of a spec: is each one there, possible, and not in another's way?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from specs.session.session_spec import SessionSpec
from specs.stages.base.metric import RowMetric
from specs.stages.base.stage import Criterion
from specs.stages.metric_catalog import METRICS, metrics_of
from specs.stages.registry import Stage, kind_of
from specs.system.yaml.problems import LintProblem, Loc, closest

_UPPER = ("at_most", "below")
_BOUNDS = ("at_least", "above", *_UPPER)
_COUNTS = (
    *("completions", "kinds", "items", "model tokens", "optimizer steps", "L2 norm"),
    *("sentinels", "prompts", "calls", "instructions", "answers", "words"),
)


KEPT_COUNTS = (
    *("accepted", "instructions_kept", "instructions_left", "responses_kept", "instructions_accepted"),
    *("responses_accepted", "revision_pairs", "pairs", "verified_pairs", "trace_pairs"),
)
"""What stages that write data have kept: at 0 their gate stays shut, whatever is registered."""


def lint_criteria(spec: SessionSpec, _: int, stage: Stage) -> Iterator[LintProblem]:
    """Criteria have one bound that can be met, on a metric the stage measures, and do not contradict each other."""
    seen_pairs: list[tuple[str, Criterion]] = []
    for number, criterion in enumerate(stage.gate.criteria):
        loc: Loc = ("gate", "criteria", number)
        yield from lint_bound(spec, stage, criterion, loc)
        if len(texts := _list_bounds(criterion)) != 1:
            continue
        yield from _nothing_kept(criterion, texts[0], loc)
        yield from _check_registered_thresholds(spec, stage, criterion, loc)
        clashes = (_clash(other, criterion, where) for where, other in seen_pairs)
        if message := next(filter(None, clashes), ""):
            yield LintProblem(loc, message, "keep one of the two")
        seen_pairs.append((f"criteria[{number}]", criterion))


def lint_bound(spec: SessionSpec, stage: Stage, criterion: Criterion, loc: Loc) -> Iterator[LintProblem]:
    """A criterion has one bound that can be met, on a metric the stage measures."""
    yield from _metric(spec, stage, criterion, loc)
    texts = _list_bounds(criterion)
    if len(texts) == 1:
        yield from _impossible(criterion, texts[0], loc)
        return
    text = f"has {' and '.join(texts)}" if texts else "has no bound"
    message = f"the criterion on {criterion.metric} {text}"
    yield LintProblem(loc, message, f"give one of {', '.join(_BOUNDS)}")


def _list_bounds(criterion: Criterion) -> list[str]:
    return [name for name in _BOUNDS if getattr(criterion, name) is not None]


def _metric(spec: SessionSpec, stage: Stage, criterion: Criterion, loc: Loc) -> Iterator[LintProblem]:
    absent = _absent(stage)
    if spec.analysis.test != "exact_mcnemar":
        absent["mcnemar_p"] = "analysis.test: exact_mcnemar"
    compared = metrics_of("comparison") if stage.name == spec.analysis.treatment else []
    measured = [text for text in (*metrics_of(stage.kind), *compared) if text not in absent]
    if criterion.metric in measured:
        return
    definition = METRICS.get(criterion.metric)
    hint = f"measured here: {', '.join(measured)}"
    if definition is None:
        match = closest(criterion.metric, measured) or closest(criterion.metric, METRICS)
        hint = f"did you mean '{match}'? {hint}" if match else hint
        message = f"unknown metric '{criterion.metric}'"
    elif parameter := absent.get(criterion.metric):
        message, hint = f"'{criterion.metric}' is measured only with {parameter}", f"give {parameter}, or omit it"
    elif definition.scope == "rule":
        message = (
            f"'{criterion.metric}' is judged by what analysis registers (kinds, controls, arms), not by a criterion"
        )
    elif definition.scope == "comparison":
        message = f"'{criterion.metric}' is measured only at the treatment stage '{spec.analysis.treatment}'"
    else:
        message = f"'{criterion.metric}' is measured by {definition.scope} stages, this one is {stage.kind}"
    yield LintProblem((*loc, "metric"), message, hint)


def _absent(stage: Stage) -> dict[str, str]:
    """Return the metrics of outputs that a stage of the kind has only with a parameter that is not set here."""
    kind = kind_of(stage)
    unset = [value for value in kind.conditional_ports if not value.is_set(stage.parameters)]
    where = {output: value.where for value in unset for output in value.outputs}
    results = {metric.id: where.get(metric.output, "") for metric in kind.metrics if isinstance(metric, RowMetric)}
    results["accuracy_at_k"] = "k" if getattr(stage.parameters, "k", 0) is None else ""
    return {id: parameter for id, parameter in results.items() if parameter}


def _domain(metric: str) -> tuple[float, float]:
    """Return the smallest and largest value a metric can have."""
    definition = METRICS.get(metric)
    if definition is None:
        return -math.inf, math.inf
    if metric == "accuracy_gain":
        return -1.0, 1.0
    if definition.unit in ("fraction", "probability"):
        return 0.0, 1.0
    if definition.unit == "radians":
        return -math.pi, math.pi
    return (0.0, math.inf) if definition.unit in _COUNTS else (-math.inf, math.inf)


def _impossible(criterion: Criterion, bound: str, loc: Loc) -> Iterator[LintProblem]:
    low, high = _domain(criterion.metric)
    _, value = criterion.get_bound()
    if low <= value <= high and not (bound == "above" and value == high) and not (bound == "below" and value == low):
        return
    unit = METRICS[criterion.metric].unit
    between = f"from {low:g} to {high:g}" if math.isfinite(high) else f"{low:g} or more"
    hint = "write 0.9 for 90 percent" if unit == "fraction" and 1 < value <= 100 else ""
    message = f"'{criterion}' makes no sense: {criterion.metric} ({unit}) is always {between}"
    yield LintProblem((*loc, bound), message, hint)


def _nothing_kept(criterion: Criterion, bound: str, loc: Loc) -> Iterator[LintProblem]:
    """A gate stays shut where nothing was kept, so a criterion that only nothing can meet is met by no attempt."""
    most = criterion.get_bound()[1]
    if criterion.metric in KEPT_COUNTS and bound in _UPPER and (most < 1 or (bound == "below" and most == 1)):
        message = f"'{criterion}' is met only where nothing was kept, and then the gate stays shut"
        yield LintProblem((*loc, bound), message, "allow 1 or more, or remove the criterion")


def _check_registered_thresholds(
    spec: SessionSpec, stage: Stage, criterion: Criterion, loc: Loc
) -> Iterator[LintProblem]:
    """The treatment's gate may not move the thresholds of the registered analysis."""
    analysis = spec.analysis
    if stage.name != analysis.treatment:
        return
    sign, value = criterion.get_bound()
    lower = sign in (">=", ">")
    if criterion.metric == "mcnemar_p" and (lower or value != analysis.alpha):
        registered = f"mcnemar_p below alpha = {analysis.alpha:g}"
    elif criterion.metric == "accuracy_gain" and (
        value != analysis.minimum_effect if lower else value <= analysis.minimum_effect
    ):
        registered = f"accuracy_gain against minimum_effect = {analysis.minimum_effect:g}"
    else:
        return
    message = f"'{criterion}' contradicts the registered analysis, which already holds {registered}"
    yield LintProblem(loc, message, "remove the criterion")


def _clash(first: Criterion, second: Criterion, where: str) -> str:
    """Return why two criteria cannot be together: a repetition, two thresholds on one side, an empty interval."""
    if first.metric != second.metric:
        return ""
    (sign, value), (other_sign, other_value) = second.get_bound(), first.get_bound()
    if (sign, value) == (other_sign, other_value):
        return f"'{second}' repeats {where}"
    lower, other_lower = sign in (">=", ">"), other_sign in (">=", ">")
    if lower == other_lower:
        side = "lower" if lower else "upper"
        return f"'{second}' is a second {side} bound after '{first}' ({where})"
    low, high = (value, other_value) if lower else (other_value, value)
    if low > high or (low == high and {sign, other_sign} != {">=", "<="}):
        return f"'{second}' contradicts '{first}' ({where}): no value meets both"
    return ""
