"""Metrics of evaluations."""

from __future__ import annotations

from specs.stages.metric import MetricDefinition, defined

_TOKENS = "all tokens of all texts, each scored once"

_QUESTIONS = "all questions, each once"

_DUELS = "items answered by both sides, each compared in both orders"

_LABELLED = "the pairs of answers that people have labelled"

_CONVERSATIONS = "all conversations, each once"

_TURNS = "all turns after the first of all conversations"


_ITEMS = "all registered held-out items, each once"

EVALUATION_METRICS: tuple[MetricDefinition, ...] = (
    defined(
        "accuracy",
        "evaluate",
        "fraction",
        _ITEMS,
        "items whose output the registered verifier accepts / items",
        "higher",
    ),
    defined("items", "evaluate", "items", _ITEMS, "number of rows", "none"),
    defined("truncation_rate", "evaluate", "fraction", _ITEMS, "outputs that hit the token limit / items", "lower"),
    defined("empty_rate", "evaluate", "fraction", _ITEMS, "outputs with no visible character / items", "lower"),
    defined(
        "mean_output_tokens",
        "evaluate",
        "model tokens",
        _ITEMS,
        "mean length of the output, end token not counted",
        "none",
    ),
    defined("texts", "perplexity", "texts", "all texts, each once", "number of rows", "none"),
    defined("scored_tokens", "perplexity", "model tokens", _TOKENS, "tokens, summed over texts", "none"),
    defined("nats_per_token", "perplexity", "nats per token", _TOKENS, "negative log-likelihood / tokens", "lower"),
    defined(
        "nats_per_byte",
        "perplexity",
        "nats per byte",
        _TOKENS,
        "negative log-likelihood / UTF-8 bytes of the texts; the same unit for every tokenizer",
        "lower",
    ),
    defined("questions", "multiple_choice", "questions", _QUESTIONS, "number of rows", "none"),
    defined(
        "choice_accuracy",
        "multiple_choice",
        "fraction",
        _QUESTIONS,
        "questions whose right choice has the largest log-likelihood / questions",
        "higher",
    ),
    defined(
        "choice_accuracy_per_token",
        "multiple_choice",
        "fraction",
        _QUESTIONS,
        "the same with the log-likelihood of each choice divided by its model tokens",
        "higher",
    ),
    defined(
        "choice_accuracy_per_byte",
        "multiple_choice",
        "fraction",
        _QUESTIONS,
        "the same with the log-likelihood of each choice divided by its UTF-8 bytes",
        "higher",
    ),
    defined("chance_rate", "multiple_choice", "fraction", _QUESTIONS, "mean of 1 / number of choices", "none"),
    defined("duels", "pairwise_judge", "items", _DUELS, "number of rows", "none"),
    defined(
        "win_rate", "pairwise_judge", "fraction", _DUELS, "(candidate preferred + half of the ties) / items", "higher"
    ),
    defined(
        "win_rate_controlled",
        "pairwise_judge",
        "fraction",
        _DUELS,
        "win rate at answers of equal length: logistic regression on tanh of the standardised difference in characters",
        "higher",
    ),
    defined("tie_rate", "pairwise_judge", "fraction", _DUELS, "items without a preference / items", "none"),
    defined(
        "order_flips",
        "pairwise_judge",
        "fraction",
        _DUELS,
        "items where the two orders prefer different answers / items",
        "lower",
    ),
    defined(
        "judge_kappa",
        "pairwise_judge",
        "kappa",
        _LABELLED,
        "Cohen's kappa of the judge's preference (reference, candidate or tie) with the label",
        "higher",
    ),
    defined(
        "judge_longer",
        "pairwise_judge",
        "fraction",
        _LABELLED,
        "share of the longer answer among the preferences, minus its share among the labels (characters)",
        "none",
    ),
    defined("conversations", "multi_turn", "conversations", _CONVERSATIONS, "number of rows", "none"),
    defined(
        "conversation_pass_rate",
        "multi_turn",
        "fraction",
        _CONVERSATIONS,
        "conversations of which every turn after the first passes / conversations",
        "higher",
    ),
    defined("turn_pass_rate", "multi_turn", "fraction", _TURNS, "turns that pass / turns", "higher"),
    defined(
        "lowest_kind_pass_rate",
        "multi_turn",
        "fraction",
        _CONVERSATIONS,
        "conversation_pass_rate of the kind of conversation where it is lowest",
        "higher",
    ),
    defined(
        "turn_truncation_rate",
        "multi_turn",
        "fraction",
        "all turns of all conversations",
        "answers that hit the token limit / turns",
        "lower",
    ),
)
