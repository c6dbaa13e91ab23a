"""Metrics of evaluations."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from specs.stages.row_metric import Over, RowMetric, Value, count, judged, metric, rate, share, where

_ITEMS = Over("all registered held-out items, each once")
_of_items = partial(rate, over=_ITEMS, of="items")
_TEXTS = Over("all texts, each once")
_TOKENS = Over("all tokens of all texts, each scored once")
_QUESTIONS = Over("all questions, each once")
_DUELS = Over("items answered by both sides, each compared in both orders")
_of_duels = partial(rate, over=_DUELS, of="items")
_TIES = where("a tie", lambda row: row.preferred is None)
_LABELLED = Over("the pairs of answers that people have labelled", output="calibration")
_CONVERSATIONS = Over("all conversations, each once")

EVALUATE_METRICS = (
    _of_items(
        "accuracy", "items whose output the registered verifier accepts", lambda one: one.passed, better="higher"
    ),
    metric("items", unit="items", over=_ITEMS, value=count),
    _of_items("truncation_rate", "outputs that hit the token limit", lambda one: one.row.truncated, better="lower"),
    _of_items(
        "empty_rate", "outputs with no visible character", lambda one: not one.row.output.strip(), better="lower"
    ),
    metric(
        "mean_output_tokens",
        unit="model tokens",
        over=_ITEMS,
        value=Value(
            "mean length of the output, end token not counted",
            lambda rows: Fraction(sum(one.row.output_tokens for one in rows), len(rows)),
        ),
    ),
)

PERPLEXITY_METRICS = (
    metric("texts", unit="texts", over=_TEXTS, value=count),
    metric("scored_tokens", unit="model tokens", over=_TOKENS, value=judged("tokens, summed over texts")),
    metric(
        "nats_per_token",
        unit="nats per token",
        over=_TOKENS,
        value=judged("negative log-likelihood / tokens"),
        better="lower",
    ),
    metric(
        "nats_per_byte",
        unit="nats per byte",
        over=_TOKENS,
        value=judged("negative log-likelihood / UTF-8 bytes of the texts; the same unit for every tokenizer"),
        better="lower",
    ),
)

_SAME = "the same with the log-likelihood of each choice divided by its"


def _likeliest(id: str, told: str, per: str, of: str = "") -> RowMetric:
    value = share(told, lambda one: one.likeliest(per), of)
    return metric(id, unit="fraction", over=_QUESTIONS, value=value, better="higher")


CHOICE_METRICS = (
    metric("questions", unit="questions", over=_QUESTIONS, value=count),
    _likeliest("choice_accuracy", "questions whose right choice has the largest log-likelihood", "", "questions"),
    _likeliest("choice_accuracy_per_token", f"{_SAME} model tokens", "tokens"),
    _likeliest("choice_accuracy_per_byte", f"{_SAME} UTF-8 bytes", "bytes"),
    metric(
        "chance_rate",
        unit="fraction",
        over=_QUESTIONS,
        value=Value(
            "mean of 1 / number of choices",
            lambda rows: sum((Fraction(1, len(one.row.choices)) for one in rows), Fraction(0)) / len(rows),
        ),
    ),
)

DUEL_METRICS = (
    metric("duels", unit="items", over=_DUELS, value=count),
    metric(
        "win_rate",
        unit="fraction",
        over=_DUELS,
        value=judged(
            "(candidate preferred + half of the ties) / items",
            where("the candidate is preferred", lambda row: row.preferred == "candidate"),
            _TIES,
        ),
        better="higher",
    ),
    metric(
        "win_rate_controlled",
        unit="fraction",
        over=_DUELS,
        value=judged(
            "win rate at answers of equal length: logistic regression on tanh of the standardised difference in "
            "characters"
        ),
        better="higher",
    ),
    _of_duels("tie_rate", "items without a preference", _TIES.holds),
    _of_duels(
        "order_flips",
        "items where the two orders prefer different answers",
        lambda row: row.plain.good != row.swapped.good,
        better="lower",
    ),
    metric(
        "judge_kappa",
        unit="kappa",
        over=_LABELLED,
        value=judged(
            "Cohen's kappa of the judge's preference (reference, candidate or tie) with the label",
            where("judge and people agree", lambda one: one.said == one.label),
            where("they do not", lambda one: one.said != one.label),
        ),
        better="higher",
    ),
    metric(
        "judge_longer",
        unit="fraction",
        over=_LABELLED,
        value=judged(
            "share of the longer answer among the preferences, minus its share among the labels (characters)",
            where("the judge prefers the longer answer", lambda one: one.said == one.longer),
            where("people prefer the longer answer", lambda one: one.label == one.longer),
        ),
    ),
)

CONVERSATION_METRICS = (
    metric("conversations", unit="conversations", over=_CONVERSATIONS, value=count),
    rate(
        "conversation_pass_rate",
        "conversations of which every turn after the first passes",
        lambda one: one.passed,
        over=_CONVERSATIONS,
        of="conversations",
        better="higher",
    ),
    rate(
        "turn_pass_rate",
        "turns that pass",
        lambda turn: turn.passed,
        over=Over("all turns after the first of all conversations", output="turns"),
        of="turns",
        better="higher",
    ),
    rate(
        "lowest_kind_pass_rate",
        "conversation_pass_rate of the kind of conversation where it is lowest",
        lambda one: one.passed,
        over=where(_CONVERSATIONS.told, lambda one: one.of_lowest),
        of="",
        better="higher",
    ),
    rate(
        "turn_truncation_rate",
        "answers that hit the token limit",
        lambda turn: turn.truncated,
        over=Over("all turns of all conversations", output="answers"),
        of="turns",
        better="lower",
    ),
)
