"""Do the numbers of a critic count: does it agree with a person, does it read what it answers, are its rows its own?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import wraps
from typing import Any

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, Run, need_exact, unless
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from reviews.stages.critique.measure import (
    calibration_of,
    critic_parameters,
    labelled_input,
    revision_rows,
    sound_rows,
)
from reviews.stages.critique.pair_answers import LEVEL, SOURCE, TaskAnswer, find_verdicts
from specs.session.design import Design
from specs.stages.base.artifacts import Example, Item
from specs.stages.base.metric import MetricSet
from specs.stages.base.rubric import Judges, Rubric
from specs.stages.base.stage import Kind
from specs.stages.critique.metrics import CRITIC_PREFIX
from specs.stages.critique.parameters import BestOfNParameters, ReviseParameters, ShownResponse
from specs.stages.critique.rows import (
    CalibrationRow,
    CandidateRow,
    ComparisonRow,
    CritiqueRow,
    JudgeCalibrationRow,
    contradiction,
)
from specs.system.digests import digest_bytes
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds
from training.rules.critique.preference_pairs import pairs_to_compare, revisions_to_compare
from training.rules.critique.subjects import (
    LabelFault,
    ResponsePair,
    Subject,
    labelled_pairs,
    of_examples,
    of_items,
    read_labelled_subjects,
)
from training.rules.rubric_prompts import (
    JudgementPrompts,
    judged_text_of,
    prompts_of_comparison,
    prompts_of_instruction,
    prompts_of_response,
    rubric_for,
)
from training.rules.similarity import words_of
from training.rules.tasks import spread

_ACCEPTING: tuple[Kind, ...] = ("critique_instructions", "critique_responses")
_PAIRS: tuple[Kind, ...] = ("best_of_n", "revise")
_CRITICS: tuple[Kind, ...] = (*_ACCEPTING, *_PAIRS)
_JUDGES: dict[str, Judges] = {
    "critique_instructions": "instruction",
    "critique_responses": "response",
    "best_of_n": "comparison",
    "revise": "comparison",
}
CriticRow = CritiqueRow | ComparisonRow
CHECKS = CheckRegistry(_CRITICS)
LABEL_LIMITS = (CheckLimit(">=", "thresholds.labelled_items"), CheckLimit(">=", "thresholds.labelled_minority"))


def _of_critic(run: Run) -> Run:
    """Run it of a stage that revises only where it has a judge."""

    @wraps(run)
    def run_if_judged(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
        parameters = evidence.stage.parameters
        if isinstance(parameters, ReviseParameters) and parameters.judge is None:
            return CheckOutcome("NOT_APPLICABLE", "the stage has no judge")
        return run(evidence, metrics)

    return run_if_judged


def _every(evidence: Evidence) -> list[tuple[str, int, CriticRow]]:
    """Return every row with log-probabilities: its file, its line and itself."""
    results: list[tuple[str, int, CriticRow]] = []
    models: dict[str, type[CriticRow]] = {"rows": CritiqueRow, "calibration": CalibrationRow}
    if evidence.stage.kind in _PAIRS:
        models = {"comparisons": ComparisonRow, "calibration": JudgeCalibrationRow}
    for name, model in models.items():
        rows = read_rows(evidence.outputs.get(name), model, f"{name} of the critic", may_be_empty=name == "comparisons")
        results += [(name, number, row) for number, row in enumerate(rows, 1)]
    return results


@CHECKS.add(
    "critics.follows",
    "Every verdict follows from its log-probabilities",
    source="critiques labelled good and confident although confidence was never tested",
)
@_of_critic
def _check_follows(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compute every verdict again from its log-probabilities."""
    parameters = critic_parameters(evidence)
    every = _every(evidence)
    wrong = [
        {"file": name, "line": number, "item": row.item, "wrong": fault}
        for name, number, row in every
        if (fault := contradiction(row, parameters.agreement, parameters.margin))
    ]
    fault = f"{len(wrong)} of {len(every)} rows state a verdict that does not follow"
    return unless(wrong, fault, f"all {len(every)} verdicts follow from their log-probabilities")


def rubric_of(evidence: Evidence) -> Rubric:
    """Return the granted rubric; errors as :func:`critic_parameters`, and where it is for another sort of critic."""
    try:
        return rubric_for(_JUDGES[evidence.stage.kind], critic_parameters(evidence).rubric)
    except ValueError as error:
        raise EvidenceMissing(str(error), where="rubric") from error


@CHECKS.add(
    "critics.prompts",
    "The scored text is the rubric's prompt for the row",
    source="the stored prompt differed from the prompt used; several scorers with rubrics of their own",
)
@_of_critic
def _check_prompts(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Write every prompt again from the rubric and the row's texts, and compare its digest with the scored one."""
    rubric, parameters = rubric_of(evidence), critic_parameters(evidence)
    digest = rubric.content_digest()
    every = _every(evidence)
    wrong: list[dict[str, Any]] = []
    for name, number, row in every:
        prompts, flag = _due(row, rubric, parameters)
        message = ""
        if row.rubric != digest:
            message = f"rubric {row.rubric} instead of {digest}"
        elif not flag:
            message = "what was shown is not what the stage shows of the response"
        elif [arrangement.scores.prompt for arrangement in (row.plain, row.swapped)] != [
            digest_bytes(text.encode()) for text in prompts
        ]:
            message = "the scored prompt is not the rubric's prompt for this row"
        if message:
            wrong.append({"file": name, "line": number, "item": row.item, "wrong": message})
    message = f"{len(wrong)} of {len(every)} rows: {wrong[0]['wrong']}" if wrong else ""
    return unless(wrong, message, f"all {2 * len(every)} prompts are those of the rubric {digest}")


def _due(row: CriticRow, rubric: Rubric, arguments: Any) -> tuple[JudgementPrompts, bool]:
    """Return the prompts a row should have had, and whether it says rightly what was shown."""
    if isinstance(row, ComparisonRow):
        assert isinstance(arguments, ShownResponse)
        first, second = judged_text_of(row.first, arguments), judged_text_of(row.second, arguments)
        flag = (row.shown_first, row.shown_second) == (first, second)
        return prompts_of_comparison(rubric, row.instruction, first, second), flag
    if row.response is None:
        return prompts_of_instruction(rubric, row.instruction), row.shown_response is None
    assert isinstance(arguments, ShownResponse)
    text = judged_text_of(row.response, arguments)
    return prompts_of_response(rubric, row.instruction, text), row.shown_response == text


def _subjects(evidence: Evidence) -> list[Subject]:
    """Return what the critic was to judge, as its input holds it."""
    if evidence.stage.kind == "critique_instructions":
        return of_items(read_rows(evidence.inputs.get("items"), Item, "the instructions"))
    return of_examples(read_rows(evidence.inputs.get("examples"), Example, "the examples"))


@CHECKS.add(
    "critics.complete",
    "Everything to be judged has a row",
    source="an acceptance rate over rows that had been filtered before: 100 %, and meaningless",
)
@_of_critic
def _check_complete(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the rows with what was to be judged: a rate over rows that were filtered before means nothing."""
    if evidence.stage.kind == "revise":
        revise_parameters = ReviseParameters.model_validate(evidence.parameters)
        return _compare_pairs(revisions_to_compare(revision_rows(evidence), revise_parameters), evidence)
    if evidence.stage.kind == "best_of_n":
        return _complete_pairs(evidence)
    subjects = _subjects(evidence)
    rows = read_rows(evidence.outputs.get("rows"), CritiqueRow, "rows of the critic")
    judged = [Subject(row.item, row.group, row.kind, row.sample, row.instruction, row.response) for row in rows]
    return _same(subjects, judged, "subjects")


def _complete_pairs(evidence: Evidence) -> CheckOutcome:
    parameters = critic_parameters(evidence)
    assert isinstance(parameters, BestOfNParameters)
    items = spread(read_rows(evidence.inputs.get("prompts"), Item, "the prompts"), parameters.max_prompts)
    rows = read_rows(evidence.outputs.get("rows"), CandidateRow, "sampled responses")
    pending = [(item.id, item.group, item.prompt, sample) for item in items for sample in range(parameters.samples)]
    result = _same(pending, [(row.item, row.group, row.instruction, row.sample) for row in rows], "responses")
    if result.status != "PASS":
        return result
    return _compare_pairs(pairs_to_compare(rows), evidence)


def _compare_pairs(pairs: Iterable[ResponsePair], evidence: Evidence) -> CheckOutcome:
    compared = sound_rows(evidence, "comparisons", ComparisonRow)
    stated = [
        (row.item, row.group, row.instruction, row.first, row.second, row.first_sample, row.second_sample)
        for row in compared
    ]
    return _same([tuple(pair) for pair in pairs], stated, "comparisons")


def _same(pending: Iterable[Any], results: Iterable[Any], what: str) -> CheckOutcome:
    pending, results = list(pending), list(results)
    if pending == results:
        return CheckOutcome("PASS", f"all {len(pending)} {what} have one row, in order", float(len(pending)))
    wanted, there = Counter(map(repr, pending)), Counter(map(repr, results))
    missing, extra = (wanted - there).total(), (there - wanted).total()
    detail = f"{len(pending)} {what} were due, {len(results)} rows are there: {missing} missing, {extra} not due"
    return CheckOutcome("FAIL", detail, float(missing + extra))


@CHECKS.add(
    "critics.accepted",
    "The kept rows are the accepted rows",
    kinds=_ACCEPTING,
    source="repaired rows that carried the critique of another row",
)
def _check_accepted_lines(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare what was kept with the input lines of accepted rows."""
    rows = sound_rows(evidence, "rows", CritiqueRow)
    kind: type[Item | Example] = Item if evidence.stage.kind == "critique_instructions" else Example
    role = "items" if kind is Item else "examples"
    input_rows = read_rows(evidence.inputs.get(role), kind, f"the {role}")
    kept_rows = read_rows(evidence.outputs.get("accepted"), kind, "what was accepted", may_be_empty=True)
    if len(input_rows) != len(rows):
        raise EvidenceMissing(
            f"{len(input_rows)} {role} were read, {len(rows)} rows were written", where="rows of the critic"
        )
    pending = [value for value, row in zip(input_rows, rows, strict=True) if row.accepted]
    return _same(pending, kept_rows, "accepted lines")


def samples_of(spec: Design, data: Mapping[str, tuple[Item, ...]]) -> CheckOutcome:
    """Check the labelled sample of every critic; ``data`` are the data files by name."""
    least, of_each = spec.thresholds.labelled_items, spec.thresholds.labelled_minority
    sizes: list[int] = []
    for stage in spec.stages:
        judged = stage.kind == "best_of_n" or (stage.kind == "revise" and stage.parameters.judge is not None)
        if not judged and stage.kind not in ("critique_instructions", "critique_responses"):
            continue
        owner, _, name = stage.inputs["calibration"].partition(".")
        if owner != "data":
            detail = f"stage '{stage.name}' takes its labels from '{owner}', not from a data file of a person"
            return CheckOutcome("FAIL", detail, repairable=False)
        items = data.get(name, ())
        where = f"the labelled sample '{name}' of stage '{stage.name}'"
        try:
            if judged:
                labels: list[str] = [label for _, label in labelled_pairs(items)]
            else:
                labels = [
                    label for _, label in read_labelled_subjects(items, responses=stage.kind == "critique_responses")
                ]
        except LabelFault as error:
            return CheckOutcome("FAIL", f"{where}: {error}")
        counts = Counter(labels)
        if len(labels) < least:
            return CheckOutcome("FAIL", f"{where} holds {len(labels)} items, {least} are needed", float(len(labels)))
        if len(counts) < 2 or min(counts.values()) < of_each:
            message = ", ".join(f"{count} {label}" for label, count in sorted(counts.items()))
            return CheckOutcome("FAIL", f"{where} holds {message}; {of_each} of each are needed", float(len(labels)))
        sizes.append(len(labels))
    if not sizes:
        return CheckOutcome("PASS", "no stage has a critic")
    detail = f"the labelled samples of {len(sizes)} critics hold {min(sizes)} items or more"
    return CheckOutcome("PASS", detail, float(min(sizes)))


@CHECKS.add(
    "critics.calibration",
    "The critic agrees with a person",
    source="a scorer whose label was never validated: splendid statistics on the wrong question (Cohen 1960)",
    limits=(CheckLimit(">=", "thresholds.critic_kappa"), CheckLimit(">=", "thresholds.labelled_items")),
)
@_of_critic
def _check_calibration(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the critic with the person who labelled the sample: without agreement what it accepts is not evidence."""
    thresholds = evidence.resolved.spec.thresholds
    result = calibration_of(evidence)
    sample = labelled_input(evidence)
    message = f"kappa {result.kappa:.2f} [{result.interval[0]:.2f}, {result.interval[1]:.2f}]"
    detail = f"{message}, {result.agreed} of {result.n} labelled items agree"
    worked = {words_of(example.instruction) for example in rubric_of(evidence).examples}
    known = [item.id for item in sample if words_of(item.prompt) in worked]
    if known:
        return CheckOutcome("FAIL", f"{len(known)} labelled items are worked examples of the rubric", float(len(known)))
    texts = [{name: text for name, text in item.constraint.items() if name != "label"} for item in sample]
    if len({words_of(f"{item.prompt} {text}") for item, text in zip(sample, texts, strict=True)}) < len(sample):
        return CheckOutcome("FAIL", "the labelled sample holds items twice", result.kappa)
    if result.n < thresholds.labelled_items:
        return CheckOutcome("FAIL", f"{detail}; {thresholds.labelled_items} items are needed", result.kappa)
    if not holds(result.exact, ">=", thresholds.critic_kappa):
        return CheckOutcome("FAIL", f"{detail}; kappa must reach {thresholds.critic_kappa:g}", result.kappa)
    if result.interval[0] <= 0:
        return CheckOutcome("FAIL", f"{detail}: too few to distinguish it from chance", result.kappa)
    return CheckOutcome("PASS", detail, result.kappa)


@CHECKS.add(
    "critics.swap",
    "The verdict does not change when the labels are swapped",
    source="judges that prefer a label or a position (Zheng et al. 2023, arXiv:2306.05685)",
    limits=(CheckLimit("<=", "thresholds.swap_inconsistency"),),
)
@_of_critic
def _check_swap(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Count rows whose verdict turns when the labels change places: then a label was answered, and not the question."""
    most = evidence.resolved.spec.thresholds.swap_inconsistency
    rate = need_exact(metrics, f"{CRITIC_PREFIX[evidence.stage.kind]}_swap_inconsistency")
    turned = [row for _, _, row in _every(evidence) if row.plain.good != row.swapped.good]
    visible = tuple(
        {
            "item": row.item,
            "plain": round(row.plain.compute_margin(), 3),
            "swapped": round(row.swapped.compute_margin(), 3),
        }
        for row in turned
    )
    detail = f"{float(rate):.3f} of the verdicts turn when the labels change places"
    if holds(rate, "<=", most):
        return CheckOutcome("PASS", detail, float(rate))
    return CheckOutcome("FAIL", detail, float(rate), visible)


@CHECKS.add(
    "critics.selection",
    "The critic does not keep the worse responses",
    kinds=("critique_responses",),
    source=SOURCE,
)
def _check_selection(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare how often kept and dropped responses are right by the task's verifier (Fisher's exact test)."""
    from scipy.stats import fisher_exact

    spec, rows = evidence.resolved.spec, sound_rows(evidence, "rows", CritiqueRow)
    answers = [TaskAnswer(row.instruction, row.response or "") for row in rows]
    counts = Counter(
        (row.accepted, passed)
        for row, passed in zip(rows, find_verdicts(spec, evidence.data, evidence.heldout, answers), strict=True)
        if passed is not None
    )
    table = [[counts[accepted, passed] for passed in (True, False)] for accepted in (True, False)]
    (right, wrong), (lost, refused) = table
    if not right + wrong or not lost + refused:
        return CheckOutcome("NOT_APPLICABLE", "the task's verifier cannot judge both accepted and dropped responses")
    detail = f"the task's verifier accepts {right} of {right + wrong} responses that the critic keeps "
    detail += f"and {lost} of {lost + refused} that it drops"
    result: Any = fisher_exact(table, alternative="less")
    if result.pvalue < LEVEL:
        return CheckOutcome("FAIL", f"{detail} (p = {result.pvalue:.2g}): it keeps the worse ones", float(wrong))
    return CheckOutcome("PASS", detail, float(right))
