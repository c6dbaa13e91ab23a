"""Are the answers of an evaluation healthy: whole, varied, not empty, in a form that fits the model?"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from reviews.checks.definition import Check, Found, need_exact
from reviews.checks.job_checks import manifest_of
from reviews.checks.limit import Limit
from reviews.evidence.evidence import Evidence
from reviews.evidence.items import task_of
from reviews.stages.evaluation.judged_answers import answered, judged_rows
from reviews.stages.evaluation.measure import held
from specs.digests import digest_bytes
from specs.exact import holds
from specs.session.model_kind import kind_read
from specs.stages.metric import MetricSet
from training.rules.similarity import words_of

_LABEL_WORDS = 2
"""An answer of no more words may be a label: "B", "Option B"."""


def _truncated(evidence: Evidence, metrics: MetricSet | None) -> Found:
    talks = evidence.stage.kind == "multi_turn"
    rate = need_exact(metrics, "turn_truncation_rate") if talks else need_exact(metrics, "truncation_rate")
    judged = answered(evidence, evidence.outputs.get("rows"))
    shown = tuple({"item": one.item.id, "output": one.text} for one in judged if one.truncated)
    status = "PASS" if holds(rate, "<=", evidence.resolved.spec.thresholds.truncated_answers) else "FAIL"
    return Found(status, f"{float(rate):.3f} of the answers hit the token limit", float(rate), shown)


def _empty(evidence: Evidence, metrics: MetricSet | None) -> Found:
    if evidence.stage.kind == "multi_turn":
        turns = [turn for one in held(evidence, evidence.outputs.get("rows")) for turn in one.row.turns]
        rate = Fraction(sum(not turn.output.strip() for turn in turns), len(turns))
    else:
        rate = need_exact(metrics, "empty_rate")
    status = "PASS" if holds(rate, "<=", evidence.resolved.spec.thresholds.empty_answers) else "FAIL"
    return Found(status, f"{float(rate):.3f} of the answers are empty", float(rate))


def _labels(evidence: Evidence, _: MetricSet | None) -> Found:
    """Count answers of one or two words: a label where an answer was asked for."""
    if task_of(evidence) == "exact_answer":
        return Found("NOT_APPLICABLE", "the answers are short by the task")
    judged = judged_rows(evidence, evidence.outputs.get("rows"))
    short = [one for one in judged if one.row.output.strip() and len(words_of(one.row.output)) <= _LABEL_WORDS]
    share = Fraction(len(short), len(judged))
    shown = tuple({"item": one.item.id, "output": one.row.output} for one in short)
    status = "PASS" if holds(share, "<=", evidence.resolved.spec.thresholds.label_answers) else "FAIL"
    return Found(status, f"{len(short)} of {len(judged)} answers have one or two words", float(share), shown)


def _alike(evidence: Evidence, _: MetricSet | None) -> Found:
    judged = answered(evidence, evidence.outputs.get("rows"))
    text, count = Counter(one.text.strip() for one in judged).most_common(1)[0]
    share = Fraction(count, len(judged))
    shown = ({"output": text, "times": count},) if count > 1 else ()
    if not holds(share, "<=", evidence.resolved.spec.thresholds.identical_answers):
        detail = f"one answer was given to {count} of {len(judged)} items: the model has collapsed"
        return Found("FAIL", detail, float(share), shown)
    return Found("PASS", f"the most frequent answer was given {count} times", float(share), shown)


def _template(evidence: Evidence, _: MetricSet | None) -> Found:
    declared, manifest = kind_read(evidence.resolved.spec, evidence.stage), manifest_of(evidence)
    has = manifest.facts.get("chat_template") != digest_bytes(b"")
    if declared == "instruct" and not has:
        return Found("FAIL", "the model is declared instruct, its tokenizer has no chat template", repairable=False)
    # Rows that were written before the form was said were asked by the tokenizer and not by the declared kind.
    form = manifest.effective.get("form", "chat" if has else "completion")
    read = form == "chat" and evidence.parameters.get("prompting", "native") == "native"
    if declared == "base" and read:
        return Found("WARN", "the model is declared base, its tokenizer has a chat template that was used")
    return Found("PASS", f"a model of kind {declared} was prompted {'with' if read else 'without'} a chat template")


CHECKS = (
    Check(
        "health.truncation",
        "Few answers hit the token limit",
        ("evaluate", "multi_turn"),
        _truncated,
        "runaway heuristics that measured length",
        limits=(Limit("<=", "thresholds.truncated_answers"),),
    ),
    Check(
        "health.empty",
        "Few answers are empty",
        ("evaluate", "multi_turn"),
        _empty,
        "outputs without a visible character",
        limits=(Limit("<=", "thresholds.empty_answers"),),
    ),
    Check(
        "health.labels",
        "Few answers are a bare label",
        ("evaluate",),
        _labels,
        "label-only outputs",
        limits=(Limit("<=", "thresholds.label_answers"),),
    ),
    Check(
        "health.collapse",
        "Answers differ",
        ("evaluate", "multi_turn"),
        _alike,
        "mode collapse",
        limits=(Limit("<=", "thresholds.identical_answers"),),
    ),
    Check(
        "health.template",
        "The prompt format fits the model's kind",
        ("evaluate",),
        _template,
        "swapped instruct checkpoints",
    ),
)
