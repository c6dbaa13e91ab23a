"""Which side of a pair is right, as far as a task's verifier can say, and do its sides say something different?

The same rules judge the pairs that stages make and the pairs and examples that a person brings.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from reviews.checks.definition import CheckOutcome, join_names
from reviews.statistics.mcnemar import exact_mcnemar, wilson
from specs.session.design import Design
from specs.stages.base.artifacts import DialogueTurn, Example, Item, Preference
from specs.stages.base.stage import TASKS
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds
from specs.system.text import plain
from training.rules.critique.pair_selection import length_bias
from training.rules.similarity import words_of
from training.rules.tasks import judge_answers, verifier

SOURCE = "35 pairs of revisions: the task's verifier accepted the chosen side of 1 and the rejected side of 2"
LEVEL = 0.05
"""Of the exact McNemar test of both sides."""
MOST_SWAPPED = 0.1
"""Fraction of the pairs whose sides the verifier tells apart: the most of which it may prefer the rejected side."""
MOST_COPIES = 0.2
"""Fraction of the pairs: sides with equal words, or all but one word in ten, that neither verifier nor judge tells
apart."""
MOST_EVASIVE = 0.1
"""Fraction of the pairs: chosen answers that answer something else than their prompt."""
LEAST_WORDS = 4
"""Fewer words are a label or a short answer."""
_NEARLY = 0.9
_LEAST_EVASIVE = 3
_TRIED = 50
"""Prompts on which one text is tried."""
_FREQUENT = 0.2
"""Words of more than this fraction of the prompts say nothing of what a prompt is about."""
_ABOUT = frozenset(("instruction", "response", "critique", "principle", "revision", "revised"))
"""The names of the parts of a question that asks for a revision: an answer to a user has no reason to name them."""
WAIVE = (
    "give the stage a judge, or register in a person's name that nothing judges them: "
    "`evaluation: {{not_judged: [{name}]}}`"
)
NOT_JUDGED = f"give the prompts as items that the task's verifier can judge, {WAIVE}"


class JudgedPair(NamedTuple):
    """A pair, and whether its sides are right; None where the task's verifier cannot judge its prompt."""

    pair: Preference
    chosen: bool | None = None
    rejected: bool | None = None

    @property
    def is_swapped(self) -> bool:
        """Return whether the verifier accepts the rejected side alone."""
        return self.chosen is False and self.rejected is True

    def show(self) -> dict[str, Any]:
        """Return the row of a finding."""
        prompt, chosen, rejected = self.pair.prompt, self.pair.chosen, self.pair.rejected
        return {"item": self.pair.item or prompt, "chosen": chosen, "rejected": rejected}


class TaskAnswer(NamedTuple):
    """A text with what it answers."""

    prompt: str
    text: str
    before: tuple[DialogueTurn, ...] = ()


def find_verdicts(
    spec: Design, data: Mapping[str, Sequence[Item]], heldout: Sequence[Item], answers: Sequence[TaskAnswer]
) -> list[bool | None]:
    """Return whether each answer is right by the task's verifier; None for prompts that it cannot judge.

    Raises:
        PluginFault: as :func:`judge_answers`.
    """
    items = _index_items(spec, data, heldout)
    known = [items.get((answer.prompt, answer.before)) for answer in answers]
    requests = [(item, answer.text) for item, answer in zip(known, answers, strict=True) if item is not None]
    verdicts = judge_answers(spec.task, requests)
    return [None if item is None else next(verdicts).passed for item in known]


def judge_pairs(
    spec: Design, data: Mapping[str, Sequence[Item]], heldout: Sequence[Item], pairs: Sequence[Preference]
) -> list[JudgedPair]:
    """Return pairs with what the task's verifier says of their sides; errors as :func:`find_verdicts`."""
    answers = [TaskAnswer(pair.prompt, text, pair.before) for pair in pairs for text in (pair.chosen, pair.rejected)]
    verdicts = find_verdicts(spec, data, heldout, answers)
    return [JudgedPair(pair, *verdicts[2 * place : 2 * place + 2]) for place, pair in enumerate(pairs)]


def _index_items(
    spec: Design, data: Mapping[str, Sequence[Item]], heldout: Sequence[Item]
) -> dict[tuple[str, tuple[DialogueTurn, ...]], Item]:
    """Return the items that the task's verifier can judge, by what they ask; no labelled samples."""
    labels = {stage.inputs.get("calibration", "").removeprefix("data.") for stage in spec.stages}
    labels |= {spec.evaluation.labelled} if spec.evaluation and spec.evaluation.labelled else set()
    bare = not any(item.constraint for item in heldout)
    return {
        (item.prompt, item.before): item
        for name, items in data.items()
        for item in items
        if name not in labels and _can_judge(spec.task, item, bare=bare)
    }


def _can_judge(task: str, item: Item, *, bare: bool) -> bool:
    """Return whether a verifier can judge answers to an item; ``bare``: the held-out items have no constraints."""
    if task not in TASKS:
        return bool(item.constraint) or bare
    try:
        verifier(task)(item, "-")
    except (KeyError, ValueError, TypeError):
        return False
    return bool(item.constraint) or task == "format_instructions"


def is_waived(spec: Design, name: str) -> bool:
    """Return whether a person registered that nothing judges the pairs of a stage or data file."""
    return spec.evaluation is not None and name in spec.evaluation.not_judged


def check_direction(judged: Sequence[JudgedPair], name: str, *, has_judge: bool, waived: bool) -> CheckOutcome:
    """Compare the sides of pairs by the task's verifier: the chosen ones have to be right more often.

    With an admitted judge, or where a person registered that nothing judges them, the verifier may be silent; it still
    rejects pairs that it finds swapped.

    Raises:
        EvidenceMissing: nothing judges the pairs.
    """
    known = [pair for pair in judged if pair.chosen is not None]
    if not known:
        if has_judge:
            return CheckOutcome("NOT_APPLICABLE", "the task's verifier cannot judge these prompts; the judge does")
        if waived:
            return CheckOutcome("WARN", f"not judged: a person registered that nothing judges the pairs of '{name}'")
        message = f"nothing judges the {len(judged)} pairs of '{name}': which side is better is not shown"
        raise EvidenceMissing(message, hint=NOT_JUDGED.format(name=name))
    chosen, rejected = sum(bool(pair.chosen) for pair in known), sum(bool(pair.rejected) for pair in known)
    swapped = [pair for pair in known if pair.is_swapped]
    lost, gained = len(swapped), chosen - rejected + len(swapped)
    p = exact_mcnemar(gained, lost)
    detail = f"the task's verifier accepts {chosen} of {len(known)} chosen answers and {rejected} rejected ones"
    detail += f" (only the chosen one of {gained} pairs, only the rejected one of {lost}; exact McNemar p = {p:.2g})"
    visible = tuple(pair.show() for pair in swapped)
    is_reversed = p < LEVEL and lost > gained
    if is_reversed or not has_judge and lost and lost >= gained:
        why = "pairs teach the wrong side: swap them, or drop pairs that the verifier does not confirm"
        return CheckOutcome("FAIL", f"{detail}: {why}", float(lost), visible)
    if lost and wilson(lost, gained + lost)[0] > MOST_SWAPPED:
        why = f"certainly more than {MOST_SWAPPED:g} of the pairs it tells apart are swapped: drop them"
        return CheckOutcome("WARN" if has_judge else "FAIL", f"{detail}: {why}", float(lost), visible)
    if not gained and not has_judge:
        why = "no pair shows which side is better"
        if waived:
            return CheckOutcome("WARN", f"{detail}: {why}, and a person registered that nothing judges them", 0.0)
        return CheckOutcome("FAIL", f"{detail}: {why}; {WAIVE.format(name=name)}", 0.0)
    if p < LEVEL and gained > lost:
        return CheckOutcome("PASS", detail, float(gained - lost), visible)
    return CheckOutcome("WARN", f"{detail}: too few to show that chosen answers are better", float(gained), visible)


def check_copies(judged: Sequence[JudgedPair], *, has_judge: bool, brought: bool = False) -> CheckOutcome:
    """Count pairs whose sides say the same but for case, marks or a word in ten, where nothing tells them apart.

    A judge that prefers one of them tells them apart; a person's own pairs may be about commas, so they only warn.
    """
    copies = [pair for pair in judged if pair.chosen == pair.rejected and is_near(pair.pair.chosen, pair.pair.rejected)]
    detail = f"the sides of {len(copies)} of {len(judged)} pairs are equal but for case, marks or a word in ten"
    if not copies:
        return CheckOutcome("PASS", detail, 0.0)
    visible = tuple(pair.show() for pair in copies)
    if len(copies) > max(1, MOST_COPIES * len(judged)) and not has_judge and not brought:
        message = f"{detail}, and nothing tells them apart: a model learns noise from them; drop them"
        return CheckOutcome("FAIL", message, float(len(copies)), visible)
    return CheckOutcome("WARN", detail, float(len(copies)), visible)


def is_near(text: str, other: str) -> bool:
    """Return whether two texts have equal words, or of ten words or more all but one in ten, in order."""
    words, others = words_of(text), words_of(other)
    if words == others:
        return True
    if min(len(words), len(others)) < 10:
        return False
    shared = sum((Counter(words) & Counter(others)).values())
    return shared >= _NEARLY * max(len(words), len(others))


def check_answers(judged: Sequence[JudgedPair], *, brought: bool = False) -> CheckOutcome:
    """Look for chosen answers that do not answer their prompt and are not right by the task's verifier.

    One text for several prompts; words that share nothing with prompt and rejected side; talk about the request. What a
    person brings may be an agent's next action, which need not share a word with what was said before: it only warns.
    """
    about = _find_subjects([pair.pair for pair in judged])
    prompts: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for pair in judged:
        prompts[words_of(pair.pair.chosen)].add(pair.pair.prompt)
    faults: list[dict[str, Any]] = []
    for pair in judged:
        words = words_of(pair.pair.chosen)
        if pair.chosen or len(words) < 3:
            continue
        source = {*words_of(pair.pair.prompt), *words_of(pair.pair.rejected)}
        if len(prompts[words]) >= _LEAST_EVASIVE:
            fault = f"answers {len(prompts[words])} prompts alike"
        elif named := sorted(_ABOUT.intersection(words) - source):
            fault = f"speaks of the {' and '.join(named)}"
        elif about[pair.pair.prompt] and not _share_subject(pair.pair, about):
            fault = "shares no word with its prompt or the other side"
        else:
            continue
        faults.append(pair.show() | {"fault": fault})
    if not faults:
        return CheckOutcome("PASS", f"all {len(judged)} chosen answers answer their prompt", 0.0)
    kinds = join_names(dict.fromkeys(str(row["fault"]) for row in faults))
    detail = f"{len(faults)} of {len(judged)} chosen answers do not answer their prompt: {kinds}"
    most = max(_LEAST_EVASIVE - 1, MOST_EVASIVE * len(judged))
    status = "FAIL" if len(faults) > most and not brought else "WARN"
    return CheckOutcome(status, detail, float(len(faults)), tuple(faults))


def _find_subjects(pairs: Sequence[Preference]) -> dict[str, set[str]]:
    """Return the words of each prompt that few prompts have; none for scripts without spaces and for short prompts."""
    words = {pair.prompt: set(words_of(pair.prompt)) for pair in pairs}
    counts = Counter(word for prompt_words in words.values() for word in prompt_words)
    most = max(1.0, _FREQUENT * len(words))
    return {
        prompt: {word for word in prompt_words if len(word) > 3 and counts[word] <= most}
        if len(prompt_words) > 2
        else set()
        for prompt, prompt_words in words.items()
    }


def _share_subject(pair: Preference, about: Mapping[str, set[str]]) -> bool:
    """Return whether a chosen answer has a word, or the beginning of one, of its prompt or of the other side."""
    wanted = about[pair.prompt] | {word for word in words_of(pair.rejected) if len(word) > 3}
    stems = {word[:4] for word in wanted}
    return any(word[:4] in stems for word in words_of(pair.chosen) if len(word) > 3)


def check_brought(
    spec: Design,
    data: Mapping[str, Sequence[Item]],
    heldout: Sequence[Item],
    brought: Mapping[str, Sequence[Example | Preference]],
) -> CheckOutcome:
    """Judge the pairs and examples of a person's files as stages' own are judged; what is only likely warns.

    Where the verifier cannot judge the prompts, the order of a person's pairs stands, and the gate says so.

    Raises:
        PluginFault: as :func:`find_verdicts`.
    """
    results: list[CheckOutcome] = []
    for name, rows in brought.items():
        if pairs := [row for row in rows if isinstance(row, Preference)]:
            judged = judge_pairs(spec, data, heldout, pairs)
            results += (_check_brought_direction(spec, judged, name), _check_brought_length(spec, pairs, name))
            results += (check_copies(judged, has_judge=False, brought=True), check_answers(judged, brought=True))
            answers = [TaskAnswer(row.prompt, row.chosen, row.before) for row in pairs]
            results.append(_check_stuck(spec, (data, heldout), answers, name))
        if examples := [row for row in rows if isinstance(row, Example)]:
            answers = [TaskAnswer(row.prompt, row.completion, row.before) for row in examples]
            results.append(_check_examples(examples, find_verdicts(spec, data, heldout, answers), name))
            results.append(_check_stuck(spec, (data, heldout), answers, name))
    if not results:
        return CheckOutcome("NOT_APPLICABLE", "no data file holds pairs or examples")
    return next((value for status in ("FAIL", "WARN") for value in results if value.status == status), results[0])


def _check_brought_direction(spec: Design, judged: Sequence[JudgedPair], name: str) -> CheckOutcome:
    try:
        return check_direction(judged, name, has_judge=False, waived=is_waived(spec, name))
    except EvidenceMissing:
        message = f"nothing but the file says which side of the {len(judged)} pairs of '{name}' is better"
        return CheckOutcome("WARN", f"{message}: the task's verifier cannot judge their prompts")


def _check_brought_length(spec: Design, pairs: Sequence[Preference], name: str) -> CheckOutcome:
    """Compare the lengths of both sides: only a warning, because long or short answers may be what is to be learnt."""
    difference, bias = length_bias(pairs)
    detail = (
        f"chosen answers of '{name}' have {float(difference):+.1f} words on average, {float(bias):+.2f} of the mean"
    )
    if holds(abs(bias), "<=", spec.thresholds.length_bias):
        return CheckOutcome("PASS", detail, float(bias))
    message = "training on them may teach length before all else, unless the task asks for it"
    return CheckOutcome("WARN", f"{detail}: {message}", float(bias))


def _check_examples(examples: Sequence[Example], verdicts: Sequence[bool | None], name: str) -> CheckOutcome:
    wrong = [example for example, passed in zip(examples, verdicts, strict=True) if passed is False]
    judged = sum(passed is not None for passed in verdicts)
    detail = f"of {len(examples)} examples of '{name}' the task's verifier can judge {judged} and refuses {len(wrong)}"
    if wrong and wilson(len(wrong), judged)[0] > MOST_SWAPPED:
        message = f"{detail}, certainly more than {MOST_SWAPPED:g}: they teach what the task calls wrong; take them out"
        return CheckOutcome("FAIL", message, float(len(wrong)), _show_examples(wrong))
    return CheckOutcome("WARN" if wrong else "PASS", detail, float(len(wrong)), _show_examples(wrong))


def _check_stuck(
    spec: Design,
    known: tuple[Mapping[str, Sequence[Item]], Sequence[Item]],
    answers: Sequence[TaskAnswer],
    name: str,
) -> CheckOutcome:
    """Look for one text of several words that answers many prompts, which a label may do.

    Where the verifier accepts it for every prompt of the same kind, with a word less too, it is not a label: such a
    verifier looks at form, and a model that learns the text passes without learning anything.
    """
    times = Counter({answer.text: 0 for answer in answers})
    times.update(text for text, _ in {(answer.text, answer.prompt) for answer in answers})
    often = [
        text
        for text, count in times.items()
        if len(text.split()) >= LEAST_WORDS and count > max(_LEAST_EVASIVE, MOST_COPIES * len(answers))
    ]
    kinds = {(item.prompt, item.before): item.kind for items in known[0].values() for item in items}
    for text in often:
        own = {kinds.get((answer.prompt, answer.before)) for answer in answers if answer.text == text}
        same = [answer for answer in answers if kinds.get((answer.prompt, answer.before)) in own][:_TRIED]
        words = text.split()
        shorter = " ".join([*words[: len(words) // 2], *words[len(words) // 2 + 1 :]])
        tried = [answer._replace(text=variant) for variant in (text, shorter) for answer in same]
        verdicts = find_verdicts(spec, *known, tried)
        detail = f"'{plain(text, 60)}' answers {times[text]} of the {len(answers)} prompts of '{name}'"
        visible = ({"text": text, "prompts": times[text], "of": len(answers)},)
        if all(verdicts):
            message = f"{detail}, and the task's verifier accepts it for all of their kind: it teaches one sentence"
            return CheckOutcome("FAIL", message, float(times[text]), visible)
        if set(verdicts) == {None}:
            return CheckOutcome("WARN", f"{detail}: a label, or one answer to everything", float(times[text]), visible)
    return CheckOutcome("PASS", f"no text answers many prompts of '{name}'", 0.0)


def _show_examples(examples: Iterable[Example]) -> tuple[dict[str, Any], ...]:
    return tuple({"item": value.item, "prompt": value.prompt, "completion": value.completion} for value in examples)
