"""The metrics of critics, revisions and preferences. Each critic has its own ids, so that no gate mixes them up."""

from __future__ import annotations

from typing import Any, Literal

from specs.stages.row_metric import (
    Fits,
    Over,
    RowMetric,
    Value,
    count,
    fraction_of,
    judged,
    metric,
    middle,
    number,
    rate,
    share,
    where,
)
from specs.stages.sampling_metrics import rates, revised

_LABELLED = Over("the labelled sample: items that a person has judged", output="calibration")
_CHAINS = Over("all chains of critique and revision, one for each example")
_SAMPLED = Over("all sampled responses")
_COMPARED = Over("all comparisons of two sampled responses", output="comparisons")
_VERIFIED = Over("all samples that came in, each judged by the task's verifier")
_PAIRS = Over("the pairs that are kept, of all sources", output="preferences", may_be_empty=True)
_REVISED = Over("all comparisons of a revision with its original, where the stage has a judge", output="comparisons")
_OFFERED = Over("all pairs that were made, of all sources, before any is left out", output="preferences")
_OF_THEM = where(
    "the pairs that are kept, but for those that are wrong by their length on purpose",
    lambda one: not one.by_length,
    "preferences",
)
_BIAS = "mean words of chosen - rejected / mean words of both"
CRITIC_PREFIX = {
    "critique_instructions": "instructions",
    "critique_responses": "responses",
    "best_of_n": "pair_judge",
    "revise": "revision_judge",
}
"""By kind of stage, what the metrics of its critic begin with."""


def _critic(prefix: str) -> tuple[RowMetric, ...]:
    """Return what is measured of a critic that accepts or not; ``prefix`` is also what it judges."""
    rows = Over(f"all {prefix} that were judged, before any is dropped")
    accepted = f"{prefix} judged good, with the margin, as the stage's agreement of both label orders asks"
    return (
        metric(f"{prefix}_judged", unit=prefix, over=rows, value=count),
        metric(
            f"{prefix}_accepted",
            unit=prefix,
            over=rows,
            value=number(accepted, lambda row: row.accepted),
            better="higher",
        ),
        rate(f"{prefix}_acceptance_rate", accepted, lambda row: row.accepted, over=rows, better="higher"),
        rate(
            f"{prefix}_confident_rate",
            "rows with the margin in both label orders",
            lambda row: row.plain.confident and row.swapped.confident,
            over=rows,
            better="higher",
        ),
        *_swapping(prefix, rows),
        *_calibrated(
            prefix,
            where(
                "accepted where the person says good, not accepted where the person says bad",
                lambda row: row.accepted == (row.label == "good"),
            ),
            *(
                _cell(label, accepts)
                for label, accepts in (("good", True), ("good", False), ("bad", True), ("bad", False))
            ),
        ),
    )


def _cell(label: str, accepts: bool) -> Over:
    told = f"the person says {label}, the critic {'accepts' if accepts else 'does not accept'}"
    return where(told, lambda row: (row.label, row.accepted) == (label, accepts))


def _swapping(prefix: str, rows: Over) -> tuple[RowMetric, ...]:
    return (
        rate(
            f"{prefix}_swap_inconsistency",
            "rows whose verdict is another one when the labels change places",
            lambda row: row.plain.good != row.swapped.good,
            over=rows,
            better="lower",
        ),
        metric(
            f"{prefix}_median_margin",
            unit="nats",
            over=rows,
            value=middle(
                "median of the smaller |log p(A) - log p(B)| of both label orders",
                lambda row: min(row.plain.margin, row.swapped.margin),
            ),
        ),
        metric(
            f"{prefix}_label_mass",
            unit="probability",
            over=rows,
            value=middle(
                "median of the smaller probability, of both label orders, that the next token is A or B in any form",
                lambda row: min(row.plain.scores.mass(), row.swapped.scores.mass()),
            ),
            better="higher",
        ),
    )


def _calibrated(prefix: str, agree: Over, *cells: Over) -> tuple[RowMetric, ...]:
    return (
        metric(f"{prefix}_labelled", unit="items", over=_LABELLED, value=Value("number of items", len)),
        rate(f"{prefix}_agreement", agree.told, agree.holds, over=_LABELLED, of="items", better="higher"),
        metric(
            f"{prefix}_kappa",
            unit="kappa",
            over=_LABELLED,
            value=judged(
                "Cohen's kappa of critic and person: agreement beyond chance / the most there could be", *cells
            ),
            better="higher",
        ),
    )


def _judge(prefix: str, rows: Over) -> tuple[RowMetric, ...]:
    """Return what is measured of a judge that compares two responses."""
    told = "the preferred response is the person's; an abstention is no agreement"
    agree = where(told, lambda row: row.preferred == row.label)
    decided = where("the judge prefers one", lambda row: row.preferred is not None)
    return (*_swapping(prefix, rows), *_calibrated(prefix, agree, agree, decided))


def _left_out(told: str, *reasons: str) -> Value:
    """Return a number of dropped pairs; without the file of them its lines are those of all that are kept."""
    return judged(
        told, where(f"were left out for {' or '.join(reasons)}", lambda one: one.reason in reasons, "dropped")
    )


def _dropped(prefix: str) -> tuple[RowMetric, ...]:
    """Return what is measured of the lengths of pairs, and of those that went for their length."""
    ratio = "pairs left out because one response has more than max_length_ratio times the words of the other"
    balance = "pairs left out so that the mean of ln(words of chosen / words of rejected) is within length_balance"
    mean = judged("mean of ln(words of chosen / words of rejected)")
    return (
        metric(f"{prefix}_dropped_ratio", unit="pairs", over=_OFFERED, value=_left_out(ratio, "length_ratio")),
        metric(f"{prefix}_dropped_balance", unit="pairs", over=_OFFERED, value=_left_out(balance, "length_balance")),
        metric(f"{prefix}_log_length_ratio", unit="log ratio", over=_OF_THEM, value=mean),
    )


def _validation(prefix: str) -> RowMetric:
    told = number("pairs marked for validation", lambda one: one.pair.split == "validation")
    return metric(f"{prefix}_for_validation", unit="pairs", over=_PAIRS, value=told)


def _of_chains(id: str, told: str, fits: Fits, better: Literal["higher", "lower"] = "lower") -> RowMetric:
    value = share(f"chains {told}", fits, "chains")
    return metric(id, unit="fraction", over=_CHAINS, value=value, better=better)


def _faulty(*faults: str) -> Fits:
    return lambda one: any(set(faults) & set(each.faults) for each in one.row.rounds)


def _first(order: str) -> Fits:
    """Say whether the response shown first is preferred: it is A, where "good" is A and good, or B and not."""

    def fits(row: Any) -> bool:
        said = getattr(row, order)
        return (said.good_label == "A") == said.good

    return fits


INSTRUCTION_METRICS = _critic("instructions")
RESPONSE_METRICS = _critic("responses")
REVISE_METRICS = (
    metric("chains", unit="chains", over=_CHAINS, value=count),
    _of_chains(
        "revised_rate",
        "whose last revision is whole, long enough, no refusal and not what it was made from",
        lambda one: one.row.usable,
        better="higher",
    ),
    _of_chains(
        "revision_unchanged_rate",
        "that end in the words they began with",
        lambda one: one.row.final.split() == one.row.original.split(),
    ),
    _of_chains("revision_refusal_rate", "with a revision that refuses", _faulty("refusal")),
    _of_chains("revision_short_rate", "with a revision that is empty or has too few words", _faulty("empty", "short")),
    _of_chains(
        "revision_truncation_rate",
        "with a critique or revision that hit the token limit",
        lambda one: any("length" in (each.critique_finish, each.revision_finish) for each in one.row.rounds),
    ),
    metric(
        "principle_imbalance",
        unit="uses",
        over=Over("all rounds of critique and revision"),
        value=judged(
            "uses of the most used category of principles - uses of the least used one",
            where("use the most used category", lambda one: one.most_used),
            where("use the least used category", lambda one: one.least_used),
        ),
        better="lower",
    ),
    metric("revision_pairs", unit="pairs", over=_PAIRS, value=judged("number of pairs"), better="higher"),
    metric("revision_length_bias", unit="ratio", over=_PAIRS, value=judged(_BIAS)),
    *_dropped("revision_pairs"),
    metric(
        "revision_pairs_dropped_judge",
        unit="pairs",
        over=_REVISED,
        value=_left_out(
            "pairs left out because the judge prefers the original, or neither in both orders with the margin",
            "original_preferred",
            "no_preference",
        ),
    ),
    rate(
        "revision_preferred_rate",
        "comparisons won by the revision",
        lambda row: row.preferred == "first",
        over=_REVISED,
        of="all",
        better="higher",
    ),
    *_judge("revision_judge", _REVISED),
    *rates(
        "revision",
        _CHAINS.told,
        "chains",
        empty="with a critique or revision without a visible character",
        runaway=revised("runaway"),
        leaked=revised("leaked"),
        repeated="whose last revision has the words (case, marks and white space ignored) of an earlier one",
    ),
)
BEST_OF_N_METRICS = (
    metric("candidates", unit="responses", over=_SAMPLED, value=count),
    rate(
        "candidate_truncation_rate",
        "responses that hit the token limit",
        lambda row: row.finish == "length",
        over=_SAMPLED,
        of="responses",
        better="lower",
    ),
    metric("pair_comparisons", unit="comparisons", over=_COMPARED, value=count),
    rate(
        "pair_judge_abstention_rate",
        "comparisons without a preference",
        lambda row: row.preferred is None,
        over=_COMPARED,
        of="comparisons",
    ),
    metric(
        "pair_judge_first_rate",
        unit="fraction",
        over=Over(f"{_COMPARED.told}, each in both orders", output=_COMPARED.output),
        value=judged(
            "verdicts for the response shown first / verdicts; 0.5 for a judge without a preference for a place",
            where("in one order, what is shown first is preferred", _first("plain")),
            where("in the other order, what is shown first is preferred", _first("swapped")),
        ),
    ),
    rate(
        "pair_judge_decided_rate",
        "items with a preference",
        lambda row: row.preferred is not None,
        over=_LABELLED,
        of="items",
        better="higher",
    ),
    *_judge("pair_judge", _COMPARED),
    metric("pairs", unit="pairs", over=_PAIRS, value=Value("number of pairs", len), better="higher"),
    _validation("pairs"),
    metric(
        "hard_negative_share",
        unit="fraction",
        over=_PAIRS,
        value=Value(
            "pairs whose rejected response was made wrong / pairs",
            fraction_of(lambda one: one.pair.source == "hard_negative"),
            (where("have a response made wrong on purpose", lambda one: one.pair.source == "hard_negative"),),
        ),
    ),
    metric("pairs_length_difference", unit="words", over=_OF_THEM, value=judged("mean words of chosen - rejected")),
    metric("pairs_length_bias", unit="ratio", over=_OF_THEM, value=judged(_BIAS)),
    *_dropped("pairs"),
    *rates("candidate", _SAMPLED.told, "responses", empty="", runaway="", leaked="", repeated=""),
)
VERIFIED_METRICS = (
    metric("verified_samples", unit="completions", over=_VERIFIED, value=count),
    rate(
        "verified_accepted_rate",
        "samples that end by themselves and that the verifier accepts",
        lambda one: one.row.verdict == "accepted",
        over=_VERIFIED,
        of="samples",
    ),
    metric(
        "verified_mixed_prompts",
        unit="prompts",
        over=_VERIFIED,
        value=judged(
            "prompts with a sample that is accepted and one that is refused",
            where("are of a prompt with a sample that is accepted and one that is refused", lambda one: one.mixed),
        ),
        better="higher",
    ),
    metric("verified_pairs", unit="pairs", over=_PAIRS, value=Value("number of pairs", len), better="higher"),
    _validation("verified_pairs"),
    metric("verified_length_bias", unit="ratio", over=_PAIRS, value=judged(_BIAS)),
    *_dropped("verified_pairs"),
)
