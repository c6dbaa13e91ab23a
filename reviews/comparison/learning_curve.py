"""What more training data would buy: a forecast from the same training on fewer examples."""

from __future__ import annotations

from typing import Any, NamedTuple

from reviews.checks.definition import CheckOutcome, CheckRegistry
from reviews.evidence.evidence import Evidence
from reviews.stages.evaluation.judged_answers import Answered, read_judged_items, share_right
from reviews.statistics.curve_fit import UndeterminedCurve, forecast
from reviews.statistics.mcnemar import wilson
from specs.session.evaluation_plan import LearningCurve
from specs.stages.base.metric import MetricSet
from specs.system.errors import EvidenceMissing

CHECKS = CheckRegistry(lambda kind: kind.arm, only_treatment=True)


class CurvePoint(NamedTuple):
    """A training, and how its checkpoint answered."""

    name: str
    examples: int
    parameters: dict[str, Any]
    """What was granted of the training, but for the number of examples."""
    answers: tuple[Answered, ...]


@CHECKS.add(
    "curve.forecast",
    "More training data would gain accuracy",
    source="ten times the data bought on a hope; Hestness et al. 2017, arXiv:1712.00409",
    blocking=False,
)
def _check_forecast(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Fit the registered curve to the arms and the treatment, and read it at the registered number of examples."""
    curve = evidence.resolved.spec.analysis.learning_curve
    if curve is None:
        return CheckOutcome("NOT_APPLICABLE", "no learning curve is registered")
    points = sorted(_points(evidence, curve), key=lambda point: point.examples)
    if other := [point.name for point in points if point.parameters != points[-1].parameters]:
        return CheckOutcome("WARN", f"not determined: '{other[0]}' and '{points[-1].name}' were trained differently")
    sizes = [point.examples for point in points]
    passed = [[answer.passed for answer in point.answers] for point in points]
    rows = [_row_of(point) for point in points]
    try:
        result = forecast(sizes, passed, [answer.item.group for answer in points[0].answers], curve.at, curve.form)
    except UndeterminedCurve as error:
        return CheckOutcome("WARN", f"not determined: {error}", None, tuple(rows))
    rows = [row | {"fitted": fitted} for row, fitted in zip(rows, result.fitted, strict=True)]
    (low, high), (gain_low, gain_high) = result.interval, result.gain_interval
    ratio = curve.at / sizes[-1]
    rows.append(
        {"name": "forecast", "examples": curve.at, "accuracy": result.accuracy, "low": low, "high": high,
         "gain": result.gain, "gain_low": gain_low, "gain_high": gain_high, "ratio": ratio, "form": curve.form}
    )  # fmt: skip
    detail = (
        f"{curve.at} examples, {ratio:.3g} times the most that were trained on: accuracy {result.accuracy:.3f} "
        f"[{low:.3f}, {high:.3f}], gain {result.gain:+.3f} [{gain_low:+.3f}, {gain_high:+.3f}] by a {curve.form} curve "
        f"through {len(points)} trainings of one seed; a forecast, and no claim"
    )
    if gain_low > 0:
        return CheckOutcome("PASS", detail, result.gain, tuple(rows))
    return CheckOutcome("WARN", f"no gain expected, the interval includes 0: {detail}", result.gain, tuple(rows))


def _points(evidence: Evidence, curve: LearningCurve) -> list[CurvePoint]:
    """Return the points of the curve.

    Raises:
        EvidenceMissing: an arm or a training has no accepted attempt, or does not state its examples.
    """
    spec, points = evidence.resolved.spec, list[CurvePoint]()
    names = (*curve.arms, "treatment")
    for name, stage in zip(names, spec.analysis.list_curve_stages(), strict=True):
        arm, training = evidence.arms.get(stage), spec.trained_for(stage)
        trained = evidence.arms.get(training.name) if training else None
        rows = evidence.outputs.get("rows") if stage == spec.analysis.treatment else arm.rows if arm else None
        if rows is None or trained is None or trained.manifest is None:
            raise EvidenceMissing(f"'{name}' of the learning curve has no accepted attempt, or its training has none")
        # Counted again at the gate of the training (training.data, dpo.split).
        facts = trained.manifest.facts
        examples = facts.get("examples", facts.get("pairs"))
        if not isinstance(examples, int) or examples < 1:
            raise EvidenceMissing(f"the training of '{name}' does not state its examples")
        parameters = {key: value for key, value in trained.parameters.items() if key != "max_examples_per_kind"}
        answers = read_judged_items(evidence, rows, f"rows of '{name}'")
        points.append(CurvePoint(name, examples, parameters, answers))
    return points


def _row_of(point: CurvePoint) -> dict[str, Any]:
    shares = share_right(point.answers)
    right = float(sum(shares))
    low, high = wilson(right, len(shares))
    return {"name": point.name, "examples": point.examples, "accuracy": right / len(shares), "low": low, "high": high}
