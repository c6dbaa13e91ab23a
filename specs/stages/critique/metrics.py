"""The metrics of critics, revisions and preferences. Each critic has its own ids, so that no gate mixes them up."""

from __future__ import annotations

from specs.stages.metric import MetricDefinition, Scope
from specs.stages.metric import defined as _m

_LABELLED = "the labelled sample: items that a person has judged"
_CHAINS = "all chains of critique and revision, one for each example"
_SAMPLED = "all sampled responses"
_COMPARED = "all comparisons of two sampled responses"
_VERIFIED = "all samples that came in, each judged by the task's verifier"
_PAIRS = "the pairs that are kept, of all sources"
_REVISED = "all comparisons of a revision with its original, where the stage has a judge"
_OFFERED = "all pairs that were made, of all sources, before any is left out"
_OF_THEM = "the pairs that are kept, but for those that are wrong by their length on purpose"
CRITIC_PREFIX = {
    "critique_instructions": "instructions",
    "critique_responses": "responses",
    "best_of_n": "pair_judge",
    "revise": "revision_judge",
}
"""By kind of stage, what the metrics of its critic begin with."""


def _critic(prefix: str, scope: Scope, what: str) -> tuple[MetricDefinition, ...]:
    """Return what is measured of a critic that accepts or not."""
    rows = f"all {what} that were judged, before any is dropped"
    accepted = f"{what} judged good, with the margin, as the stage's agreement of both label orders asks"
    return (
        _m(f"{prefix}_judged", scope, what, rows, "number of rows", "none"),
        _m(f"{prefix}_accepted", scope, what, rows, accepted, "higher"),
        _m(f"{prefix}_acceptance_rate", scope, "fraction", rows, f"{accepted} / rows", "higher"),
        _m(
            f"{prefix}_confident_rate",
            scope,
            "fraction",
            rows,
            "rows with the margin in both label orders / rows",
            "higher",
        ),
        *_swapping(prefix, scope, rows),
        *_calibrated(prefix, scope, "accepted where the person says good, not accepted where the person says bad"),
    )


def _swapping(prefix: str, scope: Scope, rows: str) -> tuple[MetricDefinition, ...]:
    return (
        _m(
            f"{prefix}_swap_inconsistency",
            scope,
            "fraction",
            rows,
            "rows whose verdict is another one when the labels change places / rows",
            "lower",
        ),
        _m(
            f"{prefix}_median_margin",
            scope,
            "nats",
            rows,
            "median of the smaller |log p(A) - log p(B)| of both label orders",
            "none",
        ),
        _m(
            f"{prefix}_label_mass",
            scope,
            "probability",
            rows,
            "median of the smaller probability, of both label orders, that the next token is A or B in any form",
            "higher",
        ),
    )


def _calibrated(prefix: str, scope: Scope, agrees: str) -> tuple[MetricDefinition, ...]:
    return (
        _m(f"{prefix}_labelled", scope, "items", _LABELLED, "number of items", "none"),
        _m(f"{prefix}_agreement", scope, "fraction", _LABELLED, f"{agrees} / items", "higher"),
        _m(
            f"{prefix}_kappa",
            scope,
            "kappa",
            _LABELLED,
            "Cohen's kappa of critic and person: agreement beyond chance / the most there could be",
            "higher",
        ),
    )


def _dropped(prefix: str, scope: Scope) -> tuple[MetricDefinition, ...]:
    """Return what is measured of the lengths of pairs, and of those that went for their length."""
    ratio = "pairs left out because one response has more than max_length_ratio times the words of the other"
    balance = "pairs left out so that the mean of ln(words of chosen / words of rejected) is within length_balance"
    mean = "mean of ln(words of chosen / words of rejected)"
    return (
        _m(f"{prefix}_dropped_ratio", scope, "pairs", _OFFERED, ratio, "none"),
        _m(f"{prefix}_dropped_balance", scope, "pairs", _OFFERED, balance, "none"),
        _m(f"{prefix}_log_length_ratio", scope, "log ratio", _OF_THEM, mean, "none"),
    )


CRITIC_METRICS: tuple[MetricDefinition, ...] = (
    *_critic("instructions", "critique_instructions", "instructions"),
    *_critic("responses", "critique_responses", "responses"),
    _m("chains", "revise", "chains", _CHAINS, "number of rows", "none"),
    _m(
        "revised_rate",
        "revise",
        "fraction",
        _CHAINS,
        "chains whose last revision is whole, long enough, no refusal and not what it was made from / chains",
        "higher",
    ),
    _m(
        "revision_unchanged_rate",
        "revise",
        "fraction",
        _CHAINS,
        "chains that end in the words they began with / chains",
        "lower",
    ),
    _m("revision_refusal_rate", "revise", "fraction", _CHAINS, "chains with a revision that refuses / chains", "lower"),
    _m(
        "revision_short_rate",
        "revise",
        "fraction",
        _CHAINS,
        "chains with a revision that is empty or has too few words / chains",
        "lower",
    ),
    _m(
        "revision_truncation_rate",
        "revise",
        "fraction",
        _CHAINS,
        "chains with a critique or revision that hit the token limit / chains",
        "lower",
    ),
    _m(
        "principle_imbalance",
        "revise",
        "uses",
        "all rounds of critique and revision",
        "uses of the most used category of principles - uses of the least used one",
        "lower",
    ),
    _m("revision_pairs", "revise", "pairs", _PAIRS, "number of pairs", "higher"),
    _m(
        "revision_length_bias",
        "revise",
        "ratio",
        _PAIRS,
        "mean words of chosen - rejected / mean words of both",
        "none",
    ),
    *_dropped("revision_pairs", "revise"),
    _m(
        "revision_pairs_dropped_judge",
        "revise",
        "pairs",
        _REVISED,
        "pairs left out because the judge prefers the original, or neither in both orders with the margin",
        "none",
    ),
    _m(
        "revision_preferred_rate",
        "revise",
        "fraction",
        _REVISED,
        "comparisons won by the revision / all",
        "higher",
    ),
    *_swapping("revision_judge", "revise", _REVISED),
    *_calibrated("revision_judge", "revise", "the preferred response is the person's; an abstention is no agreement"),
    _m("candidates", "best_of_n", "responses", _SAMPLED, "number of rows", "none"),
    _m(
        "candidate_truncation_rate",
        "best_of_n",
        "fraction",
        _SAMPLED,
        "responses that hit the token limit / responses",
        "lower",
    ),
    _m("pair_comparisons", "best_of_n", "comparisons", _COMPARED, "number of rows", "none"),
    _m(
        "pair_judge_abstention_rate",
        "best_of_n",
        "fraction",
        _COMPARED,
        "comparisons without a preference / comparisons",
        "none",
    ),
    _m(
        "pair_judge_first_rate",
        "best_of_n",
        "fraction",
        f"{_COMPARED}, each in both orders",
        "verdicts for the response shown first / verdicts; 0.5 for a judge without a preference for a place",
        "none",
    ),
    *_swapping("pair_judge", "best_of_n", _COMPARED),
    _m("pair_judge_decided_rate", "best_of_n", "fraction", _LABELLED, "items with a preference / items", "higher"),
    *_calibrated("pair_judge", "best_of_n", "the preferred response is the person's; an abstention is no agreement"),
    _m("pairs", "best_of_n", "pairs", _PAIRS, "number of pairs", "higher"),
    _m("pairs_for_validation", "best_of_n", "pairs", _PAIRS, "pairs marked for validation", "none"),
    _m(
        "hard_negative_share",
        "best_of_n",
        "fraction",
        _PAIRS,
        "pairs whose rejected response was made wrong / pairs",
        "none",
    ),
    _m("pairs_length_difference", "best_of_n", "words", _OF_THEM, "mean words of chosen - rejected", "none"),
    _m(
        "pairs_length_bias",
        "best_of_n",
        "ratio",
        _OF_THEM,
        "mean words of chosen - rejected / mean words of both",
        "none",
    ),
    *_dropped("pairs", "best_of_n"),
    _m("verified_samples", "best_of_n_verified", "completions", _VERIFIED, "number of rows", "none"),
    _m(
        "verified_accepted_rate",
        "best_of_n_verified",
        "fraction",
        _VERIFIED,
        "samples that end by themselves and that the verifier accepts / samples",
        "none",
    ),
    _m(
        "verified_mixed_prompts",
        "best_of_n_verified",
        "prompts",
        _VERIFIED,
        "prompts with a sample that is accepted and one that is refused",
        "higher",
    ),
    _m("verified_pairs", "best_of_n_verified", "pairs", _PAIRS, "number of pairs", "higher"),
    _m("verified_pairs_for_validation", "best_of_n_verified", "pairs", _PAIRS, "pairs marked for validation", "none"),
    _m(
        "verified_length_bias",
        "best_of_n_verified",
        "ratio",
        _PAIRS,
        "mean words of chosen - rejected / mean words of both",
        "none",
    ),
    *_dropped("verified_pairs", "best_of_n_verified"),
)
