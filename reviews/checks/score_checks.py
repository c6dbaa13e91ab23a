"""Do scores follow from the granted weights? A witness recomputed the log-probabilities of some rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry
from reviews.checks.witness_checks import coarser_type, holds_scores, witness_of
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from specs.stages.base.metric import MetricSet
from specs.stages.base.witness import SCORE_GAP, SCORE_SPREAD, SPREAD_ROWS, Score, ScoredRow
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing

CHECKS = CheckRegistry(kinds=lambda kind: kind.logprob_outputs)
_SHOWN = 4
"""Scores of a row that are shown."""


@CHECKS.add(
    "witness.scores",
    "The granted weights give the scores",
    source="log-probabilities of another model, and verdicts edited after the fact, believed by the gate",
    threshold="; ".join(
        f"{dtype}: within {gap:g} nats, of n tokens {gap:g} * sqrt(n), all of {SPREAD_ROWS} rows or more within "
        f"{SCORE_SPREAD[dtype]:g}"
        for dtype, gap in SCORE_GAP.items()
    ),
)
def _check_scores(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare what a witness scored, rows drawn after the job had ended, with what the job stated of them."""
    kind = kind_of(evidence.stage)
    outputs = kind.scores_of(evidence.parse_parameters(kind.parameters))
    if not outputs:
        return CheckOutcome("NOT_APPLICABLE", "the stage has no scores that a witness could compute")
    witness = witness_of(evidence)
    if unrequested_outputs := [name for name in outputs if name not in ("rows", *(witness.challenge.others or ()))]:
        raise EvidenceMissing(f"no witness was asked for the scores of {', '.join(unrequested_outputs)}")
    rows = read_rows(witness.rows, ScoredRow, "witness rows", may_be_empty=True, which=holds_scores)
    pairs = {(name, place) for name in outputs for place in witness.challenge.select_rows(name).rows}
    if {(row.output, row.row) for row in rows} != pairs:
        raise EvidenceMissing("the witness did not score the rows of its challenge")
    if not pairs:
        return CheckOutcome("PASS", "no row has scores", 0.0)
    wrong = list(wrong_scores(rows, coarser_type(evidence, SCORE_GAP)))
    of = sum(witness.challenge.select_rows(name).of for name in outputs)
    message = f"{len(pairs)} of {of} rows scored again with the granted weights"
    if wrong:
        return CheckOutcome(
            "FAIL", f"{message}: {len(wrong)} do not match", float(len(wrong)), tuple(wrong), repairable=False
        )
    worst = max((apart(score) for row in rows for score in row.scores.values()), default=0.0)
    return CheckOutcome("PASS", f"{message}: every score matches, within {worst:.1e} nats", 0.0)


def wrong_scores(rows: Sequence[ScoredRow], dtype: str) -> Iterator[dict[str, Any]]:
    """Yield the rows that the granted weights did not score, each with why, or one if only all together show it."""
    if dtype not in SCORE_GAP:
        raise EvidenceMissing(f"no tolerance is known for weights of type '{dtype}'")
    wrong = [{"output": row.output, "row": row.row, "why": why} for row in rows if (why := _why(row, SCORE_GAP[dtype]))]
    yield from wrong
    if not wrong and len(rows) >= SPREAD_ROWS and (value := spread(rows)) > SCORE_SPREAD[dtype]:
        why = f"all scores together are {value:.2g} nats from what the weights give"
        yield {"output": rows[0].output, "row": rows[0].row, "why": why}


def _why(row: ScoredRow, gap: float) -> str:
    if row.differs:
        return f"not as it is due: {', '.join(row.differs)}"
    if not row.scores:
        return "the witness says nothing of its scores"
    far = {name: score for name, score in row.scores.items() if apart(score) > gap}
    return "; ".join(
        f"{name} is {score.stated:.6g}, not {score.read:.6g}" for name, score in list(far.items())[:_SHOWN]
    )


def spread(rows: Sequence[ScoredRow]) -> float:
    """Return the root of the mean square of how far all scores and their readings are apart; 0 without any."""
    values = [apart(score) ** 2 for row in rows for score in row.scores.values()]
    return math.sqrt(math.fsum(values) / len(values)) if values else 0.0


def apart(score: Score) -> float:
    """Return how far apart a score and its reading are, in nats; of n tokens, divided by the square root of n."""
    return abs(score.stated - score.read) / math.sqrt(score.tokens)
