"""The metrics of the stages that write text. A definition is never changed: another way to count is another id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from specs.stages.row_metric import (
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
    total,
    where,
)
from specs.stages.sampling_metrics import rates

_SAMPLES = Over("all sampled completions of the attempt")
_of_samples = partial(rate, over=_SAMPLES)
_REPEATED = where("accepted rows that say what an earlier one says", lambda one: one.repeated)


def _kinds(rows: Sequence[Any]) -> Counter[str]:
    """Return how many distinct accepted answers each kind has."""
    return Counter({one.answer: one.row.kind for one in rows if one.accepted}.values())


GENERATE_METRICS = (
    metric("samples", unit="completions", over=_SAMPLES, value=count),
    metric(
        "accepted",
        unit="completions",
        over=_SAMPLES,
        value=number(
            "distinct (prompt, completion) that end by themselves and that the verifier accepts",
            lambda one: one.accepted and not one.repeated,
        ),
        better="higher",
    ),
    _of_samples(
        "acceptance_rate",
        "rows that end by themselves and that the verifier accepts",
        lambda one: one.accepted,
        better="higher",
    ),
    metric(
        "accepted_kinds",
        unit="kinds",
        over=_SAMPLES,
        value=Value(
            "constraint kinds with at least one accepted row",
            lambda rows: len(_kinds(rows)),
            (where("accepted rows", lambda one: one.accepted),),
        ),
        better="higher",
    ),
    metric(
        "accepted_min_kind",
        unit="completions",
        over=_SAMPLES,
        value=Value(
            "accepted rows of the rarest constraint kind of the prompts",
            lambda rows: min(_kinds(rows)[kind] for kind in {one.row.kind for one in rows}),
            (where("accepted rows", lambda one: one.accepted), _REPEATED),
        ),
        better="higher",
    ),
    _of_samples(
        "generate_truncation_rate", "rows that hit the token limit", lambda one: one.row.truncated, better="lower"
    ),
    metric(
        "duplicate_rate",
        unit="fraction",
        over=where("verifier-accepted rows", lambda one: one.accepted, may_be_empty=True),
        value=Value(
            "1 - distinct (prompt, completion) / verifier-accepted rows",
            fraction_of(lambda one: one.repeated),
            (_REPEATED,),
        ),
        better="lower",
    ),
    *rates("generate", _SAMPLES.told, "completions", empty="", runaway="", leaked="", repeated=""),
)


def _bare(one: Any) -> bool:
    return (one.row.model, one.row.form) == ("declared", "completion")


def _followed(id: str, population: str, model: str, form: str, *, better: bool, note: str = "") -> RowMetric:
    """Return the share of the commands that a model follows in a form; without a template it has no chat."""
    asked = (model, form, True)
    return rate(
        id,
        "commands whose output meets what they ask for",
        lambda one: one.met,
        over=where(
            population, lambda one: (one.row.model, one.row.form, one.command) == asked, may_be_empty=form == "chat"
        ),
        of=f"commands{note}",
        better="higher" if better else "none",
    )


_BARE = "sentinels that are commands, given to the declared model as bare text"
_CONTROL = "sentinels that are commands, given to the control"
SENTINEL_METRICS = (
    metric(
        "sentinels",
        unit="sentinels",
        over=where("all sentinels, each once", _bare),
        value=Value("number of sentinels given to both models", len),
    ),
    _followed("sentinels_followed", _BARE, "declared", "completion", better=False),
    _followed(
        "templated_followed",
        "the same, given with the chat template of the declared model",
        "declared",
        "chat",
        better=False,
        note="; 0 for a model without a template",
    ),
    _followed("control_followed", f"{_CONTROL} with its chat template", "control", "chat", better=True),
    _followed("control_bare_followed", f"{_CONTROL} as bare text", "control", "completion", better=True),
    rate(
        "sentences_completed",
        "beginnings that the declared model continues as expected",
        lambda one: one.met,
        over=where(
            "sentinels that are beginnings of sentences, given as bare text", lambda one: _bare(one) and not one.command
        ),
        of="beginnings",
        better="higher",
    ),
    metric(
        "encoding_faults",
        unit="prompts",
        over=where("all sentinels, given to the declared model as bare text", _bare),
        value=number(
            "prompts whose ids differ with and without special tokens, hold a template token, or stand for another text",
            lambda one: bool(one.fault),
        ),
        better="lower",
    ),
)

_CALLS = Over("all calls, probes left out", output="calls")
_of_calls = partial(rate, over=_CALLS, of="calls")
_PARSED = where(
    "all instructions parsed from the calls, before any is dropped as a repeat",
    lambda one: one.parsed,
    "listed",
    may_be_empty=True,
)
_of_parsed = partial(rate, over=_PARSED, of="instructions parsed")
_KEPT = Over("the instructions that are kept", output="kept", may_be_empty=True)
_WORDS = "different word sequences (case, marks and white space ignored)"


def _again(id: str, output: str, seed: str, text: str) -> RowMetric:
    return rate(
        id,
        f"calls with {text} raw text",
        bool,
        over=Over(f"calls that were made again with {seed} seed", output=output, may_be_empty=True),
        of="calls",
        better="higher",
    )


INSTRUCT_METRICS = (
    metric("instruct_calls", unit="calls", over=_CALLS, value=count),
    metric(
        "instructions_parsed",
        unit="instructions",
        over=_CALLS,
        value=total(
            "list items that can be an instruction", lambda call: call.parsed, "calls that gave an instruction"
        ),
    ),
    metric(
        "instructions_kept",
        unit="instructions",
        over=_CALLS,
        value=Value(
            "instructions left after the merge of all shards",
            lambda calls: sum(call.kept for call in calls),
            (_KEPT, where("calls that wrote them", lambda call: call.kept > 0)),
        ),
        better="higher",
    ),
    _of_parsed(
        "instructions_kept_rate",
        "instructions left after the merge of all shards",
        lambda one: one.fated.outcome == "kept",
        better="higher",
    ),
    metric(
        "instructions_held_out",
        unit="instructions",
        over=_KEPT,
        value=number(
            "instructions that are held-out prompts, nearly repeat one (thresholds.prompt_similarity) or hold one; no later "
            "stage reads them",
            lambda one: one.held_out,
        ),
        better="lower",
    ),
    metric(
        "instructions_left",
        unit="instructions",
        over=_KEPT,
        value=number(
            "instructions that are handed on: those that are no held-out prompts", lambda one: not one.held_out
        ),
        better="higher",
    ),
    metric(
        "instruction_uniqueness",
        unit="fraction",
        over=_PARSED,
        value=Value(
            f"{_WORDS} / instructions parsed",
            lambda rows: Fraction(len({one.words for one in rows}), len(rows)),
            (where("instructions that were written twice or more", lambda one: one.times > 1),),
        ),
        better="higher",
    ),
    metric(
        "instruction_multiplicity",
        unit="instructions",
        over=_PARSED,
        value=Value(
            "how often the most frequent word sequence was written",
            lambda rows: max(one.times for one in rows),
            (where("instructions that were written most often", lambda one: one.most),),
        ),
        better="lower",
    ),
    _of_parsed(
        "instruction_near_rate",
        "instructions whose words differ from all earlier ones of the shard and the seeds and that nearly repeat one",
        lambda one: one.fated.outcome == "near",
        better="lower",
    ),
    rate(
        "cross_shard_rate",
        "instructions that repeat one of another shard, or nearly",
        lambda one: one.fated.outcome == "cross_shard",
        over=where(
            "instructions kept by their shards",
            lambda one: one.fated.outcome in ("kept", "cross_shard", "surplus"),
            "listed",
            may_be_empty=True,
        ),
        of="instructions kept by their shards",
        better="lower",
    ),
    rate(
        "meta_rate",
        "items that speak of the list instead of a task",
        lambda one: one.fated.outcome == "meta",
        over=Over("all list items", output="listed", may_be_empty=True),
        of="items",
        better="lower",
    ),
    _of_calls(
        "instruct_token_limit_rate",
        "calls that the token limit ended",
        lambda call: call.row.finish == "length",
        better="lower",
    ),
    _of_calls("empty_calls_rate", "calls that gave no instruction", lambda call: call.empty, better="lower"),
    metric(
        "instruction_median_words",
        unit="words",
        over=_KEPT,
        value=middle("median number of words between white space (not tokens)", lambda one: len(one.text.split())),
    ),
    _again("instruct_repeatable", "same_seed", "the same", "the same"),
    _again("instruct_seed_effect", "other_seed", "another", "another"),
    *rates("instruct", _CALLS.told, "calls", leaked="", repeated=""),
)

_ANSWERS = Over("all answers, after cleaning and before any is dropped")
_of_answers = partial(rate, over=_ANSWERS, of="answers")
_EXAMPLES = where("the answers that are kept", lambda one: one.kept, may_be_empty=True)
RESPONSE_METRICS = (
    metric("responses", unit="answers", over=_ANSWERS, value=count),
    metric(
        "responses_kept",
        unit="answers",
        over=_ANSWERS,
        value=number("different (instruction, answer) without a mark", lambda one: one.kept),
        better="higher",
    ),
    _of_answers("responses_kept_rate", "answers without a mark", lambda one: not one.row.marks, better="higher"),
    _of_answers(
        "runaway_rate_v2",
        "answers that hold another turn (a role at the beginning of a line, a chat token) or over 500 characters",
        lambda one: one.runaway,
        better="lower",
    ),
    rate(
        "runaway_rate_v1",
        "answers of over 200 characters or more than 3 full stops",
        lambda one: one.runaway_v1,
        over=_ANSWERS,
        of="answers; counts healthy answers, kept for comparison",
    ),
    _of_answers(
        "response_token_limit_rate",
        "answers that the token limit ended",
        lambda one: one.row.finish == "length",
        better="lower",
    ),
    _of_answers(
        "incomplete_rate",
        "answers that the token limit ended, that are empty, under 10 characters (yes, no, true and false apart), or "
        "end in a colon or an open list item",
        lambda one: one.incomplete,
        better="lower",
    ),
    _of_answers(
        "delimiter_leak_rate",
        "answers that hold a stop string or end in the beginning of one",
        lambda one: "delimiter" in one.row.marks,
        better="lower",
    ),
    _of_answers(
        "out_of_scope_rate",
        "answers that break a scope rule",
        lambda one: any(mark.startswith("scope:") for mark in one.row.marks),
        better="lower",
    ),
    metric(
        "response_residue",
        unit="fraction",
        over=_EXAMPLES,
        value=judged(
            "answers with the most frequent ending (its last 2 to 4 words or marks; on 3 instructions or more) / answers kept",
            where("end in the most frequent ending", lambda one: one.ends),
        ),
        better="lower",
    ),
    metric(
        "response_median_tokens",
        unit="model tokens",
        over=_EXAMPLES,
        value=middle(
            "median length after cleaning, by the tokenizer of the checkpoint that wrote them",
            lambda one: one.row.completion_tokens,
        ),
    ),
    metric(
        "response_uniqueness",
        unit="fraction",
        over=_EXAMPLES,
        value=Value(
            f"{_WORDS} / answers kept",
            lambda rows: Fraction(len({one.words for one in rows}), len(rows)),
            (where("say what an earlier one says", lambda one: one.repeated),),
        ),
        better="higher",
    ),
    metric(
        "response_multiplicity",
        unit="answers",
        over=_EXAMPLES,
        value=Value(
            "how often the most frequent word sequence was kept",
            lambda rows: max(Counter(one.words for one in rows).values()),
            (where("say what is said most often", lambda one: one.most),),
        ),
        better="lower",
    ),
    metric(
        "response_near_rate",
        unit="fraction",
        over=_EXAMPLES,
        value=Value(
            "answers that repeat an earlier one or nearly so (thresholds.prompt_similarity) / answers kept",
            fraction_of(lambda one: one.near),
            (where("repeat an earlier one or nearly", lambda one: one.near),),
        ),
        better="lower",
    ),
    *rates("response", _ANSWERS.told, "answers", empty="", repeated=""),
)
