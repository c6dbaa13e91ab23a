"""Is the scorer of this stage admitted, and does a gain hold among answers of equal length?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from fractions import Fraction
from typing import Any

from reviews.checks.definition import (
    CheckLimit,
    CheckOutcome,
    CheckRegistry,
    join_names,
    need,
    need_exact,
    require_metric,
)
from reviews.evidence.evidence import Evidence
from reviews.evidence.items import task_of
from reviews.evidence.subgroups import count_pairs, pair_items
from reviews.stages.evaluation.judged_answers import Answered, both_arms, pair_answers
from reviews.stages.evaluation.scorer_admission import (
    MOST_NAMED,
    NamedAnswers,
    ScorerVerdict,
    admission,
    labelled_cases,
    length_ratio,
    named_answers,
    verdicts_on,
)
from reviews.stages.evaluation.verifier_probes import (
    LEAST_KNOWN,
    MOST_ACCEPTED,
    WRITE_KNOWN,
    probe_own_values,
    probe_wrong_answers,
)
from specs.session.design import Analysis, Design
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.stages.base.stage import TASKS
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds
from training.rules.tasks import CONVERSATION, verifier, verifier_of_right
from training.rules.tasks.exact_answer import contains_answer, reduce_answer
from training.rules.tasks.exact_answer import named_answers as spelled_answers
from training.rules.tasks.verifier_cases import cases_of

CHECKS = CheckRegistry(("evaluate", "multi_turn"))

SOURCE = "a length limit that passed for a label: 57 gained, 2 lost, p = 2e-12, and every gain was an answer cut short"
LIMITS = (
    CheckLimit(">=", "thresholds.scorer_agreement"),
    CheckLimit("<=", "thresholds.scorer_length"),
    CheckLimit(">=", "thresholds.scorer_labelled"),
    CheckLimit(">=", "thresholds.scorer_sides"),
    CheckLimit("<=", "thresholds.scorer_matched"),
)


def check_admission(
    spec: Design, task: str, data: Mapping[str, tuple[Item, ...]], heldout: Sequence[Item] = ()
) -> CheckOutcome:
    """Test a task's verifier on its known answers, and on the labelled sample that the spec registers for its own task.

    A verifier that knows none is tested on the answers that its items name; if they name none either, on what
    answers nothing and on the values of the items, and then it is admitted with a warning.

    Raises:
        EvidenceMissing: the known answers or the labelled sample are missing, unreadable or too few to say anything.
    """
    query_result = _on_labels(spec, task, data, heldout)
    if task in (*TASKS, CONVERSATION) or spec.verifier.sandbox:
        return query_result
    message = (
        f"{query_result.detail}; the spec lets its verifier run without a sandbox (`verifier: {{sandbox: false}}`)"
    )
    return replace(
        query_result, status="WARN" if query_result.status == "PASS" else query_result.status, detail=message
    )


def _on_labels(spec: Design, task: str, data: Mapping[str, tuple[Item, ...]], heldout: Sequence[Item]) -> CheckOutcome:
    known = _on_known(task, [*heldout, *(item for items in data.values() for item in items)])
    if known.status != "FAIL" and task not in (*TASKS, CONVERSATION):
        attacked = probe_wrong_answers(task, heldout[:MOST_NAMED])
        if attacked and attacked.status == "WARN":
            known = replace(known, status="WARN", detail=f"{known.detail}; {attacked.detail}")
        elif attacked:
            return attacked
    if known.status == "FAIL":
        return known
    detail = known.detail
    plan = spec.evaluation
    if plan is None or plan.labelled is None or task != spec.task:
        return replace(known, detail=f"{detail}; no labelled sample is registered")
    if plan.labelled not in data:
        raise EvidenceMissing(f"unknown data file '{plan.labelled}' of labelled answers")
    return _on_sample(detail, verdicts_on(labelled_cases(data[plan.labelled]), verifier(task)), spec.thresholds)


def _on_known(task: str, items: Sequence[Item]) -> CheckOutcome:
    """Ask a verifier about its known answers; if it has none, about the answers that items name."""
    try:
        cases = cases_of(task)
    except KeyError:
        named = named_answers(items)
        return _on_named(task, named) if named.right else probe_own_values(task, items[:MOST_NAMED])
    different = {(case.item.model_dump_json(), case.output, bool(case.good)) for case in cases}
    right, wrong = (sum(good == label for _, _, good in different) for label in (True, False))
    if min(right, wrong) < LEAST_KNOWN:
        raise EvidenceMissing(
            f"'{task}' has {right} right and {wrong} wrong known answers, which is too few: {WRITE_KNOWN}"
        )
    known = verdicts_on((case for case in cases if case.good), verifier_of_right(task))
    known += verdicts_on((case for case in cases if not case.good), verifier(task))
    if len(flags := {scorer_verdict.passed for scorer_verdict in known}) == 1:
        message = f"'{task}' says {'yes' if flags == {True} else 'no'} to all {len(known)} known answers"
        message += ", right and wrong: let verify(item, answer) return True for right answers and False for wrong ones"
        return CheckOutcome("FAIL", message, float(wrong if flags == {True} else right), repairable=False)
    misjudged = [scorer_verdict for scorer_verdict in known if scorer_verdict.passed != scorer_verdict.label]
    if misjudged:
        visible = tuple(
            {"case": scorer_verdict.name, "label": scorer_verdict.label, "passed": scorer_verdict.passed}
            for scorer_verdict in misjudged
        )
        message = f"'{task}' misjudges {len(misjudged)} of {len(known)} known answers: "
        message += join_names(scorer_verdict.name for scorer_verdict in misjudged)
        return CheckOutcome("FAIL", message, float(len(misjudged)), visible, repairable=False)
    return CheckOutcome("PASS", f"'{task}' judges all {len(known)} known answers right", 1.0)


def _on_named(task: str, known: NamedAnswers) -> CheckOutcome:
    """Ask a verifier about the answers that items name, each for its own item and for another."""
    if len(known.right) < LEAST_KNOWN or len(known.others) < LEAST_KNOWN:
        message = f"{len(known.right)} items name an answer, {len(known.others)} of them have another than some item"
        raise EvidenceMissing(f"'{task}' has too few known answers: {message}; {WRITE_KNOWN}")
    refused = [
        scorer_verdict
        for scorer_verdict in verdicts_on(known.right, verifier_of_right(task))
        if not scorer_verdict.passed
    ]
    if refused:
        visible = tuple({"case": scorer_verdict.name, "label": True, "passed": False} for scorer_verdict in refused)
        message = f"'{task}' refuses the answer that {len(refused)} of {len(known.right)} items name as right: "
        return CheckOutcome(
            "FAIL",
            message + join_names(scorer_verdict.name for scorer_verdict in refused),
            float(len(refused)),
            visible,
            repairable=False,
        )
    count = sum(scorer_verdict.passed for scorer_verdict in verdicts_on(known.others, verifier(task)))
    message = f"'{task}' takes the answers that {len(known.right)} items name"
    message += f", and {count} of {len(known.others)} answers to other items"
    if holds(Fraction(count, len(known.others)), ">", MOST_ACCEPTED):
        return CheckOutcome("FAIL", f"{message}: it does not distinguish them", float(count), repairable=False)
    return CheckOutcome("PASS", message, float(count))


def _on_sample(right: str, verdicts: tuple[ScorerVerdict, ...], thresholds: Thresholds) -> CheckOutcome:
    sample = admission(verdicts, thresholds)
    least, most = thresholds.scorer_agreement, thresholds.scorer_length
    detail = (
        f"{right}; on {sample.n} labelled ones kappa {sample.agreement.kappa:.2f} "
        f"[{sample.agreement.interval[0]:.2f}, {sample.agreement.interval[1]:.2f}], among "
        f"{sample.matched.n // 2} pairs of equal length {sample.matched.kappa:.2f}; "
        f"correlation with length {sample.length:+.2f}"
    )
    faults: list[str] = []
    if not holds(sample.agreement.exact, ">=", least):
        faults.append(f"kappa is below {least:g}")
    if not holds(sample.covered, ">=", thresholds.scorer_sides) or not sample.matched.n:
        faults.append("good and bad answers differ in length, so that a ruler would agree with them too")
    elif not holds(sample.matched.exact, ">=", least):
        faults.append(f"kappa among answers of equal length is below {least:g}")
    if not holds(abs(sample.length), "<=", most):
        faults.append(f"verdicts go with length by more than {most:g}")
    if faults:
        visible = tuple({"misjudged": name} for name in sample.wrong)
        return CheckOutcome("FAIL", f"{detail}: {'; '.join(faults)}", sample.agreement.kappa, visible, repairable=False)
    return CheckOutcome("PASS", detail, sample.agreement.kappa)


@CHECKS.add("scorer.admitted", "The scorer is admitted", source=SOURCE, limits=LIMITS)
def _check_admission(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Test the verifier on answers with known labels."""
    return check_admission(evidence.resolved.spec, task_of(evidence), evidence.data, evidence.heldout)


@CHECKS.add(
    "scorer.length",
    "The gain holds for answers of unchanged length",
    source=SOURCE,
    blocking=False,
    only_treatment=True,
    limits=(CheckLimit("<=", "thresholds.scorer_matched"),),
)
def _check_length(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Repeat the registered test on the items that both arms answered at nearly equal length.

    Where wrong answers hold the right one, repeat it with them counted as right: a remaining gain is not one of form.
    """
    ratio, analysis = evidence.resolved.spec.thresholds.scorer_matched, evidence.resolved.spec.analysis
    pairs = both_arms(evidence)
    alike = [
        pair for pair in pairs if holds(length_ratio(*(len(model_outcome.text) for model_outcome in pair)), "<=", ratio)
    ]
    counts, items = count_pairs(pair_answers(alike)), require_metric(metrics, "accuracy_gain").n
    detail = (
        f"{counts.n} of {items} items were answered at equal length by both arms (ratio up to {ratio:g}); "
        f"of {need(metrics, 'gained'):.0f} gained {counts.gained} are among them, "
        f"of {need(metrics, 'lost'):.0f} lost {counts.lost}, p = {counts.p:.3g}"
    )
    flag, form = holds(need_exact(metrics, analysis.p_metric), "<", analysis.alpha), _form_of(pairs, analysis)
    if flag and (not holds(counts.p, "<", analysis.alpha) or counts.gain <= 0):
        detail += ": where length stayed the gain is not shown"
        return CheckOutcome("WARN", detail + _form_in_words(form), counts.p, (form,) if form else ())
    if form and flag and not form["is_shown"]:
        return CheckOutcome("WARN", detail + _form_in_words(form), counts.p, (form,))
    return CheckOutcome("PASS", detail + _form_in_words(form), counts.p)


def _form_of(pairs: Sequence[tuple[Answered, Answered]], analysis: Analysis) -> dict[str, Any]:
    """Compare both arms with wrong answers that hold the right one as right; empty where there are none."""
    named = {reduce_answer(text) for _, now in pairs for text in spelled_answers(now.item)}
    labels = {text for text in named if not any(map(str.isdigit, text))}
    holding = [tuple(_holds_right(answer, labels) for answer in pair) for pair in pairs]
    before, after = (sum(arm) for arm in zip(*holding, strict=True))
    if not before and not after:
        return {}
    answer_part = count_pairs(
        pair_items(
            (now.item, then.passed or flags[0], now.passed or flags[1])
            for (then, now), flags in zip(pairs, holding, strict=True)
        )
    )
    is_shown = holds(answer_part.p, "<", analysis.alpha) and holds(answer_part.gain, ">=", analysis.minimum_effect)
    return {
        "baseline": before,
        "treatment": after,
        "items": len(pairs),
        "gain": float(answer_part.gain),
        "is_shown": is_shown,
    }


def _holds_right(answer: Answered, labels: Set[str]) -> bool:
    """Return whether an answer was judged wrong and holds the right answer of its item, and no other label."""
    item = answer.item
    if answer.passed or item.constraint.get("find") == "last_number" or not contains_answer(item, answer.text):
        return False
    words = f" {reduce_answer(answer.text)} "
    return not any(
        f" {label} " in words for label in labels - {reduce_answer(answer) for answer in spelled_answers(item)}
    )


def _form_in_words(form: dict[str, Any]) -> str:
    if not form:
        return ""
    return (
        f"; {form['baseline']} answers of the baseline and {form['treatment']} of the treatment hold the right one and "
        f"count as wrong: counted as right, the gain is {form['gain']:+.3f}"
    )
