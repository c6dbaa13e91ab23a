"""Metrics of the kinds that measure a model, from their raw rows and the registered items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.items import in_order, items_of
from reviews.evidence.measured_value import Measured, ratio, share
from reviews.evidence.row_reader import read_rows
from reviews.statistics.agreement import cohens_kappa
from reviews.statistics.bradley_terry import win_rate
from reviews.statistics.paired_binary import LIFT_RESAMPLES
from specs.digests import digest_bytes
from specs.errors import EvidenceMissing
from specs.stages.artifacts import Item
from specs.stages.evaluation.parameters import PairwiseJudgeParameters
from specs.stages.evaluation.rows import ChoiceRow, ConversationRow, DuelRow, EvaluationRow, PerplexityRow
from specs.stages.label_scores import arrangement, decide
from training.rules.evaluation.labelled_pairs import labelled_pairs
from training.rules.rubric_prompts import prompts_of_comparison, rubric_for
from training.rules.tasks.choices import answer_of, choices_of
from training.rules.tasks.conversation import judge, turns_of
from training.rules.tasks.format_instructions import Judgement


class Held(NamedTuple):
    """A conversation as it was held, with the judgement of every turn after the first."""

    item: Item
    row: ConversationRow
    turns: tuple[Judgement, ...]

    @property
    def passed(self) -> bool:
        """Whether all of them pass."""
        return all(one.passed for one in self.turns)


def surprises(evidence: Evidence, path: Path | None) -> tuple[tuple[Item, PerplexityRow], ...]:
    """Return every text with its surprise.

    Raises:
        EvidenceMissing: as :func:`in_order`, or a row states other bytes than its text has.
    """
    pairs = in_order(items_of(evidence), read_rows(path, PerplexityRow, "perplexity rows"), "perplexity rows")
    for item, row in pairs:
        if row.bytes != len(item.prompt.encode()):
            raise EvidenceMissing(
                f"text '{item.id}' has {len(item.prompt.encode())} bytes, the row says {row.bytes}",
                where="perplexity rows",
            )
    return pairs


def held(evidence: Evidence, path: Path | None) -> tuple[Held, ...]:
    """Return every conversation as it was held and judged.

    Raises:
        EvidenceMissing: as :func:`in_order`, or a row holds other turns than its item.
    """
    found: list[Held] = []
    rows = read_rows(path, ConversationRow, "conversation rows")
    for item, row in in_order(items_of(evidence), rows, "conversation rows"):
        try:
            due = turns_of(item)
            if tuple(turn.user for turn in row.turns) != due:
                raise EvidenceMissing(f"'{item.id}' was held with other turns than its own", where="conversation rows")
            found.append(Held(item, row, judge(item, tuple(turn.output for turn in row.turns))))
        except ValueError as error:
            raise EvidenceMissing(str(error), where="items") from error
    return tuple(found)


def questions(evidence: Evidence, path: Path | None) -> tuple[tuple[int, ChoiceRow], ...]:
    """Return every question as (place of the right choice, row).

    Raises:
        EvidenceMissing: as :func:`in_order`, an item is no question, or a row has other choices than its item.
    """
    found: list[tuple[int, ChoiceRow]] = []
    for item, row in in_order(items_of(evidence), read_rows(path, ChoiceRow, "choice rows"), "choice rows"):
        try:
            choices, answer = choices_of(item), answer_of(item)
        except ValueError as error:
            raise EvidenceMissing(str(error), where="items") from error
        if [len(choice.encode()) for choice in choices] != [score.bytes for score in row.choices]:
            raise EvidenceMissing(f"'{item.id}' was asked with other choices than its own", where="choice rows")
        found.append((answer, row))
    return tuple(found)


def chosen_right(evidence: Evidence, path: Path | None) -> list[bool]:
    """Return for each question whether its right choice has the largest log-likelihood per byte.

    Raises:
        EvidenceMissing: as :func:`questions`.
    """
    return [
        _is_best([score.nats / score.bytes for score in row.choices], answer)
        for answer, row in questions(evidence, path)
    ]


def _is_best(nats: list[float], answer: int) -> bool:
    """Say whether the answer alone has the least; the first of equal ones would be luck of the order."""
    return nats[answer] == min(nats) and nats.count(min(nats)) == 1


def duels(evidence: Evidence) -> tuple[tuple[Item, DuelRow], ...]:
    """Return every item with the two answers that were compared.

    Raises:
        EvidenceMissing: as :func:`in_order`; an answer is not the one in the rows that were compared, or a preference
            does not follow from its own log-probabilities.
    """
    rows = read_rows(evidence.outputs.get("rows"), DuelRow, "judgements")
    pairs = in_order(items_of(evidence), rows, "judgements")
    given = {
        side: {row.item: row.output for row in read_rows(evidence.inputs.get(side), EvaluationRow, f"{side} rows")}
        for side in ("reference", "candidate")
    }
    for item, row in pairs:
        if (given["reference"].get(item.id), given["candidate"].get(item.id)) != (row.reference, row.candidate):
            raise EvidenceMissing(f"other answers to '{item.id}' were compared than those named", where="judgements")
        _follows(evidence, item, row)
    return pairs


def calibration(evidence: Evidence) -> tuple[tuple[str, Item, DuelRow], ...]:
    """Return every labelled pair of answers as (label, item, row).

    Raises:
        EvidenceMissing: as :func:`duels`, for the labelled pairs.
    """
    name = evidence.stage.inputs.get("labelled", "").partition(".")[2]
    try:
        pairs = labelled_pairs(evidence.data.get(name, ()))
    except ValueError as error:
        raise EvidenceMissing(str(error), where=f"data.{name}") from error
    rows = read_rows(evidence.outputs.get("calibration"), DuelRow, "calibration rows")
    found: list[tuple[str, Item, DuelRow]] = []
    by_item = {pair.item.id: pair for pair in pairs}
    for item, row in in_order([pair.item for pair in pairs], rows, "calibration rows"):
        pair = by_item[item.id]
        if (pair.reference, pair.candidate) != (row.reference, row.candidate):
            raise EvidenceMissing(f"'{item.id}' was judged on other answers than it holds", where="calibration rows")
        _follows(evidence, item, row)
        found.append((pair.label, item, row))
    return tuple(found)


def _follows(evidence: Evidence, item: Item, row: DuelRow) -> None:
    """Refuse a judgement that was made with another prompt, or that its own figures do not give."""
    parameters = PairwiseJudgeParameters.model_validate(evidence.parameters)
    rubric = rubric_for("comparison", parameters.rubric)
    limit = parameters.shown_characters
    prompts = prompts_of_comparison(rubric, item.prompt, row.reference.strip()[:limit], row.candidate.strip()[:limit])
    asked = (row.plain.scores.prompt, row.swapped.scores.prompt)
    if asked != tuple(digest_bytes(text.encode()) for text in prompts) or row.rubric != rubric.content_digest():
        raise EvidenceMissing(f"'{item.id}' was judged with another prompt", where="judgements")
    try:
        plain = arrangement(row.plain.scores, "A", parameters.margin)
        swapped = arrangement(row.swapped.scores, "B", parameters.margin)
        verdict = decide(plain, swapped, parameters.agreement, parameters.margin)
    except ValueError as error:
        raise EvidenceMissing(f"'{item.id}': {error}", where="judgements") from error
    due = {True: "reference", False: "candidate", None: None}[verdict]
    if (plain, swapped, due) != (row.plain, row.swapped, row.preferred):
        raise EvidenceMissing(
            f"'{item.id}': {row.preferred or 'a tie'} is stated, {due or 'a tie'} follows", where="judgements"
        )


def measure_perplexity(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics; errors as those of reading its rows."""
    rows = [row for _, row in surprises(evidence, evidence.outputs.get("rows"))]
    nats, tokens, size = ([getattr(row, name) for row in rows] for name in ("nats", "tokens", "bytes"))
    n = len(rows)
    return {
        "texts": Measured(n, n),
        "scored_tokens": Measured(sum(tokens), sum(tokens)),
        "nats_per_token": Measured(sum(nats) / sum(tokens), sum(tokens), ratio_interval(nats, tokens)),
        "nats_per_byte": Measured(sum(nats) / sum(size), sum(size), ratio_interval(nats, size)),
    }


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % percentile interval of ``sum(above) / sum(below)`` from drawing texts; None with one text."""
    if len(above) < 2:
        return None
    import numpy as np
    from scipy.stats import bootstrap

    def ratio(one: Any, other: Any, axis: int) -> Any:
        return one.sum(axis=axis) / other.sum(axis=axis)

    found = bootstrap(
        (np.asarray(above, float), np.asarray(below, float)),
        ratio,
        paired=True,
        vectorized=True,
        n_resamples=LIFT_RESAMPLES,
        batch=max(1, 1_000_000 // len(above)),
        method="percentile",
        rng=np.random.default_rng(42),
    )
    low, high = found.confidence_interval
    return float(low), float(high)


def measure_choices(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics; errors as those of reading its rows."""
    right: dict[str, int] = dict.fromkeys(("", "_per_token", "_per_byte"), 0)
    chance = Fraction(0)
    asked = questions(evidence, evidence.outputs.get("rows"))
    for answer, row in asked:
        chance += Fraction(1, len(row.choices))
        per = {
            "": [score.nats for score in row.choices],
            "_per_token": [score.nats / score.tokens for score in row.choices],
            "_per_byte": [score.nats / score.bytes for score in row.choices],
        }
        for name, nats in per.items():
            right[name] += _is_best(nats, answer)
    n = len(asked)
    rates = {f"choice_accuracy{name}": share(count, n) for name, count in right.items()}
    return {"questions": Measured(n, n), **rates, "chance_rate": Measured(chance / n, n)}


def measure_duels(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics; errors as those of reading its rows."""
    rows = [row for _, row in duels(evidence)]
    n = len(rows)
    halves = [{"candidate": 2, "reference": 0, None: 1}[row.preferred] for row in rows]
    found = win_rate([half / 2 for half in halves], [float(len(row.candidate) - len(row.reference)) for row in rows])
    labelled = calibration(evidence)
    labels = [label for label, _, _ in labelled]
    agreement = cohens_kappa(labels, [row.preferred or "tie" for _, _, row in labelled])
    longer = _longer([row.preferred for _, _, row in labelled], labelled) - _longer(labels, labelled)
    return {
        "duels": Measured(n, n),
        "win_rate": Measured(ratio(sum(halves), 2 * n), n, found.interval),
        "win_rate_controlled": Measured(found.controlled, n),
        "tie_rate": share(sum(row.preferred is None for row in rows), n),
        "order_flips": share(sum(row.plain.good != row.swapped.good for row in rows), n),
        "judge_kappa": Measured(agreement.exact, agreement.n, agreement.interval),
        "judge_longer": Measured(longer, len(labelled)),
    }


def _longer(preferred: Sequence[str | None], labelled: Sequence[tuple[str, Item, DuelRow]]) -> Fraction:
    """Return how often the longer answer is preferred, among preferences for one of two answers of unequal length."""
    chosen = [
        (side == "candidate") == (len(row.candidate) > len(row.reference))
        for side, (_, _, row) in zip(preferred, labelled, strict=True)
        if side in ("reference", "candidate") and len(row.candidate) != len(row.reference)
    ]
    return ratio(sum(chosen), len(chosen)) if chosen else Fraction(1, 2)


def measure_conversations(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics; errors as those of reading its rows."""
    found = held(evidence, evidence.outputs.get("rows"))
    n = len(found)
    kinds: defaultdict[str, list[bool]] = defaultdict(list)
    for one in found:
        kinds[one.item.kind].append(one.passed)
    lowest = min(kinds.values(), key=lambda passed: sum(passed) / len(passed))
    turns = [turn.passed for one in found for turn in one.turns]
    cut = [turn.truncated for one in found for turn in one.row.turns]
    return {
        "conversations": Measured(n, n),
        "conversation_pass_rate": share(sum(one.passed for one in found), n),
        "turn_pass_rate": share(sum(turns), len(turns)),
        "lowest_kind_pass_rate": share(sum(lowest), len(lowest)),
        "turn_truncation_rate": share(sum(cut), len(cut)),
    }
