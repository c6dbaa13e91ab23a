"""The metrics of the stages that write text. A definition is never changed: another way to count is another id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

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
    total,
    where,
)
from specs.stages.base.sampling import rates

_SAMPLES = Population("all sampled completions of the attempt")
# Metrics over each population, and shares of its rows.
_samples, _of_samples = partial(metric, over=_SAMPLES), partial(rate, over=_SAMPLES)
_ACCEPTED = where("accepted rows", lambda value: value.accepted)
_REPEATED = where("accepted rows that say what an earlier one says", lambda value: value.repeated)


def _kinds(rows: Sequence[Any]) -> Counter[str]:
    """Return how many distinct accepted answers each kind has."""
    return Counter({row.answer: row.row.kind for row in rows if row.accepted}.values())


GENERATE_METRICS = (
    _samples("samples", "completions", count),
    _samples(
        "accepted",
        "completions",
        number(
            "distinct (prompt, completion) that end by themselves and that the verifier accepts",
            lambda value: value.accepted and not value.repeated,
        ),
        "higher",
    ),
    _of_samples(
        "acceptance_rate",
        "rows that end by themselves and that the verifier accepts",
        lambda value: value.accepted,
        "higher",
    ),
    _samples(
        "accepted_kinds",
        "kinds",
        Value("constraint kinds with at least one accepted row", lambda rows: len(_kinds(rows)), (_ACCEPTED,)),
        "higher",
    ),
    _samples(
        "accepted_min_kind",
        "completions",
        Value(
            "accepted rows of the rarest constraint kind of the prompts",
            lambda rows: min(_kinds(rows)[kind] for kind in {row.row.kind for row in rows}),
            (_ACCEPTED, _REPEATED),
        ),
        "higher",
    ),
    _of_samples(
        "generate_truncation_rate", "rows that hit the token limit", lambda value: value.row.truncated, "lower"
    ),
    metric(
        "duplicate_rate",
        "fraction",
        fraction("1 - distinct (prompt, completion) / verifier-accepted rows", _REPEATED),
        "lower",
        over=where("verifier-accepted rows", lambda value: value.accepted, may_be_empty=True),
    ),
    *rates("generate", _SAMPLES.description, "completions", empty="", runaway="", leaked="", repeated=""),
)


def _bare(value: Any) -> bool:
    return (value.row.model, value.row.form) == ("declared", "completion")


def _make_followed_metric(id: str, population: str, model: str, form: str, *, note: str = "") -> RowMetric:
    """Return the share of the commands that a model follows in a form; without a template it has no chat."""
    requests = (model, form, True)
    return rate(
        id,
        "commands whose output meets what they ask for",
        lambda value: value.met,
        "higher" if model == "control" else "none",
        over=where(
            population,
            lambda value: (value.row.model, value.row.form, value.command) == requests,
            may_be_empty=form == "chat",
        ),
        of=f"commands{note}",
    )


_BARE = "sentinels that are commands, given to the declared model as bare text"
_CONTROL = "sentinels that are commands, given to the control"
SENTINEL_METRICS = (
    metric(
        "sentinels",
        "sentinels",
        Value("number of sentinels given to both models", len),
        over=where("all sentinels, each once", _bare),
    ),
    _make_followed_metric("sentinels_followed", _BARE, "declared", "completion"),
    _make_followed_metric(
        "templated_followed",
        "the same, given with the chat template of the declared model",
        "declared",
        "chat",
        note="; 0 for a model without a template",
    ),
    _make_followed_metric("control_followed", f"{_CONTROL} with its chat template", "control", "chat"),
    _make_followed_metric("control_bare_followed", f"{_CONTROL} as bare text", "control", "completion"),
    rate(
        "sentences_completed",
        "beginnings that the declared model continues as expected",
        lambda value: value.met,
        "higher",
        over=where(
            "sentinels that are beginnings of sentences, given as bare text",
            lambda value: _bare(value) and not value.command,
        ),
        of="beginnings",
    ),
    metric(
        "encoding_faults",
        "prompts",
        number(
            "prompts whose ids differ with and without special tokens, hold a template token, or stand for another text",
            lambda value: bool(value.fault),
        ),
        "lower",
        over=where("all sentinels, given to the declared model as bare text", _bare),
    ),
)

_CALLS = Population("all calls, probes left out", output="calls")
_calls, _of_calls = partial(metric, over=_CALLS), partial(rate, over=_CALLS, of="calls")
_PARSED = where(
    "all instructions parsed from the calls, before any is dropped as a repeat",
    lambda value: value.parsed,
    "listed",
    may_be_empty=True,
)
_of_parsed = partial(rate, over=_PARSED, of="instructions parsed")
_KEPT_INSTRUCTIONS = Population("the instructions that are kept", output="kept", may_be_empty=True)
_kept = partial(metric, over=_KEPT_INSTRUCTIONS)


def _fate(*outcomes: str) -> Fits:
    return lambda value: value.fated.outcome in outcomes


def _at_limit(value: Any) -> bool:
    return value.row.finish == "length"


def _different(id: str, over: Population, of: str, twice: Population) -> RowMetric:
    message = f"different word sequences (case, marks and white space ignored) / {of}"
    value = Value(message, lambda rows: Fraction(len({row.words for row in rows}), len(rows)), (twice,))
    return metric(id, "fraction", value, "higher", over=over)


def _again(id: str, output: str, seed: str, text: str) -> RowMetric:
    over = Population(f"calls repeated with {seed} seed", output=output, may_be_empty=True)
    return rate(id, f"calls with {text} raw text", bool, "higher", over=over, of="calls")


INSTRUCT_METRICS = (
    _calls("instruct_calls", "calls", count),
    _calls(
        "instructions_parsed",
        "instructions",
        total("list items that can be an instruction", lambda call: call.parsed, "calls that gave an instruction"),
    ),
    _calls(
        "instructions_kept",
        "instructions",
        Value(
            "instructions left after the merge of all shards",
            lambda calls: sum(call.kept_count for call in calls),
            (_KEPT_INSTRUCTIONS, where("calls that wrote them", lambda call: call.kept_count > 0)),
        ),
        "higher",
    ),
    _of_parsed("instructions_kept_rate", "instructions left after the merge of all shards", _fate("kept"), "higher"),
    _kept(
        "instructions_held_out",
        "instructions",
        number(
            "instructions that are held-out prompts, nearly repeat one (thresholds.prompt_similarity) or hold one; no later "
            "stage reads them",
            lambda value: value.held_out,
        ),
        "lower",
    ),
    _kept(
        "instructions_left",
        "instructions",
        number("instructions that are handed on, without held-out prompts", lambda value: not value.held_out),
        "higher",
    ),
    _different(
        "instruction_uniqueness",
        _PARSED,
        "instructions parsed",
        where("instructions that were written twice or more", lambda value: value.times > 1),
    ),
    metric(
        "instruction_multiplicity",
        "instructions",
        Value(
            "how often the most frequent word sequence was written",
            lambda rows: max(row.times for row in rows),
            (where("instructions that were written most often", lambda value: value.most),),
        ),
        "lower",
        over=_PARSED,
    ),
    _of_parsed(
        "instruction_near_rate",
        "instructions whose words differ from all earlier ones of the shard and the seeds and that nearly repeat one",
        _fate("near"),
        "lower",
    ),
    rate(
        "cross_shard_rate",
        "instructions that repeat one of another shard, or nearly",
        _fate("cross_shard"),
        "lower",
        over=where(
            "instructions kept by their shards", _fate("kept", "cross_shard", "surplus"), "listed", may_be_empty=True
        ),
        of="instructions kept by their shards",
    ),
    rate(
        "meta_rate",
        "items that speak of the list instead of a task",
        _fate("meta"),
        "lower",
        over=Population("all list items", output="listed", may_be_empty=True),
        of="items",
    ),
    _of_calls("instruct_token_limit_rate", "calls that the token limit ended", _at_limit, "lower"),
    _of_calls("empty_calls_rate", "calls that gave no instruction", lambda call: call.empty, "lower"),
    _kept(
        "instruction_median_words",
        "words",
        middle("median number of words between white space (not tokens)", lambda value: len(value.text.split())),
    ),
    _again("instruct_repeatable", "same_seed", "the same", "the same"),
    _again("instruct_seed_effect", "other_seed", "another", "another"),
    *rates("instruct", _CALLS.description, "calls", leaked="", repeated=""),
)

_ANSWERS = Population("all answers, after cleaning and before any is dropped")
_answers, _of_answers = partial(metric, over=_ANSWERS), partial(rate, over=_ANSWERS, of="answers")
_EXAMPLES = where("the answers that are kept", lambda value: value.is_example, may_be_empty=True)
_examples = partial(metric, over=_EXAMPLES)
RESPONSE_METRICS = (
    _answers("responses", "answers", count),
    _answers(
        "responses_kept",
        "answers",
        number("different (instruction, answer) without a mark", lambda value: value.is_example),
        "higher",
    ),
    _of_answers("responses_kept_rate", "answers without a mark", lambda value: not value.row.marks, "higher"),
    _of_answers(
        "runaway_rate_v2",
        "answers that hold another turn (a role at the beginning of a line, a chat token) or over 500 characters",
        lambda value: value.runaway,
        "lower",
    ),
    rate(
        "runaway_rate_v1",
        "answers of over 200 characters or more than 3 full stops",
        lambda value: value.runaway_v1,
        over=_ANSWERS,
        of="answers; counts healthy answers, kept for comparison",
    ),
    _of_answers("response_token_limit_rate", "answers that the token limit ended", _at_limit, "lower"),
    _of_answers(
        "incomplete_rate",
        "answers that the token limit ended, that are empty, under 10 characters (yes, no, true and false apart), or "
        "end in a colon or an open list item",
        lambda value: value.incomplete,
        "lower",
    ),
    _of_answers(
        "delimiter_leak_rate",
        "answers that hold a stop string or end in the beginning of one",
        lambda value: "delimiter" in value.row.marks,
        "lower",
    ),
    _of_answers(
        "out_of_scope_rate",
        "answers that break a scope rule",
        lambda value: any(mark.startswith("scope:") for mark in value.row.marks),
        "lower",
    ),
    _examples(
        "response_residue",
        "fraction",
        judged_value(
            "answers with the most frequent ending (its last 2 to 4 words or marks; on 3 instructions or more) / answers kept",
            where("end in the most frequent ending", lambda value: value.ends),
        ),
        "lower",
    ),
    _examples(
        "response_median_tokens",
        "model tokens",
        middle(
            "median length after cleaning, by the tokenizer of the checkpoint that wrote them",
            lambda value: value.row.completion_tokens,
        ),
    ),
    _different(
        "response_uniqueness",
        _EXAMPLES,
        "answers kept",
        where("say what an earlier one says", lambda value: value.repeated),
    ),
    _examples(
        "response_multiplicity",
        "answers",
        Value(
            "how often the most frequent word sequence was kept",
            lambda rows: max(Counter(row.words for row in rows).values()),
            (where("say what is said most often", lambda value: value.most),),
        ),
        "lower",
    ),
    _examples(
        "response_near_rate",
        "fraction",
        fraction(
            "answers that repeat an earlier one or nearly so (thresholds.prompt_similarity) / answers kept",
            where("repeat an earlier one or nearly", lambda value: value.near),
        ),
        "lower",
    ),
    *rates("response", _ANSWERS.description, "answers", empty="", repeated=""),
)
