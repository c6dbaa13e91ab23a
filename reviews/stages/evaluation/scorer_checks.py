"""Is the scorer of this stage admitted, and does a gain hold among answers of equal length?"""

from __future__ import annotations

from collections.abc import Mapping

from reviews.checks.definition import Check, Found, listed, need, need_exact
from reviews.checks.limit import Limit
from reviews.evidence.evidence import Evidence
from reviews.evidence.items import task_of
from reviews.stages.evaluation.judged_answers import answered
from reviews.stages.evaluation.scorer_admission import Verdict, admission, labelled_cases, length_ratio, verdicts_on
from reviews.statistics import mcnemar
from specs.errors import EvidenceMissing
from specs.exact import holds
from specs.session.session_spec import SessionSpec
from specs.session.thresholds import Thresholds
from specs.stages.artifacts import Item
from specs.stages.metric import MetricSet
from training.rules.tasks import strict_verifier, verifier
from training.rules.tasks.verifier_cases import cases_of

SOURCE = "a length limit that passed for a label: 57 gained, 2 lost, p = 2e-12, and every gain was an answer cut short"
LIMITS = (
    Limit(">=", "thresholds.scorer_agreement"),
    Limit("<=", "thresholds.scorer_length"),
    Limit(">=", "thresholds.scorer_labelled"),
    Limit(">=", "thresholds.scorer_sides"),
    Limit("<=", "thresholds.scorer_matched"),
)


def admitted(spec: SessionSpec, task: str, data: Mapping[str, tuple[Item, ...]]) -> Found:
    """Hold a task's verifier against its known answers, and against the registered labelled sample if there is one.

    Args:
        spec: names the sample, which is for the verifier of the spec's own task, and the thresholds.
        task: whose verifier it is.
        data: the registered data files.

    Raises:
        EvidenceMissing: the labelled sample cannot be read, or is too small to say anything.
    """
    judge = verifier(task)
    try:
        cases = list(cases_of(task))
    except KeyError:
        raise EvidenceMissing(f"the verifier of '{task}' has no known answers") from None
    known = verdicts_on(cases, strict_verifier(task))
    wrong = [one for one in known if one.passed != one.label]
    if wrong:
        shown = tuple({"case": one.name, "label": one.label, "passed": one.passed} for one in wrong)
        told = f"'{task}' misjudges {len(wrong)} of {len(known)} known answers: {listed(one.name for one in wrong)}"
        return Found("FAIL", told, float(len(wrong)), shown, repairable=False)
    right = f"'{task}' judges all {len(known)} known answers right"
    plan = spec.evaluation
    if plan is None or plan.labelled is None or task != spec.task:
        return Found("PASS", f"{right}; no labelled sample is registered", 1.0)
    if plan.labelled not in data:
        raise EvidenceMissing(f"there is no data file '{plan.labelled}' with labelled answers")
    return _on_sample(right, verdicts_on(labelled_cases(data[plan.labelled]), judge), spec.thresholds)


def _on_sample(right: str, verdicts: tuple[Verdict, ...], thresholds: Thresholds) -> Found:
    found, least, most = admission(verdicts, thresholds), thresholds.scorer_agreement, thresholds.scorer_length
    detail = (
        f"{right}; on {found.n} labelled ones kappa {found.agreement.kappa:.2f} "
        f"[{found.agreement.interval[0]:.2f}, {found.agreement.interval[1]:.2f}], among {found.matched.n // 2} pairs "
        f"of equal length {found.matched.kappa:.2f}; correlation with length {found.length:+.2f}"
    )
    faults: list[str] = []
    if not holds(found.agreement.exact, ">=", least):
        faults.append(f"kappa is below {least:g}")
    if not holds(found.covered, ">=", thresholds.scorer_sides) or not found.matched.n:
        faults.append("good and bad answers differ in length, so that a ruler would agree with them too")
    elif not holds(found.matched.exact, ">=", least):
        faults.append(f"kappa among answers of equal length is below {least:g}")
    if not holds(abs(found.length), "<=", most):
        faults.append(f"verdicts go with length by more than {most:g}")
    if faults:
        shown = tuple({"misjudged": name} for name in found.wrong)
        return Found("FAIL", f"{detail}: {'; '.join(faults)}", found.agreement.kappa, shown, repairable=False)
    return Found("PASS", detail, found.agreement.kappa)


def _admitted(evidence: Evidence, _: MetricSet | None) -> Found:
    """Hold the verifier against answers with known labels: by construction, and by people where they are registered."""
    return admitted(evidence.resolved.spec, task_of(evidence), evidence.data)


def _length(evidence: Evidence, metrics: MetricSet | None) -> Found:
    """Repeat the registered test on the items that both arms answered at nearly equal length."""
    before = answered(evidence, evidence.baseline_rows, "baseline rows")
    after = answered(evidence, evidence.outputs.get("rows"), "treatment rows")
    ratio = evidence.resolved.spec.thresholds.scorer_matched
    alike = [
        (then.passed, now.passed)
        for then, now in zip(before, after, strict=True)
        if holds(length_ratio(len(then.text), len(now.text)), "<=", ratio)
    ]
    gained = sum(now and not then for then, now in alike)
    lost = sum(then and not now for then, now in alike)
    analysis = evidence.resolved.spec.analysis
    p = mcnemar.exact_mcnemar(gained, lost)
    all_gained = need(metrics, "gained")
    detail = (
        f"{len(alike)} of {len(before)} items were answered at equal length by both arms (ratio up to {ratio:g}); "
        f"of {all_gained:.0f} gained {gained} are among them, of {need(metrics, 'lost'):.0f} lost {lost}, p = {p:.3g}"
    )
    shown = holds(need_exact(metrics, "mcnemar_p"), "<", analysis.alpha)
    if shown and (not holds(p, "<", analysis.alpha) or gained <= lost):
        return Found("WARN", f"{detail}: where length stayed the gain is not shown", p)
    return Found("PASS", detail, p)


CHECKS = (
    Check(
        "scorer.admitted",
        "The scorer's verdicts may count",
        ("evaluate", "multi_turn"),
        _admitted,
        SOURCE,
        limits=LIMITS,
    ),
    Check(
        "scorer.length",
        "The gain holds where answers kept their length",
        ("evaluate", "multi_turn"),
        _length,
        SOURCE,
        blocking=False,
        only_treatment=True,
        limits=(Limit("<=", "thresholds.scorer_matched"),),
    ),
)
