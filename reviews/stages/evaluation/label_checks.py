"""Are the labels of items fit to judge by? Not if the prompt gives the answer away, or the verdict changes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, join_names, unless
from reviews.evidence.evidence import Evidence
from reviews.evidence.items import task_of
from reviews.evidence.measured_value import ratio
from reviews.evidence.right_answers import relative_limit, right_answers
from reviews.stages.evaluation.item_checks import PLAIN
from reviews.stages.evaluation.judged_answers import judged_rows
from specs.session.design import Design
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.stages.base.stage import TASKS
from specs.stages.registry import kind_of
from specs.system.exact import holds
from training.rules.seeded_order import file_order
from training.rules.similarity import has_words
from training.rules.tasks import CONVERSATION, choose, judge_answers, reference, verifier
from training.rules.tasks.choices import answer_of, choices_of
from training.rules.tasks.exact_answer import (
    compared_forms,
    final_answer,
    last_number,
    named_answers,
    normalise_spelling,
    reduce_answer,
)
from training.rules.tasks.verifier_cases import VerifierCase, cases_of

CHECKS = CheckRegistry(("evaluate",))

LEAKED_ANSWER_SOURCE = "a benchmark whose prompts held the gold answer in a hint that no one had taken out"
TWICE_SOURCE = "a verifier that drew a random number, and a verifier that remembered earlier answers"
COMMON_SOURCE = "accuracy on a test set of which nine in ten had one label: a model that knew only that label got 0.9"
DISTINCT_SOURCE = "`5` was right for `-5`, `the` for `A`; GSM8K's rationales as right answers, which nothing equals"
COMMON_LIMITS = (CheckLimit("<=", "thresholds.common_answer"),)
TRIED_ITEMS = 64
"""Held-out items on which a verifier is tried twice; every kind is among them."""
LEAST_TAUGHT = 3
"""Examples that teach one completion: fewer are not label."""
_CODE = re.compile(r"^_|\w_\w|\w\(|[a-z][A-Z]|::|->|^[-@#$&*]\w|\w\.\w")
"""What names of code hold and words do not."""
_ANNOUNCED = re.compile(
    r"\b(?:answers?|solution|label|reference|gold|target|expected|hint)\b\W*(?:\bis\b)?\s*[:=]?\s*", re.I
)
_AGAIN = re.compile(r"\?|\b(?:answer|question|q|a)\s*:", re.I)
"""What follows an announced answer in a prompt of worked examples."""
_EXAMPLE = re.compile(r"(?:for example|for instance|\be\.g\.|\bexamples?\s*:|such as|like this)[\s,:]*", re.I)
_QUOTED = re.compile(r"[\"\u201c](.+?)[\"\u201d]", re.S)
_EXAMPLE_WORDS = 3
"""Fewer words meet a form by chance."""
MOST_EXAMPLES = 0.1
"""Fraction of the held-out items whose prompts may show an accepted answer; of IFEval's prompts 7 of 541 do."""


def judge_design_labels(spec: Design, heldout: Sequence[Item], data: Mapping[str, Sequence[Item]]) -> CheckOutcome:
    """Look for items whose prompt holds their answer: announced it fails, and elsewhere in the prompt it is a warning.

    Texts to be read, choices and numbers hold right answers as they should, so only an announcement is certain.
    """
    results = [_find_revealed_answer(item, answers) for item, answers in _iterate_named_answers(spec, heldout, data)]
    parrots = [item for item in heldout if _accepts_prompt(spec, item)]
    visible = [value for item in heldout if (value := shows_example(spec.task, item))]
    if len(visible) > MOST_EXAMPLES * len(heldout):
        message = (
            f"{len(visible)} of {len(heldout)} prompts show an answer that is accepted: copied, it passes; take it out"
        )
        return CheckOutcome("FAIL", message, float(len(visible)), tuple(visible), repairable=False)
    noted = _judge_notes(heldout, [item for items in data.values() for item in items])
    if noted and noted.status == "FAIL":
        return noted
    if not results and not visible and not _has_own_task(spec):
        return noted or CheckOutcome("NOT_APPLICABLE", "no item names an answer that its prompt could hold")
    announced = [value for value in results if value and value["how"] == "announced"]
    if announced:
        which = join_names(f"{value['heldout']} ('{value['answer']}')" for value in announced)
        message = (
            f"{len(announced)} of {len(results)} prompts announce their answer: {which}; take it out of the prompt"
        )
        return CheckOutcome("FAIL", message, float(len(announced)), tuple(announced), repairable=False)
    current = [value for value in results if value]
    current += [{"heldout": item.id, "how": "accepted", "text": item.prompt} for item in parrots] + visible
    if current:
        message = (
            f"{len(current)} of {len(results) or len(heldout)} prompts hold their answer, or are accepted as one: "
        )
        message += f"{join_names(str(value['heldout']) for value in current)}; a model that copies passes them"
        return CheckOutcome("WARN", message, float(len(current)), tuple(current))
    return noted or CheckOutcome("PASS", f"none of {len(results) or len(heldout)} prompts holds its answer", 0.0)


def _judge_notes(heldout: Sequence[Item], others: Sequence[Item]) -> CheckOutcome | None:
    notes = _find_notes(heldout, others)
    if count := sum(note["how"] == "id" for note in notes):
        message = f"{count} of {len(heldout)} held-out prompts hold their own id, which no one asks with; take it out"
        return CheckOutcome("FAIL", message, float(count), tuple(notes), repairable=False)
    message = f"{len(notes)} of {len(heldout)} held-out prompts say their own kind, and others of that kind do not: "
    message += "is it asked for, or a note of the record?"
    return CheckOutcome("WARN", message, float(len(notes)), tuple(notes)) if notes else None


def _find_notes(heldout: Sequence[Item], others: Sequence[Item]) -> list[dict[str, str]]:
    """Return the held-out prompts with a note of the record: the item's id, or its kind where other prompts lack it."""

    def named(items: Sequence[Item], names: Sequence[str]) -> list[Item]:
        return [item for item, name in zip(items, names, strict=True) if has_words(item.prompt, name)]

    notes = [(item, "id") for item in named(heldout, [item.id for item in heldout])]
    shifted = [item.id for item in (*heldout[1:], *heldout[:1])]
    # By chance a prompt may hold a number that is an id.
    if 2 * (len(notes) - len(named(heldout, shifted))) <= len(heldout):
        notes = []
    for kind in dict.fromkeys(item.kind for item in heldout):
        ours, theirs = ([item for item in items if item.kind == kind] for items in (heldout, others))
        noted = named(ours, [kind] * len(ours))
        usual = Fraction(len(named(theirs, [kind] * len(theirs))), max(1, len(theirs)))
        if len(theirs) >= LEAST_TAUGHT and Fraction(len(noted), len(ours)) - usual > Fraction(1, 2):
            notes += [(item, "kind") for item in noted]
    return [{"heldout": item.id, "how": how, "text": item.prompt} for item, how in notes]


def _iterate_named_answers(
    spec: Design, heldout: Sequence[Item], data: Mapping[str, Sequence[Item]]
) -> Iterable[tuple[Item, list[str]]]:
    """Yield each item that an evaluation reads with its right answers, as far as its task or kind names them."""
    seen_pairs: set[tuple[str, str]] = set()
    for stage in spec.stages:
        reads = stage.inputs.get("items", "")
        items = heldout if reads == "heldout" else data.get(reads.removeprefix("data."), ())
        exact = kind_of(stage).arm and (getattr(stage.parameters, "scorer", None) or spec.task) == "exact_answer"
        if not (exact or stage.kind == "multiple_choice") or (stage.kind, reads) in seen_pairs:
            continue
        seen_pairs.add((stage.kind, reads))
        for item in items:
            yield item, named_answers(item) if exact else [choices_of(item)[answer_of(item)]]


def common_answer(
    spec: Design,
    heldout: Sequence[Item],
    data: Mapping[str, Sequence[Item]],
    texts: Sequence[tuple[str, str]] = (),
) -> CheckOutcome:
    """Count the items of which the most common right answer is right: anyone who always gives it passes those.

    The limit of `health.collapse` follows from that share. Where a verifier of the user's own names no right answer,
    it cannot: then no completion may be taught so often that a model which learned it would not pass.
    """
    counts, total = Counter[str](), 0
    for item, answers in _iterate_named_answers(spec, heldout, data):
        counts.update(set(compared_forms(item) if answers == named_answers(item) else map(reduce_answer, answers)))
        total += 1
    if not counts:
        return _common_label(spec, heldout, texts)
    # It is not named: builders read what a gate says, and held-out answers are not for them.
    count = max(counts.values())
    detail = f"one answer is right for {count} of {total} items"
    if not holds(Fraction(count, total), "<=", spec.thresholds.common_answer):
        return CheckOutcome("FAIL", f"{detail}: always given, it passes them", count / total, repairable=False)
    return CheckOutcome(
        "PASS", f"{detail}, and none for more{_describe_allowance(spec, Fraction(count, total), total)}", count / total
    )


def _describe_allowance(spec: Design, common: Fraction, total: int) -> str:
    most = floor(relative_limit(spec.thresholds.identical_answers, common) * total)
    return f"; up to {most} of {total} answers may be equal (health.collapse)"


def _common_label(spec: Design, heldout: Sequence[Item], texts: Sequence[tuple[str, str]]) -> CheckOutcome:
    """Judge the labels of the user's task: the labels that its verifier accepts, or the labels that are taught."""
    if not _has_own_task(spec) or not any(kind_of(stage).arm for stage in spec.stages):
        return CheckOutcome("NOT_APPLICABLE", "no item names its right answer")
    right = right_answers(spec, spec.task, heldout)
    if right.common:
        detail = f"one answer is accepted for {float(right.common):.2f} of the items"
        return CheckOutcome("PASS", detail + _describe_allowance(spec, right.common, len(heldout)), float(right.common))
    taught = Counter(text.strip() for _, text in texts)
    _, times = taught.most_common(1)[0] if taught else ("", 0)
    share = ratio(times, len(texts))
    if times < LEAST_TAUGHT or holds(share, "<=", relative_limit(spec.thresholds.identical_answers, right.common)):
        return CheckOutcome("NOT_APPLICABLE", "no item names its right answer")
    message = (
        f"{times} of {len(texts)} examples teach one completion, and no right answer of the held-out items is known: a "
        "model that learns it would be refused as collapsed (health.collapse); name right answers (`answer` in the "
        "items, or `known_answers()` next to `verify`), or a larger `thresholds.identical_answers`"
    )
    return CheckOutcome("FAIL", message, float(share), repairable=False)


def distinct_answers(spec: Design, heldout: Sequence[Item], data: Mapping[str, Sequence[Item]]) -> CheckOutcome:
    """Look for different right answers that are compared as one, and for rationales, which no model writes again."""
    named = [(item, text) for item, answers in _iterate_named_answers(spec, heldout, data) for text in answers]
    named = [(item, text) for item, text in named if item.constraint.get("find") != "last_number"]
    if spec.task != "exact_answer" or not named:
        return CheckOutcome("NOT_APPLICABLE", "no right answers are compared as texts")
    rationales = [(item, final) for item, text in named if (final := final_answer(text)) is not None]
    if 2 * len(rationales) > len(named):
        numbers = all(last_number(final) is not None for _, final in rationales)
        way = (
            'add `"find": "last_number"` to the items, which compares the last number'
            if numbers
            else "put the final answer alone into `answer`"
        )
        message = f"{len(rationales)} of {len(named)} right answers are rationales with a final answer at their end, "
        message += f"which an answer would have to repeat word for word: {way}"
        visible = tuple({"heldout": item.id} for item, _ in rationales)
        return CheckOutcome("FAIL", message, float(len(rationales)), visible, repairable=False)
    as_code = 2 * sum(_CODE.search(text) is not None for _, text in named) > len(named)
    spellings: dict[str, dict[str, str]] = {}
    for item, text in named:
        spellings.setdefault(reduce_answer(text), {}).setdefault(normalise_spelling(text, as_code=as_code), item.id)
    merged = [ids for ids in spellings.values() if len(ids) > 1]
    message = f"{len(merged)} times, right answers that differ are compared as one: "
    message += f"{join_names(' and '.join(ids.values()) for ids in merged)}; write them so that more than a mark, an "
    message += "article or capitals tells them apart, or bring a verify.py that compares them exactly"
    visible = [{"heldout": ", ".join(ids.values())} for ids in merged]
    return unless(visible, message, f"{len(spellings)} different right answers stay different", repairable=False)


def _find_revealed_answer(item: Item, answers: Iterable[str]) -> dict[str, str] | None:
    texts = [text for answer in answers if (text := reduce_answer(answer))]
    for answer in texts:
        if _announces(item.prompt, answer):
            return {"heldout": item.id, "how": "announced", "answer": answer, "text": item.prompt}
    if item.constraint.get("find") == "last_number":
        # Sums hold their result by luck, and word problems hold numbers.
        return None
    text = f" {reduce_answer(item.prompt)} "
    answer = next((current_text for current_text in texts if f" {current_text} " in text), None)
    return {"heldout": item.id, "how": "held", "answer": answer, "text": item.prompt} if answer else None


def _announces(prompt: str, answer: str) -> bool:
    """Return whether a prompt gives the answer away: after a word such as "answer:", or alone after its question."""
    _, text, tail = prompt.rpartition("?")
    if text and reduce_answer(tail) == answer:
        return True
    for match in _ANNOUNCED.finditer(prompt):
        first, *rest = re.split(r"[\n;.!)\]]", prompt[match.end() :], maxsplit=1)
        if reduce_answer(first) == answer and not _AGAIN.search("".join(rest)):
            return True
    return False


def _has_own_task(spec: Design) -> bool:
    return spec.task not in TASKS


def _accepts_prompt(spec: Design, item: Item) -> bool:
    """Return whether a task of the user's own takes the prompt itself for a right answer."""
    return _has_own_task(spec) and verifier(spec.task)(item, item.prompt).passed


def shows_example(task: str, item: Item) -> dict[str, str] | None:
    """Return an example in a prompt that the item's own verifier accepts, as rows are shown, or None."""
    for match in _EXAMPLE.finditer(item.prompt):
        tail = item.prompt[match.end() :]
        quoted = _QUOTED.match(tail)
        for text in (tail, tail.partition("\n")[0], *((quoted[0], quoted[1]) if quoted else ())):
            if len(text.split()) >= _EXAMPLE_WORDS and verifier(task)(item, text).passed:
                return {"heldout": item.id, "how": "example", "answer": text, "text": item.prompt}
    return None


def agrees_with_itself(tasks: Iterable[str], heldout: Sequence[Item]) -> CheckOutcome:
    """Judge known answers and answers to held-out items twice, the second time in another order."""
    count, wrong = 0, list[dict[str, str]]()
    for task in tasks:
        pairs = [(case.item, case.output) for case in _load_known_cases(task)]
        pairs += [(item, text) for item in choose(heldout, TRIED_ITEMS) for text in (*_references(task, item), *PLAIN)]
        count += len(pairs)
        wrong += [
            {"task": task, "item": pairs[place][0].id, "answer": pairs[place][1]}
            for place in find_unstable_verdicts(task, pairs)
        ]
    message = f"{len(wrong)} of {count} answers were judged otherwise when they were judged again: "
    message += (
        f"{join_names(value['item'] for value in wrong)}; let verify(item, answer) depend on item and answer alone"
    )
    return unless(
        wrong, message, f"{count} answers, judged twice in two orders, got the same verdict", repairable=False
    )


def find_unstable_verdicts(task: str, pairs: Sequence[tuple[Item, str]]) -> list[int]:
    """Return the places of the answers whose verdict is another when they are judged again.

    They are shuffled then, since a verdict that alternates survives a reversal. A verifier of the user's own is asked
    again by the process that remembers the first time, and by another one, whose hashes have another seed.
    """
    order = sorted(range(len(pairs)), key=lambda place: file_order(f"{place}/{pairs[place][0].id}", len(pairs)))
    mixed, first = [pairs[place] for place in order], _passes(task, pairs, again=False)
    others = {False} if _is_ours(task) else {False, True}
    later = [_passes(task, mixed, again=other) for other in sorted(others)]
    return sorted(place for at, place in enumerate(order) if any(flags[at] != first[place] for flags in later))


def _is_ours(task: str) -> bool:
    return task in (*TASKS, CONVERSATION)


def _passes(task: str, pairs: Sequence[tuple[Item, str]], *, again: bool) -> list[bool | None]:
    """Return the verdicts; None for an item that cannot be judged, which other checks report."""
    if not _is_ours(task):
        return [judgement.passed for judgement in judge_answers(task, pairs, again=again)]
    judge, flags = verifier(task), list[bool | None]()
    for item, text in pairs:
        try:
            flags.append(bool(judge(item, text).passed))
        except (KeyError, ValueError, TypeError):
            flags.append(None)
    return flags


def _load_known_cases(task: str) -> tuple[VerifierCase, ...]:
    """Return the known answers of a task; none where it has none, which its admission reports."""
    try:
        return cases_of(task)
    except KeyError:
        return ()


def _references(task: str, item: Item) -> list[str]:
    try:
        known = reference(task, item)
    except (KeyError, ValueError, TypeError):
        return []
    return [] if known is None else [known]


@CHECKS.add("scorer.repeats", "The verifier agrees with itself", source=TWICE_SOURCE)
def _check_repeats(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Judge the answers of the stage twice, the second time in another order."""
    pairs = [(judged_row.item, judged_row.text) for judged_row in judged_rows(evidence, evidence.outputs.get("rows"))]
    wrong = [
        {"item": pairs[place][0].id, "output": pairs[place][1]}
        for place in find_unstable_verdicts(task_of(evidence), pairs)
    ]
    message = f"{len(wrong)} of {len(pairs)} answers were judged otherwise when they were judged again; "
    message += "let verify(item, answer) depend on item and answer alone"
    return unless(
        wrong, message, f"{len(pairs)} answers, judged twice in two orders, got the same verdict", repairable=False
    )
