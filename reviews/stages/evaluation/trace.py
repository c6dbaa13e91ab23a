"""The lines that metrics of perplexity, multiple_choice, pairwise_judge and multi_turn are computed from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Part, every, part
from reviews.evidence.row_reader import read_rows
from reviews.stages.evaluation.measure import calibration, duels, held, questions
from specs.stages.evaluation.rows import ChoiceRow, ConversationRow, DuelRow, PerplexityRow

CALIBRATION = "calibration"


def texts(evidence: Evidence, _metric: str) -> tuple[Part, ...]:
    """Return the texts: every metric is over all of them.

    Raises:
        EvidenceMissing: the rows are absent or unreadable.
    """
    return (every("every text", read_rows(evidence.outputs.get("rows"), PerplexityRow, "perplexity rows")),)


def choices(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the questions whose right choice is the likeliest, in the unit of the metric.

    Raises:
        EvidenceMissing: as :func:`reviews.stages.evaluation.measure.questions`.
    """
    rows = read_rows(evidence.outputs.get("rows"), ChoiceRow, "choice rows")
    per: dict[str, Callable[[ChoiceRow], list[float]]] = {
        "choice_accuracy": lambda row: [one.nats for one in row.choices],
        "choice_accuracy_per_token": lambda row: [one.nats / one.tokens for one in row.choices],
        "choice_accuracy_per_byte": lambda row: [one.nats / one.bytes for one in row.choices],
    }
    if metric not in per:
        return (every("every question", rows),)
    right = {row.item: answer for answer, row in questions(evidence, evidence.outputs.get("rows"))}

    def is_best(row: ChoiceRow) -> bool:
        nats = per[metric](row)
        return nats[right[row.item]] == min(nats) and nats.count(min(nats)) == 1

    return (part("the right choice alone is the likeliest", rows, is_best),)


def judgements(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the comparisons, or the labelled pairs of answers, by what the judge said.

    Raises:
        EvidenceMissing: as :func:`reviews.stages.evaluation.measure.duels` and its ``calibration``.
    """
    if metric in ("judge_kappa", "judge_longer"):
        rows = read_rows(evidence.outputs.get("calibration"), DuelRow, "calibration rows")
        label = {item.id: said for said, item, _ in calibration(evidence)}
        return _labelled(metric, rows, label)
    duels(evidence)
    rows = read_rows(evidence.outputs.get("rows"), DuelRow, "judgements")
    ties = part("a tie", rows, lambda row: row.preferred is None)
    if metric == "tie_rate":
        return (ties,)
    if metric == "order_flips":
        return (part("the two orders prefer different answers", rows, lambda row: row.plain.good != row.swapped.good),)
    if metric == "win_rate":
        return (part("the candidate is preferred", rows, lambda row: row.preferred == "candidate"), ties)
    return (every("every comparison", rows),)


def _labelled(metric: str, rows: Sequence[DuelRow], label: dict[str, str]) -> tuple[Part, ...]:
    def said(row: DuelRow) -> str:
        return row.preferred or "tie"

    if metric == "judge_kappa":
        return (
            part("judge and people agree", rows, lambda row: said(row) == label[row.item], CALIBRATION),
            part("they do not", rows, lambda row: said(row) != label[row.item], CALIBRATION),
        )

    def is_longer(side: str, row: DuelRow) -> bool:
        longer = "candidate" if len(row.candidate) > len(row.reference) else "reference"
        return side == longer and len(row.candidate) != len(row.reference)

    return (
        part("the judge prefers the longer answer", rows, lambda row: is_longer(said(row), row), CALIBRATION),
        part("people prefer the longer answer", rows, lambda row: is_longer(label[row.item], row), CALIBRATION),
    )


def conversations(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the conversations that pass, or those with a turn that does not.

    Raises:
        EvidenceMissing: as :func:`reviews.stages.evaluation.measure.held`.
    """
    rows = read_rows(evidence.outputs.get("rows"), ConversationRow, "conversation rows")
    if metric == "conversations":
        return (every("every conversation", rows),)
    if metric == "turn_truncation_rate":
        cut = "have an answer that hit the token limit"
        return (part(cut, rows, lambda row: any(turn.truncated for turn in row.turns)),)
    every_one = held(evidence, evidence.outputs.get("rows"))
    passed = {one.item.id: one.passed for one in every_one}
    if metric == "turn_pass_rate":
        failing = "have a turn after the first that does not pass"
        return (part(failing, rows, lambda row: not passed[row.item]), every("every conversation", rows))
    if metric == "conversation_pass_rate":
        return (part("every turn after the first passes", rows, lambda row: passed[row.item]),)
    kind = {one.item.id: one.item.kind for one in every_one}
    by_kind: defaultdict[str, list[bool]] = defaultdict(list)
    for one in every_one:
        by_kind[one.item.kind].append(one.passed)
    lowest = min(by_kind, key=lambda name: sum(by_kind[name]) / len(by_kind[name]))
    return (
        part(f"of the kind '{lowest}', pass", rows, lambda row: kind[row.item] == lowest and passed[row.item]),
        part(f"of the kind '{lowest}'", rows, lambda row: kind[row.item] == lowest),
    )
