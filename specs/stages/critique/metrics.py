"""The metrics of critics, revisions and preferences. Each critic has its own ids, so that no gate mixes them up."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from specs.stages.base.metric import (
    Fits,
    Population,
    RowMetric,
    Value,
    count,
    fraction,
    judged_value,
    metric,
    middle,
    number,
    rate,
    where,
)
from specs.stages.base.sampling import describe_revision_fault, rates

_LABELLED = Population("the labelled sample: items that a person has judged", output="calibration")
_CHAINS = Population("all chains of critique and revision, one for each example")
_SAMPLED = Population("all sampled responses")
_COMPARED = Population("all comparisons of two sampled responses", output="comparisons")
_VERIFIED = Population("all samples that came in, each judged by the task's verifier")
_PAIRS = Population("the pairs that are kept, of all sources", output="preferences", may_be_empty=True)
_REVISED = Population(
    "all comparisons of a revision with its original, where the stage has a judge", output="comparisons"
)
_OFFERED = Population("all pairs that were made, of all sources, before any is left out", output="preferences")
_OF_THEM = where(
    "the pairs that are kept, without the pairs that are wrong by their length on purpose",
    lambda value: not value.by_length,
    "preferences",
)
_pairs = partial(metric, over=_PAIRS)
_BIAS = "mean words of chosen - rejected / mean words of both"
CRITIC_PREFIX = {
    "critique_instructions": "instructions",
    "critique_responses": "responses",
    "best_of_n": "pair_judge",
    "revise": "revision_judge",
}
"""The prefix of the metrics of a critic, by kind of stage."""


def _critic(prefix: str) -> tuple[RowMetric, ...]:
    """Return what is measured of a critic that accepts or not; ``prefix`` is also what it judges."""
    rows = Population(f"all {prefix} that were judged, before any is dropped")
    accepted = f"{prefix} judged good, with the margin, as the stage's agreement of both label orders asks"
    agree = where(
        "accepted where the person says good, not accepted where the person says bad",
        lambda row: row.accepted == (row.label == "good"),
    )
    return (
        metric(f"{prefix}_judged", prefix, count, over=rows),
        metric(f"{prefix}_accepted", prefix, number(accepted, lambda row: row.accepted), "higher", over=rows),
        rate(f"{prefix}_acceptance_rate", accepted, lambda row: row.accepted, "higher", over=rows),
        rate(
            f"{prefix}_confident_rate",
            "rows with the margin in both label orders",
            lambda row: row.plain.confident and row.swapped.confident,
            "higher",
            over=rows,
        ),
        *_swapping(prefix, rows),
        *_make_calibration_metrics(
            prefix, agree, *(_cell(label, accepts) for label in ("good", "bad") for accepts in (True, False))
        ),
    )


def _cell(label: str, accepts: bool) -> Population:
    message = f"the person says {label}, the critic {'accepts' if accepts else 'does not accept'}"
    return where(message, lambda row: (row.label, row.accepted) == (label, accepts))


def _swapping(prefix: str, rows: Population) -> tuple[RowMetric, ...]:
    margin = middle(
        "median of the smaller |log p(A) - log p(B)| of both label orders",
        lambda row: min(row.plain.margin, row.swapped.margin),
    )
    mass = middle(
        "median of the smaller probability, of both label orders, that the next token is A or B in any form",
        lambda row: min(row.plain.scores.mass(), row.swapped.scores.mass()),
    )
    return (
        rate(
            f"{prefix}_swap_inconsistency",
            "rows whose verdict is another one when the labels change places",
            lambda row: row.plain.good != row.swapped.good,
            "lower",
            over=rows,
        ),
        metric(f"{prefix}_median_margin", "nats", margin, over=rows),
        metric(f"{prefix}_label_mass", "probability", mass, "higher", over=rows),
    )


def _make_calibration_metrics(prefix: str, agree: Population, *cells: Population) -> tuple[RowMetric, ...]:
    kappa = judged_value(
        "Cohen's kappa of critic and person: agreement beyond chance / the most there could be", *cells
    )
    return (
        metric(f"{prefix}_labelled", "items", Value("number of items", len), over=_LABELLED),
        rate(f"{prefix}_agreement", agree.description, agree.holds, "higher", over=_LABELLED, of="items"),
        metric(f"{prefix}_kappa", "kappa", kappa, "higher", over=_LABELLED),
    )


def _judge(prefix: str, rows: Population) -> tuple[RowMetric, ...]:
    """Return what is measured of a judge that compares two responses."""
    message = "the preferred response is the person's; an abstention is not an agreement"
    agree = where(message, lambda row: row.preferred == row.label)
    decided = where("the judge prefers one", lambda row: row.preferred is not None)
    return (*_swapping(prefix, rows), *_make_calibration_metrics(prefix, agree, agree, decided))


def _left_out(text: str, *reasons: str) -> Value:
    """Return a number of dropped pairs; without the file of them its lines are those of all that are kept."""
    return judged_value(
        text, where(f"were left out for {' or '.join(reasons)}", lambda value: value.reason in reasons, "dropped")
    )


def _make_length_metrics(prefix: str) -> tuple[RowMetric, ...]:
    """Return what is measured of the lengths of pairs, and of the pairs dropped for their length."""
    ratio = "pairs left out because one response has more than max_length_ratio times the words of the other"
    balance = "pairs left out so that the mean of ln(words of chosen / words of rejected) is within length_balance"
    mean = judged_value("mean of ln(words of chosen / words of rejected)")
    return (
        metric(f"{prefix}_dropped_ratio", "pairs", _left_out(ratio, "length_ratio"), over=_OFFERED),
        metric(f"{prefix}_dropped_balance", "pairs", _left_out(balance, "length_balance"), over=_OFFERED),
        metric(f"{prefix}_log_length_ratio", "log ratio", mean, over=_OF_THEM),
    )


def _validation(prefix: str) -> RowMetric:
    pairs = number("pairs marked for validation", lambda value: value.pair.split == "validation")
    return _pairs(f"{prefix}_for_validation", "pairs", pairs)


def _of_chains(id: str, text: str, fits: Fits, better: Literal["higher", "lower"] = "lower") -> RowMetric:
    return rate(id, f"chains {text}", fits, better, over=_CHAINS, of="chains")


def _faulty(*faults: str) -> Fits:
    return lambda value: any(set(faults) & set(revision_round.faults) for revision_round in value.row.rounds)


def _first(order: str) -> Fits:
    """Return whether the response shown first is preferred: it is A, where "good" is A and good, or B and not."""

    def fits(row: Any) -> bool:
        statement = getattr(row, order)
        return (statement.good_label == "A") == statement.good

    return fits


INSTRUCTION_METRICS = _critic("instructions")
RESPONSE_METRICS = _critic("responses")
REVISE_METRICS = (
    metric("chains", "chains", count, over=_CHAINS),
    _of_chains(
        "revised_rate",
        "whose last revision is whole, long enough, no refusal and not what it was made from",
        lambda value: value.row.usable,
        "higher",
    ),
    _of_chains(
        "revision_unchanged_rate",
        "that end in the words they began with",
        lambda value: value.row.final.split() == value.row.original.split(),
    ),
    _of_chains("revision_refusal_rate", "with a revision that refuses", _faulty("refusal")),
    _of_chains("revision_short_rate", "with a revision that is empty or has too few words", _faulty("empty", "short")),
    _of_chains(
        "revision_truncation_rate",
        "with a critique or revision that hit the token limit",
        lambda value: any(
            "length" in (revision_round.critique_finish, revision_round.revision_finish)
            for revision_round in value.row.rounds
        ),
    ),
    metric(
        "principle_imbalance",
        "uses",
        judged_value(
            "uses of the most used category of principles - uses of the least used one",
            where("use the most used category", lambda value: value.most_used),
            where("use the least used category", lambda value: value.least_used),
        ),
        "lower",
        over=Population("all rounds of critique and revision"),
    ),
    _pairs("revision_pairs", "pairs", judged_value("number of pairs"), "higher"),
    _pairs("revision_length_bias", "ratio", judged_value(_BIAS)),
    *_make_length_metrics("revision_pairs"),
    metric(
        "revision_pairs_dropped_judge",
        "pairs",
        _left_out(
            "pairs left out because the judge prefers the original, or neither in both orders with the margin",
            "original_preferred",
            "no_preference",
        ),
        over=_REVISED,
    ),
    rate(
        "revision_preferred_rate",
        "comparisons won by the revision",
        lambda row: row.preferred == "first",
        "higher",
        over=_REVISED,
        of="all",
    ),
    *_judge("revision_judge", _REVISED),
    *rates(
        "revision",
        _CHAINS.description,
        "chains",
        empty="with a critique or revision without a visible character",
        runaway=describe_revision_fault("runaway"),
        leaked=describe_revision_fault("leaked"),
        repeated="whose last revision has the words (case, marks and white space ignored) of an earlier one",
    ),
)
BEST_OF_N_METRICS = (
    metric("candidates", "responses", count, over=_SAMPLED),
    rate(
        "candidate_truncation_rate",
        "responses that hit the token limit",
        lambda row: row.finish == "length",
        "lower",
        over=_SAMPLED,
        of="responses",
    ),
    metric("pair_comparisons", "comparisons", count, over=_COMPARED),
    rate(
        "pair_judge_abstention_rate",
        "comparisons without a preference",
        lambda row: row.preferred is None,
        over=_COMPARED,
        of="comparisons",
    ),
    metric(
        "pair_judge_first_rate",
        "fraction",
        judged_value(
            "verdicts for the response shown first / verdicts; 0.5 for a judge without a preference for a place",
            where("in one order, what is shown first is preferred", _first("plain")),
            where("in the other order, what is shown first is preferred", _first("swapped")),
        ),
        over=Population(f"{_COMPARED.description}, each in both orders", output=_COMPARED.output),
    ),
    rate(
        "pair_judge_decided_rate",
        "items with a preference",
        lambda row: row.preferred is not None,
        "higher",
        over=_LABELLED,
        of="items",
    ),
    *_judge("pair_judge", _COMPARED),
    _pairs("pairs", "pairs", Value("number of pairs", len), "higher"),
    _validation("pairs"),
    _pairs(
        "hard_negative_share",
        "fraction",
        fraction(
            "pairs whose rejected response was made wrong / pairs",
            where("have a response made wrong on purpose", lambda value: value.pair.source == "hard_negative"),
        ),
    ),
    metric("pairs_length_difference", "words", judged_value("mean words of chosen - rejected"), over=_OF_THEM),
    metric("pairs_length_bias", "ratio", judged_value(_BIAS), over=_OF_THEM),
    *_make_length_metrics("pairs"),
    *rates("candidate", _SAMPLED.description, "responses", empty="", runaway="", leaked="", repeated=""),
)
VERIFIED_METRICS = (
    metric("verified_samples", "completions", count, over=_VERIFIED),
    rate(
        "verified_accepted_rate",
        "samples that end by themselves and that the verifier accepts",
        lambda value: value.row.verdict == "accepted",
        over=_VERIFIED,
        of="samples",
    ),
    metric(
        "verified_mixed_prompts",
        "prompts",
        judged_value(
            "prompts with an accepted and a refused sample",
            where("are of a prompt with an accepted and a refused sample", lambda value: value.mixed),
        ),
        "higher",
        over=_VERIFIED,
    ),
    _pairs("verified_pairs", "pairs", Value("number of pairs", len), "higher"),
    _validation("verified_pairs"),
    _pairs("verified_length_bias", "ratio", judged_value(_BIAS)),
    *_make_length_metrics("verified_pairs"),
)
