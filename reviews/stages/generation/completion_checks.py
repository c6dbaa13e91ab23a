"""Do accepted completions carry something over, such as delimiters, their prompt or a refusal, and do they differ?

Marks that the item itself asks for never count. A single completion is only a warning: in a small pilot it is a large
share and still no pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import floor
from statistics import median
from typing import Any

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, join_names
from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import ratio
from reviews.evidence.right_answers import RightAnswers, relative_limit, right_answers
from reviews.evidence.row_reader import once
from reviews.stages.generation.generate import judged_rows
from reviews.stages.generation.residue import (
    DELIMITERS,
    REFUSALS,
    AcceptedCompletion,
    frequent_edges,
    marks_in,
    repeats,
)
from specs.stages.base.metric import MetricSet
from specs.system.exact import holds
from specs.trail.verdict import Status
from training.rules.similarity import near_repeats, words_of
from training.rules.tasks import worked_example

CHECKS = CheckRegistry(("generate",))

_REPEATED = "two thirds of a data set were duplicates, one question 273 times; after cleaning, one still stood 13 times"


def kept_of(evidence: Evidence) -> tuple[AcceptedCompletion, ...]:
    """Return the distinct accepted completions with their items, in order; errors as :func:`judged_rows`."""
    name = evidence.stage.inputs["prompts"].partition(".")[2]
    items = {item.id: item for item in evidence.data.get(name, ())}
    distinct = {judged_row.answer: judged_row.row for judged_row in judged_rows(evidence) if judged_row.accepted}
    return tuple(AcceptedCompletion(items[row.item], text) for (_, text), row in distinct.items())


def _right_answers(evidence: Evidence) -> RightAnswers:
    """Return what right answers to the prompts look like."""
    spec, name = evidence.resolved.spec, evidence.stage.inputs["prompts"].partition(".")[2]
    return once(_right_answers, evidence, lambda: right_answers(spec, spec.task, evidence.data.get(name, ())))


def _check_marks(evidence: Evidence, patterns: Sequence[Any], most: float, what: str) -> CheckOutcome:
    remaining = kept_of(evidence)
    marked = [(value, marks) for value in remaining if (marks := marks_in(value, patterns))]
    visible = tuple(
        {"item": value.item.id, "marks": ", ".join(marks), "completion": value.text} for value, marks in marked
    )
    return _judge_share(visible, len(remaining), most, what)


def _judge_share(visible: tuple[dict[str, Any], ...], total: int, most: float, what: str) -> CheckOutcome:
    count = len(visible)
    share = ratio(count, total)
    status: Status = "FAIL" if not holds(share, "<=", most) and count > 1 else "WARN" if count else "PASS"
    return CheckOutcome(status, f"{count} of {total} accepted completions {what}", float(share), visible)


@CHECKS.add(
    "residue.delimiters",
    "Few completions carry delimiters",
    source="38 % of the completions ended in '###', and quality control looked for '###END###' only",
    limits=(CheckLimit("<=", "thresholds.delimiters"),),
)
def _check_delimiters(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look for chat tokens, role marks, pieces of ``###END###`` and answers that break off at a colon."""
    most = evidence.resolved.spec.thresholds.delimiters
    return _check_marks(evidence, DELIMITERS, most, "carry a delimiter no one asked for")


@CHECKS.add(
    "residue.refusals",
    "Few completions refuse or speak as an evaluator",
    source="boilerplate refusals in preference data",
    limits=(CheckLimit("<=", "thresholds.refusals"),),
)
def _check_refusals(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look for refusals, for "as an AI" and for the words of someone who marks an answer."""
    most = evidence.resolved.spec.thresholds.refusals
    return _check_marks(evidence, REFUSALS, most, "refuse or speak as an evaluator")


@CHECKS.add(
    "residue.edges",
    "Beginnings and endings differ",
    source="template wording and stop-string residue that no list of delimiters names",
    blocking=False,
    limits=(CheckLimit("<=", "thresholds.repeated_edges"),),
)
def _check_edges(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count first and last words over all completions and over each kind, without what the constraints ask for."""
    most = evidence.resolved.spec.thresholds.repeated_edges
    remaining = kept_of(evidence)
    edges = frequent_edges(remaining, most)
    if not edges:
        return CheckOutcome("PASS", f"no beginning or ending is common to more than {most:g} of the completions", 0.0)
    visible = tuple(
        {"where": edge.where, "text": edge.text, "completions": edge.times, "of": edge.of, "kind": edge.scope or "all"}
        for edge in edges
    )
    message = join_names(f"{edge.where} '{edge.text}' in {edge.share:.2f} of {edge.scope or 'all'}" for edge in edges)
    return CheckOutcome(
        "WARN", f"beginnings or endings that many completions share: {message}", edges[0].share, visible
    )


@CHECKS.add(
    "residue.copies",
    "Few completions repeat the prompt or the example",
    source="few-shot examples that stood in training and test data",
    limits=(
        CheckLimit("<=", "thresholds.prompt_copies"),
        CheckLimit("<", "thresholds.prompt_similarity"),
        CheckLimit("<", "thresholds.contained_words"),
    ),
)
def _check_copies(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look for completions that repeat their prompt, whole or nearly, or the worked example shown while sampling."""
    thresholds, task = evidence.resolved.spec.thresholds, evidence.resolved.spec.task
    remaining, with_example = kept_of(evidence), bool(evidence.parameters.get("worked_example"))
    visible: list[dict[str, Any]] = []
    for value in remaining:
        sources = {"prompt": value.item.prompt}
        if with_example:
            sources["worked example"] = worked_example(task, value.item)[1]
        least = thresholds.prompt_similarity, thresholds.contained_words
        copied = [what for what, text in sources.items() if repeats(value.text, text, *least)]
        if copied:
            visible.append({"item": value.item.id, "repeats": ", ".join(copied), "completion": value.text})
    return _judge_share(
        tuple(visible), len(remaining), thresholds.prompt_copies, "repeat their prompt or the worked example"
    )


@CHECKS.add(
    "variety.copies",
    "No completion was kept again and again",
    source=_REPEATED,
    limits=(CheckLimit("<=", "thresholds.copies"), CheckLimit("<=", "thresholds.identical_answers")),
)
def _check_variety_copies(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count how often the most frequent completion was kept, whatever its prompt, case and marks.

    Where right answers are labels, as many as an evaluation allows of equal answers may be kept.
    """
    thresholds, remaining = evidence.resolved.spec.thresholds, kept_of(evidence)
    if not remaining:
        return CheckOutcome("NOT_APPLICABLE", "no completion was accepted")
    right = _right_answers(evidence)
    labels = floor(right.limit_of_equal(thresholds.identical_answers) * len(remaining)) if right.common else 0
    most = max(thresholds.copies, labels)
    times = Counter(words_of(value.text) for value in remaining)
    words, highest = times.most_common(1)[0]
    repeated = [value for value in remaining if highest > 1 and words_of(value.text) == words]
    visible = tuple({"item": value.item.id, "completion": value.text, "times": highest} for value in repeated)
    detail = f"the most frequent completion was kept {highest} times of {len(remaining)}"
    return CheckOutcome("FAIL" if highest > most else "PASS", detail, float(highest), visible)


@CHECKS.add(
    "variety.near",
    "Completions differ",
    source=f"{_REPEATED}; Lee et al. 2022, arXiv:2107.06499",
    limits=(CheckLimit("<=", "thresholds.near_duplicates"), CheckLimit("<", "thresholds.prompt_similarity")),
)
def _check_near(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look for completions that nearly repeat an earlier one."""
    thresholds = evidence.resolved.spec.thresholds
    remaining = kept_of(evidence)
    if not remaining:
        return CheckOutcome("NOT_APPLICABLE", "no completion was accepted")
    repeats = near_repeats((value.text for value in remaining), threshold=thresholds.prompt_similarity)
    visible = tuple(
        {
            "item": remaining[repeat.place].item.id,
            "completion": remaining[repeat.place].text,
            "repeats": remaining[repeat.of].text,
            "similarity": round(repeat.similarity, 3),
        }
        for repeat in repeats
    )
    share = Fraction(len(repeats), len(remaining))
    detail = f"{len(repeats)} of {len(remaining)} accepted completions nearly repeat an earlier one"
    limit = relative_limit(thresholds.near_duplicates, _right_answers(evidence).repeated)
    status = "PASS" if holds(share, "<=", limit) else "FAIL"
    return CheckOutcome(status, detail, float(share), visible)


@CHECKS.add(
    "variety.lengths",
    "Lengths are of one kind",
    source="runaway generations that a heuristic of length counted wrongly",
    blocking=False,
    limits=(CheckLimit("<=", "thresholds.length_spread"),),
)
def _check_lengths(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the long end of the accepted completions with their median; a tail of runaways stretches it."""
    most = evidence.resolved.spec.thresholds.length_spread
    rows = [judged_row.row for judged_row in judged_rows(evidence) if judged_row.accepted]
    if not rows:
        return CheckOutcome("NOT_APPLICABLE", "no completion was accepted")
    lengths = sorted(row.completion_tokens for row in rows)
    middle, long = max(1.0, median(lengths)), lengths[-(-19 * len(lengths) // 20) - 1]
    spread = long / Fraction(middle)
    detail = f"{lengths[0]} to {lengths[-1]} model tokens, median {middle:g}, 95th percentile {long}"
    if holds(spread, "<=", most):
        return CheckOutcome("PASS", detail, float(spread))
    longest = sorted(rows, key=lambda row: -row.completion_tokens)
    visible = tuple(
        {"item": row.item, "tokens": row.completion_tokens, "completion": row.completion}
        for row in longest
        if holds(row.completion_tokens / Fraction(middle), ">", most)
    )
    return CheckOutcome("WARN", f"{detail}: a tail of runaways", float(spread), visible)
