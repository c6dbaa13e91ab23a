"""Metrics of evaluations."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from specs.stages.base.metric import Population, RowMetric, Value, count, judged_value, metric, rate, where

_ITEMS = Population("all answers to the registered held-out items, each item as often as registered")
# Metrics over each population, and shares of its rows.
_items, _of_items = partial(metric, over=_ITEMS), partial(rate, over=_ITEMS, of="outputs")
_ITEM_COUNT = Value("number of items", lambda rows: len({row.item.id for row in rows}))
_TOKENS = Population("all tokens of all texts, each scored once")
_tokens = partial(metric, over=_TOKENS)
_QUESTIONS = Population("all questions, each once")
_questions = partial(metric, over=_QUESTIONS)
_DUELS = Population("items answered by both sides, each compared in both orders")
_duels, _of_duels = partial(metric, over=_DUELS), partial(rate, over=_DUELS, of="items")
_TIES = where("a tie", lambda row: row.preferred is None)
_labelled = partial(metric, over=Population("the pairs of answers that people have labelled", output="calibration"))
_CONVERSATIONS = Population("all conversations, each once")

EVALUATE_METRICS = (
    _of_items("accuracy", "outputs that the registered verifier accepts", lambda value: value.passed, "higher"),
    _items("items", "items", _ITEM_COUNT),
    _items(
        "accuracy_at_k",
        "fraction",
        judged_value(
            "pass@k: mean over items of the share of choices of k of its outputs that hold an accepted one "
            "(Chen et al. 2021)",
            where("the verifier accepts it", lambda value: value.passed),
        ),
        "higher",
    ),
    _of_items("truncation_rate", "outputs that hit the token limit", lambda value: value.row.truncated, "lower"),
    _of_items("empty_rate", "outputs with no visible character", lambda value: not value.row.output.strip(), "lower"),
    _items(
        "mean_output_tokens",
        "model tokens",
        Value(
            "mean length of the output, end token not counted",
            lambda rows: Fraction(sum(row.row.output_tokens for row in rows), len(rows)),
        ),
    ),
)

PERPLEXITY_METRICS = (
    metric("texts", "texts", count, over=Population("all texts, each once")),
    _tokens("scored_tokens", "model tokens", judged_value("tokens, summed over texts")),
    _tokens("nats_per_token", "nats per token", judged_value("negative log-likelihood / tokens"), "lower"),
    _tokens(
        "nats_per_byte",
        "nats per byte",
        judged_value("negative log-likelihood / UTF-8 bytes of the texts; the same unit for every tokenizer"),
        "lower",
    ),
)

_SAME = "the same with the log-likelihood of each choice divided by its"


def _likeliest(id: str, text: str, per: str, of: str = "") -> RowMetric:
    return rate(id, text, lambda value: value.likeliest(per), "higher", over=_QUESTIONS, of=of)


CHOICE_METRICS = (
    _questions("questions", "questions", count),
    _likeliest("choice_accuracy", "questions whose right choice has the largest log-likelihood", "", "questions"),
    _likeliest("choice_accuracy_per_token", f"{_SAME} model tokens", "tokens"),
    _likeliest("choice_accuracy_per_byte", f"{_SAME} UTF-8 bytes", "bytes"),
    _questions(
        "chance_rate",
        "fraction",
        Value(
            "mean of 1 / number of choices",
            lambda rows: sum((Fraction(1, len(row.row.choices)) for row in rows), Fraction(0)) / len(rows),
        ),
    ),
)

DUEL_METRICS = (
    _duels("duels", "items", count),
    _duels(
        "win_rate",
        "fraction",
        judged_value(
            "(candidate preferred + half of the ties) / items",
            where("the candidate is preferred", lambda row: row.preferred == "candidate"),
            _TIES,
        ),
        "higher",
    ),
    _duels(
        "win_rate_controlled",
        "fraction",
        judged_value(
            "win rate at answers of equal length: logistic regression on tanh of the standardised difference in "
            "characters"
        ),
        "higher",
    ),
    _of_duels("tie_rate", "items without a preference", _TIES.holds),
    _of_duels(
        "order_flips",
        "items where the two orders prefer different answers",
        lambda row: row.plain.good != row.swapped.good,
        "lower",
    ),
    _labelled(
        "judge_kappa",
        "kappa",
        judged_value(
            "Cohen's kappa of the judge's preference (reference, candidate or tie) with the label",
            where("judge and people agree", lambda value: value.preference == value.label),
            where("they do not", lambda value: value.preference != value.label),
        ),
        "higher",
    ),
    _labelled(
        "judge_longer",
        "fraction",
        judged_value(
            "share of the longer answer among the preferences, minus its share among the labels (characters)",
            where("the judge prefers the longer answer", lambda value: value.preference == value.longer),
            where("people prefer the longer answer", lambda value: value.label == value.longer),
        ),
    ),
)


def _passing(id: str, text: str, over: Population, of: str) -> RowMetric:
    return rate(id, text, lambda value: value.passed, "higher", over=over, of=of)


CONVERSATION_METRICS = (
    metric("conversations", "conversations", count, over=_CONVERSATIONS),
    _passing(
        "conversation_pass_rate",
        "conversations of which every turn after the first passes",
        _CONVERSATIONS,
        "conversations",
    ),
    _passing(
        "turn_pass_rate",
        "turns that pass",
        Population("all turns after the first of all conversations", output="turns"),
        "turns",
    ),
    _passing(
        "lowest_kind_pass_rate",
        "conversation_pass_rate of the kind of conversation where it is lowest",
        where(_CONVERSATIONS.description, lambda value: value.of_lowest),
        "",
    ),
    rate(
        "turn_truncation_rate",
        "answers that hit the token limit",
        lambda turn: turn.truncated,
        "lower",
        over=Population("all turns of all conversations", output="answers"),
        of="turns",
    ),
)

_SAMPLES = Population("all registered items, each once as a sample of the task")


def _of_task(name: str, calls: str) -> tuple[RowMetric, ...]:
    return (
        rate(
            f"{name}_accuracy",
            "samples that the registered scorer of the task holds for right",
            lambda value: value.passed,
            "higher",
            over=_SAMPLES,
            of="samples",
        ),
        metric(f"{name}_items", "items", _ITEM_COUNT, over=_SAMPLES),
        rate(
            f"{name}_truncation_rate",
            "samples with an answer that hit the token limit",
            lambda value: value.truncated,
            "lower",
            over=_SAMPLES,
            of="samples",
        ),
        rate(
            f"{name}_empty_rate",
            "samples whose scored answer has no visible character",
            lambda value: not value.text.strip(),
            "lower",
            over=_SAMPLES,
            of="samples",
        ),
        metric(
            calls,
            "requests",
            Value("requests to the model, summed over samples", lambda rows: sum(len(row.row.calls) for row in rows)),
            over=_SAMPLES,
        ),
    )


INSPECT_METRICS = _of_task("benchmark", "model_calls")
LM_EVAL_METRICS = _of_task("lm_eval", "lm_eval_calls")
