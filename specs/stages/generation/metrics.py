"""The metrics of the stages that write text: base_model_check, self_instruct, sample_responses.

A definition is never changed: another way to count is another id. ``runaway_rate_v1`` stays beside its successor.
"""

from __future__ import annotations

from specs.stages.metric import MetricDefinition
from specs.stages.metric import defined as _m

_BARE = "sentinels that are commands, given to the declared model as bare text"
_CONTROL = "sentinels that are commands, given to the control"
_CALLS = "all calls, probes left out"
_PARSED = "all instructions parsed from the calls, before any is dropped as a repeat"
_KEPT = "the instructions that are kept"
_ANSWERS = "all answers, after cleaning and before any is dropped"
_EXAMPLES = "the answers that are kept"

_SAMPLES = "all sampled completions of the attempt"

TEXT_METRICS: tuple[MetricDefinition, ...] = (
    _m("samples", "generate", "completions", _SAMPLES, "number of rows", "none"),
    _m(
        "accepted",
        "generate",
        "completions",
        _SAMPLES,
        "distinct (prompt, completion) that end by themselves and that the verifier accepts",
        "higher",
    ),
    _m(
        "acceptance_rate",
        "generate",
        "fraction",
        _SAMPLES,
        "rows that end by themselves and that the verifier accepts / rows",
        "higher",
    ),
    _m(
        "accepted_kinds", "generate", "kinds", _SAMPLES, "constraint kinds with at least one accepted row", "higher"
    ),
    _m(
        "accepted_min_kind",
        "generate",
        "completions",
        _SAMPLES,
        "accepted rows of the rarest constraint kind of the prompts",
        "higher",
    ),
    _m(
        "generate_truncation_rate",
        "generate",
        "fraction",
        _SAMPLES,
        "rows that hit the token limit / rows",
        "lower",
    ),
    _m(
        "duplicate_rate",
        "generate",
        "fraction",
        "verifier-accepted rows",
        "1 - distinct (prompt, completion) / verifier-accepted rows",
        "lower",
    ),
    _m("sentinels", "base_model_check", "sentinels", "all sentinels, each once", "number of sentinels given to both models", "none"),
    _m(
        "sentinels_followed", "base_model_check", "fraction", _BARE,
        "commands whose output meets what they ask for / commands", "none",
    ),
    _m(
        "templated_followed", "base_model_check", "fraction", "the same, given with the chat template of the declared model",
        "commands whose output meets what they ask for / commands; 0 for a model without a template", "none",
    ),
    _m(
        "control_followed", "base_model_check", "fraction", f"{_CONTROL} with its chat template",
        "commands whose output meets what they ask for / commands", "higher",
    ),
    _m(
        "control_bare_followed", "base_model_check", "fraction", f"{_CONTROL} as bare text",
        "commands whose output meets what they ask for / commands", "higher",
    ),
    _m(
        "sentences_completed", "base_model_check", "fraction", "sentinels that are beginnings of sentences, given as bare text",
        "beginnings that the declared model continues as expected / beginnings", "higher",
    ),
    _m(
        "encoding_faults", "base_model_check", "prompts", "all sentinels, given to the declared model as bare text",
        "prompts whose ids differ with and without special tokens, hold a template token, or stand for another text",
        "lower",
    ),
    _m("instruct_calls", "self_instruct", "calls", _CALLS, "number of rows", "none"),
    _m("instructions_parsed", "self_instruct", "instructions", _CALLS, "list items that can be an instruction", "none"),
    _m("instructions_kept", "self_instruct", "instructions", _CALLS, "instructions left after the merge of all shards", "higher"),
    _m(
        "instructions_kept_rate", "self_instruct", "fraction", _PARSED,
        "instructions left after the merge of all shards / instructions parsed", "higher",
    ),
    _m(
        "instructions_held_out", "self_instruct", "instructions", _KEPT,
        "instructions that are held-out prompts, nearly repeat one (thresholds.prompt_similarity) or hold one; no later "
        "stage reads them", "lower",
    ),
    _m(
        "instructions_left", "self_instruct", "instructions", _KEPT,
        "instructions that are handed on: those that are no held-out prompts", "higher",
    ),
    _m(
        "instruction_uniqueness", "self_instruct", "fraction", _PARSED,
        "different word sequences (case, marks and white space ignored) / instructions parsed", "higher",
    ),
    _m(
        "instruction_multiplicity", "self_instruct", "instructions", _PARSED,
        "how often the most frequent word sequence was written", "lower",
    ),
    _m(
        "instruction_near_rate", "self_instruct", "fraction", _PARSED,
        "instructions whose words differ from all earlier ones of the shard and the seeds and that nearly repeat one "
        "/ instructions parsed", "lower",
    ),
    _m(
        "cross_shard_rate", "self_instruct", "fraction", "instructions kept by their shards",
        "instructions that repeat one of another shard, or nearly / instructions kept by their shards", "lower",
    ),
    _m("meta_rate", "self_instruct", "fraction", "all list items", "items that speak of the list instead of a task / items", "lower"),
    _m("instruct_token_limit_rate", "self_instruct", "fraction", _CALLS, "calls that the token limit ended / calls", "lower"),
    _m("empty_calls_rate", "self_instruct", "fraction", _CALLS, "calls that gave no instruction / calls", "lower"),
    _m(
        "instruction_median_words", "self_instruct", "words", _KEPT,
        "median number of words between white space (not tokens)", "none",
    ),
    _m(
        "instruct_repeatable", "self_instruct", "fraction", "calls that were made again with the same seed",
        "calls with the same raw text / calls", "higher",
    ),
    _m(
        "instruct_seed_effect", "self_instruct", "fraction", "calls that were made again with another seed",
        "calls with another raw text / calls", "higher",
    ),
    _m("responses", "sample_responses", "answers", _ANSWERS, "number of rows", "none"),
    _m("responses_kept", "sample_responses", "answers", _ANSWERS, "different (instruction, answer) without a mark", "higher"),
    _m("responses_kept_rate", "sample_responses", "fraction", _ANSWERS, "answers without a mark / answers", "higher"),
    _m(
        "runaway_rate_v2", "sample_responses", "fraction", _ANSWERS,
        "answers that hold another turn (a role at the beginning of a line, a chat token) or over 500 characters / answers",
        "lower",
    ),
    _m(
        "runaway_rate_v1", "sample_responses", "fraction", _ANSWERS,
        "answers of over 200 characters or more than 3 full stops / answers; counts healthy answers, kept for comparison",
        "none",
    ),
    _m("response_token_limit_rate", "sample_responses", "fraction", _ANSWERS, "answers that the token limit ended / answers", "lower"),
    _m(
        "incomplete_rate", "sample_responses", "fraction", _ANSWERS,
        "answers that the token limit ended, that are empty, under 10 characters (yes, no, true and false apart), or "
        "end in a colon or an open list item / answers", "lower",
    ),
    _m(
        "delimiter_leak_rate", "sample_responses", "fraction", _ANSWERS,
        "answers that hold a stop string or end in the beginning of one / answers", "lower",
    ),
    _m("out_of_scope_rate", "sample_responses", "fraction", _ANSWERS, "answers that break a scope rule / answers", "lower"),
    _m(
        "response_residue", "sample_responses", "fraction", _EXAMPLES,
        "answers with the most frequent ending (its last 2 to 4 words or marks; on 3 instructions or more) / answers kept",
        "lower",
    ),
    _m(
        "response_median_tokens", "sample_responses", "model tokens", _EXAMPLES,
        "median length after cleaning, by the tokenizer of the checkpoint that wrote them", "none",
    ),
    _m(
        "response_uniqueness", "sample_responses", "fraction", _EXAMPLES,
        "different word sequences (case, marks and white space ignored) / answers kept", "higher",
    ),
    _m(
        "response_multiplicity", "sample_responses", "answers", _EXAMPLES,
        "how often the most frequent word sequence was kept", "lower",
    ),
    _m(
        "response_near_rate", "sample_responses", "fraction", _EXAMPLES,
        "answers that repeat an earlier one or nearly so (thresholds.prompt_similarity) / answers kept", "lower",
    ),
)  # fmt: skip
