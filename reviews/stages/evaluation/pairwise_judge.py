"""The judge of ``pairwise_judge`` stages."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.items import in_order, items_of
from reviews.evidence.measured_value import MeasuredValue, ratio
from reviews.evidence.row_lines import Subjects, by_item
from reviews.evidence.row_reader import read_rows
from reviews.statistics.agreement import cohens_kappa
from reviews.statistics.win_rate import win_rate
from specs.stages.base.artifacts import Item
from specs.stages.base.witness import arrangement, decide
from specs.stages.evaluation.parameters import PairwiseJudgeParameters
from specs.stages.evaluation.rows import DuelRow, EvaluationRow
from specs.system.digests import digest_bytes
from specs.system.errors import EvidenceMissing
from training.rules.rubric_prompts import labelled_pairs, prompts_of_comparison, rubric_for


class LabelledDuel(NamedTuple):
    """A pair of answers as people labelled it and the judge compared it."""

    label: str
    item: Item
    row: DuelRow

    @property
    def preference(self) -> str:
        """What the judge prefers: reference, candidate or tie."""
        return self.row.preferred or "tie"

    @property
    def longer(self) -> str | None:
        """The longer answer; None where both are of one length."""
        difference = len(self.row.candidate) - len(self.row.reference)
        return None if not difference else "candidate" if difference > 0 else "reference"


def duels(evidence: Evidence) -> tuple[DuelRow, ...]:
    """Return every comparison, in the order of the items.

    Raises:
        EvidenceMissing: as :func:`in_order`; an answer differs from the compared rows, or a preference
            does not follow from its own log-probabilities.
    """
    rows = read_rows(evidence.outputs.get("rows"), DuelRow, "judgements")
    pairs = in_order(items_of(evidence), rows, "judgements")
    arguments = {
        side: {row.item: row.output for row in read_rows(evidence.inputs.get(side), EvaluationRow, f"{side} rows")}
        for side in ("reference", "candidate")
    }
    for item, row in pairs:
        if (arguments["reference"].get(item.id), arguments["candidate"].get(item.id)) != (row.reference, row.candidate):
            raise EvidenceMissing(f"other answers to '{item.id}' were compared than those named", where="judgements")
        _follows(evidence, item, row)
    return tuple(row for _, row in pairs)


def calibration(evidence: Evidence) -> tuple[LabelledDuel, ...]:
    """Return every labelled pair of answers; errors as :func:`duels`, for the labelled pairs."""
    name = evidence.stage.inputs.get("labelled", "").partition(".")[2]
    try:
        pairs = labelled_pairs(evidence.data.get(name, ()))
    except ValueError as error:
        raise EvidenceMissing(str(error), where=f"data.{name}") from error
    rows = read_rows(evidence.outputs.get("calibration"), DuelRow, "calibration rows")
    results: list[LabelledDuel] = []
    by_item = {pair.item.id: pair for pair in pairs}
    for item, row in in_order([pair.item for pair in pairs], rows, "calibration rows"):
        pair = by_item[item.id]
        if (pair.reference, pair.candidate) != (row.reference, row.candidate):
            raise EvidenceMissing(f"'{item.id}' was judged on other answers than it holds", where="calibration rows")
        _follows(evidence, item, row)
        results.append(LabelledDuel(pair.label, item, row))
    return tuple(results)


def _follows(evidence: Evidence, item: Item, row: DuelRow) -> None:
    """Refuse a judgement that was made with another prompt, or that its own figures do not give."""
    parameters = PairwiseJudgeParameters.model_validate(evidence.parameters)
    rubric = rubric_for("comparison", parameters.rubric)
    limit = parameters.shown_characters
    prompts = prompts_of_comparison(rubric, item.prompt, row.reference.strip()[:limit], row.candidate.strip()[:limit])
    pair = (row.plain.scores.prompt, row.swapped.scores.prompt)
    if pair != tuple(digest_bytes(text.encode()) for text in prompts) or row.rubric != rubric.content_digest():
        raise EvidenceMissing(f"'{item.id}' was judged with another prompt", where="judgements")
    try:
        plain = arrangement(row.plain.scores, "A", parameters.margin)
        swapped = arrangement(row.swapped.scores, "B", parameters.margin)
        verdict = decide(plain, swapped, parameters.agreement, parameters.margin)
    except ValueError as error:
        raise EvidenceMissing(f"'{item.id}': {error}", where="judgements") from error
    text = {True: "reference", False: "candidate", None: None}[verdict]
    if (plain, swapped, text) != (row.plain, row.swapped, row.preferred):
        raise EvidenceMissing(
            f"'{item.id}': {row.preferred or 'a tie'} is stated, {text or 'a tie'} follows", where="judgements"
        )


def read(evidence: Evidence, output: str) -> Subjects:
    """Return comparisons or labelled pairs for its metrics; errors as :func:`duels` and :func:`calibration`."""
    duel_rows = duels(evidence) if output == "rows" else calibration(evidence)
    return by_item(duel_rows, read_rows(evidence.outputs.get(output), DuelRow, output), output)


def measure(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return win rates and what the judge shares with people; errors as those of :func:`read`."""
    rows, labelled = duels(evidence), calibration(evidence)
    halves = [{"candidate": 2, "reference": 0, None: 1}[row.preferred] for row in rows]
    rate = win_rate([half / 2 for half in halves], [float(len(row.candidate) - len(row.reference)) for row in rows])
    agreement = cohens_kappa([value.label for value in labelled], [value.preference for value in labelled])
    longer = _longer((value.preference, value.longer) for value in labelled) - _longer(
        (value.label, value.longer) for value in labelled
    )
    return {
        "win_rate": MeasuredValue(ratio(sum(halves), 2 * len(rows)), len(rows), rate.interval),
        "win_rate_controlled": MeasuredValue(rate.controlled, len(rows)),
        "judge_kappa": MeasuredValue(agreement.exact, agreement.n, agreement.interval),
        "judge_longer": MeasuredValue(longer, len(labelled)),
    }


def _longer(preferred: Iterable[tuple[str, str | None]]) -> Fraction:
    """Return how often the longer answer is preferred, among preferences for one of two answers of unequal length."""
    chosen = [side == longer for side, longer in preferred if side != "tie" and longer is not None]
    return ratio(sum(chosen), len(chosen)) if chosen else Fraction(1, 2)
