"""Are the answers of an evaluation healthy: whole, varied, not empty, in a form that fits the model?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from fractions import Fraction

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, manifest_of, need_exact
from reviews.evidence.evidence import Evidence
from reviews.evidence.items import task_of
from reviews.evidence.right_answers import LABEL_WORDS, relative_limit, right_answers_of
from reviews.evidence.weight_lineage import is_trained
from reviews.stages.evaluation.judged_answers import JudgedAnswer, judged_rows, read_judged_items
from reviews.stages.evaluation.multi_turn import read_judged_conversations
from specs.session.design import kind_read
from specs.stages.base.metric import MetricSet
from specs.system.digests import digest_bytes
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds
from training.rules.chat_template import ChatTemplate, TemplateRefusal, changes_with_time
from training.rules.disguise import count_words
from training.rules.similarity import near_repeats, words_of

CHECKS = CheckRegistry(("evaluate", "multi_turn", "inspect", "lm_eval"))
_TRUNCATION = {
    "multi_turn": "turn_truncation_rate",
    "inspect": "benchmark_truncation_rate",
    "lm_eval": "lm_eval_truncation_rate",
}
_EMPTY = {"inspect": "benchmark_empty_rate", "lm_eval": "lm_eval_empty_rate"}

_SPECIAL, _WORD, _STEM = 10, 3, 4
"""A word of a topic: in no more than one of so many prompts, of so many letters, known by so many of them."""


@CHECKS.add(
    "health.truncation",
    "Few answers hit the token limit",
    source="runaway heuristics that measured length",
    limits=(CheckLimit("<=", "thresholds.truncated_answers"),),
)
def _check_truncation(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    rate = need_exact(metrics, _TRUNCATION.get(evidence.stage.kind, "truncation_rate"))
    judged = read_judged_items(evidence, evidence.outputs.get("rows"))
    visible = tuple({"item": value.item.id, "output": value.text} for value in judged if value.truncated)
    status = "PASS" if holds(rate, "<=", evidence.resolved.spec.thresholds.truncated_answers) else "FAIL"
    return CheckOutcome(status, f"{float(rate):.3f} of the answers hit the token limit", float(rate), visible)


@CHECKS.add(
    "health.empty",
    "Few answers are empty",
    source="outputs without a visible character",
    limits=(CheckLimit("<=", "thresholds.empty_answers"),),
)
def _check_empty(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    if evidence.stage.kind == "multi_turn":
        turns = [
            turn
            for value in read_judged_conversations(evidence, evidence.outputs.get("rows"))
            for turn in value.row.turns
        ]
        rate = Fraction(sum(not turn.output.strip() for turn in turns), len(turns))
    else:
        rate = need_exact(metrics, _EMPTY.get(evidence.stage.kind, "empty_rate"))
    status = "PASS" if holds(rate, "<=", evidence.resolved.spec.thresholds.empty_answers) else "FAIL"
    return CheckOutcome(status, f"{float(rate):.3f} of the answers are empty", float(rate))


@CHECKS.add(
    "health.labels",
    "Few answers are a bare label",
    kinds=("evaluate",),
    source="label-only outputs",
    limits=(CheckLimit("<=", "thresholds.label_answers"),),
)
def _check_labels(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count answers of one or two words: labels instead of answers, unless right answers are as short."""
    threshold = evidence.resolved.spec.thresholds.label_answers
    right = right_answers_of(evidence)
    if task_of(evidence) == "exact_answer" or right.short and relative_limit(threshold, right.short) == 1:
        return CheckOutcome("NOT_APPLICABLE", "the answers are short by the task")
    judged = judged_rows(evidence, evidence.outputs.get("rows"))
    short = [row for row in judged if row.text.strip() and count_words(words_of(row.text)) <= LABEL_WORDS]
    share = Fraction(len(short), len(judged))
    visible = tuple({"item": row.item.id, "output": row.text} for row in short)
    status = "PASS" if holds(share, "<=", relative_limit(threshold, right.short)) else "FAIL"
    return CheckOutcome(status, f"{len(short)} of {len(judged)} answers have one or two words", float(share), visible)


@CHECKS.add(
    "health.collapse",
    "Answers differ",
    source="mode collapse",
    limits=(CheckLimit("<=", "thresholds.identical_answers"),),
)
def _check_collapse(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count the most frequent answer; the limit lies above the share of items that have one right answer.

    Where right answers are known, an untrained model that repeats one is no more than a weak baseline: a warning.
    """
    rows = read_judged_items(evidence, evidence.outputs.get("rows"))
    text, count = Counter(row.text.strip() for row in rows).most_common(1)[0]
    share, right = Fraction(count, len(rows)), right_answers_of(evidence)
    visible = ({"output": text, "times": count},) if count > 1 else ()
    expected = (
        f"; the most frequent right answer is right for {float(right.common):.2f} of them" if right.common else ""
    )
    spec = evidence.resolved.spec
    if holds(share, "<=", right.limit_of_equal(spec.thresholds.identical_answers)):
        return CheckOutcome(
            "PASS", f"the most frequent answer was given {count} times{expected}", float(share), visible
        )
    detail = f"one answer was given to {count} of {len(rows)} items{expected}"
    if is_trained(spec, evidence.stage):
        return CheckOutcome("FAIL", f"{detail}: the model has collapsed", float(share), visible)
    status = "WARN" if right.items else "FAIL"
    return CheckOutcome(status, f"{detail}: the untrained model answers them alike", float(share), visible)


@CHECKS.add(
    "health.near",
    "Answers are not variants of each other",
    kinds=("evaluate",),
    source="mode collapse with one word changed, which exact comparison misses",
    blocking=False,
    limits=(CheckLimit("<=", "thresholds.near_answers"), CheckLimit("<", "thresholds.prompt_similarity")),
)
def _check_near(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count answers that nearly repeat one to an earlier item; a label is right for many."""
    if task_of(evidence) == "exact_answer":
        return CheckOutcome("NOT_APPLICABLE", "the answers are short by the task")
    # Of several answers to an item the first: the others may well resemble it.
    judged = [value for value in judged_rows(evidence, evidence.outputs.get("rows")) if value.row.sample == 0]
    thresholds = evidence.resolved.spec.thresholds
    repeats = near_repeats((value.text for value in judged), threshold=thresholds.prompt_similarity)
    share = Fraction(len(repeats), len(judged))
    visible = tuple(
        {
            "item": judged[repeat.place].item.id,
            "repeats": judged[repeat.of].item.id,
            "output": judged[repeat.place].text,
        }
        for repeat in repeats
    )
    limit = relative_limit(thresholds.near_answers, right_answers_of(evidence).repeated)
    status = "PASS" if holds(share, "<=", limit) else "WARN"
    return CheckOutcome(
        status, f"{len(repeats)} of {len(judged)} answers nearly repeat an earlier one", float(share), visible
    )


@CHECKS.add(
    "health.topic",
    "Accepted answers are about their items",
    kinds=("evaluate",),
    source="one text of the right form for every topic: a verifier of forms accepts it",
    blocking=False,
    limits=(CheckLimit("<=", "thresholds.off_topic"),),
)
def _check_topic(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count accepted answers that share no word with what is special to their prompt, or that repeat the prompt.

    A word is special where at most a tenth of the prompts have it. Only a form is judged without regard to its topic.
    """
    if task_of(evidence) != "format_instructions":
        return CheckOutcome("NOT_APPLICABLE", "an answer to this task may be right without a word of its prompt")
    judged = judged_rows(evidence, evidence.outputs.get("rows"))
    counts = Counter(word for value in judged for word in set(words_of(value.item.prompt)))
    most = max(1, len(judged) // _SPECIAL)
    special = {word for word, count in counts.items() if count <= most and len(word) >= _WORD}
    accepted = [value for value in judged if value.passed]
    odd = [value for value in accepted if not _on_topic(value, special)]
    share = Fraction(len(odd), max(1, len(accepted)))
    visible = tuple({"item": value.item.id, "text": value.item.prompt, "output": value.text} for value in odd)
    status = "PASS" if holds(share, "<=", evidence.resolved.spec.thresholds.off_topic) else "WARN"
    message = f"{len(odd)} of {len(accepted)} accepted answers have no word of their topic, or repeat their prompt"
    return CheckOutcome(status, message, float(share), visible)


def _on_topic(value: JudgedAnswer, special: Set[str]) -> bool:
    words, reported_words = words_of(value.item.prompt), words_of(value.text)
    if f" {' '.join(words)} " in f" {' '.join(reported_words)} ":
        return False
    # By their beginnings: owl and owls, bakery and baker.
    texts = {word[:_STEM] for word in words if word in special}
    stems = {word[:_STEM] for word in reported_words} | {word[:_STEM].removesuffix("s") for word in reported_words}
    return not texts or not stems.isdisjoint(texts | {word.removesuffix("s") for word in texts})


def _changes_with_time(evidence: Evidence) -> bool:
    """Return whether the template that was read writes other prompts at other times; False where it is not here."""
    folder = evidence.inputs.get("model")
    try:
        template = ChatTemplate.read(folder) if folder is not None and folder.is_dir() else None
        return template is not None and changes_with_time(template)
    except (OSError, ValueError, KeyError, TypeError, TemplateRefusal) as error:
        raise EvidenceMissing(f"the chat template cannot be rendered: {error}", where="model") from error


@CHECKS.add(
    "health.template",
    "The prompt format fits the model's kind",
    kinds=("evaluate",),
    source="swapped instruct checkpoints; prompts that change with the time of day",
    reads_weights=True,
)
def _check_template(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    declared, manifest = kind_read(evidence.resolved.spec, evidence.stage), manifest_of(evidence)
    has = manifest.facts.get("chat_template") != digest_bytes(b"")
    if declared == "instruct" and not has:
        return CheckOutcome(
            "FAIL", "the model is declared instruct, its tokenizer has no chat template", repairable=False
        )
    # Rows that were written before the form was said were asked by the tokenizer and not by the declared kind.
    form = manifest.effective.get("form", "chat" if has else "completion")
    read = form == "chat" and evidence.parameters.get("prompting", "native") == "native"
    if read and _changes_with_time(evidence):
        message = "the chat template writes the time: the same item is another prompt on another day"
        return CheckOutcome("WARN", f"{message}; register a date with `template_date` below `model:`")
    if declared == "base" and read:
        return CheckOutcome("WARN", "the model is declared base, its tokenizer has a chat template that was used")
    return CheckOutcome(
        "PASS", f"a model of kind {declared} was prompted {'with' if read else 'without'} a chat template"
    )
