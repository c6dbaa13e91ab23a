"""Attacks verifiers before they are believed: a table of wrong answers, made from each item and its neighbours.

An attack succeeds on an item if every text of it passes and no control does. It counts if it succeeds on more than
``MOST_ACCEPTED`` of the items that it can be made for, or on half of a kind.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import NamedTuple

from reviews.checks.definition import CheckOutcome
from reviews.evidence.right_answers import relative_limit
from specs.stages.base.artifacts import Item
from specs.system.errors import EvidenceMissing, PluginFault
from specs.system.exact import holds
from specs.system.text import plain
from training.rules.tasks import judge_answers, verifier_of_right, worked_example
from training.rules.tasks.form import Asked
from training.rules.tasks.verifier_cases import cases_of

MOST_ACCEPTED = 0.2
"""Fraction of the answers to other items: some may be right, as where items have equal answers in other words."""
LEAST_KNOWN = 3
"""Known answers of each label, right and wrong, without which a verifier is not admitted."""
WRITE_KNOWN = (
    f"let known_answers() return (item, answer, right) for {LEAST_KNOWN} right (True) and {LEAST_KNOWN} wrong (False) "
    "answers or more"
)
_MOST_TRIED = 64
"""Answers that are asked about one by one."""
_NONSENSE = "lorem ipsum dolor sit amet"
_LONG = tuple(text * (4000 // len(text)) + "!" for text in ("lorem ipsum ", "a", "1", "1 ", "- a\n", "(", "\\"))
"""Answers of a model that does not stop: patterns with nested repetitions take years on some of them."""
_NO_NUMBERS = {"nan": "nam", "NaN": "NaM", "inf": "inp", "-inf": "-inp", "Infinity": "Infinite"}
"""Texts that Python reads as numbers which equal or exceed nothing or everything, each with a word of its form."""
_WHOLE = re.compile(r"[1-9]\d*")
_SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    "{}.".format,
    "It is {}".format,
    "The answer is {}.".format,
    "Answer: {}".format,
    "#### {}".format,
    "\\boxed{{{}}}".format,
    "<answer>{}</answer>".format,
    "```\n{}\n```".format,
)
"""Forms in which verifiers look for a value."""


class ProbeTarget(NamedTuple):
    """An item under attack."""

    item: Item
    right: str = ""
    """The value of the item that its verifier accepts; empty where none is known."""
    other: str = ""
    """The right answer of another item."""
    example: str = ""
    """The answer of the task's worked example."""


Build = Callable[[ProbeTarget], Sequence[str]]


def _build_nothing(_: ProbeTarget) -> Sequence[str]:
    return ()


def _build_other(target: ProbeTarget) -> Sequence[str]:
    return (target.other,)


def _build_constants(*texts: str) -> Build:
    return lambda _: texts


class Attack(NamedTuple):
    """Wrong answers of one sort, and what a verifier that takes them does not look at."""

    name: str
    build: Build
    """The texts that have to pass together; none where it cannot be made for an item."""
    advice: str
    controls: Build = _build_nothing
    """Texts that do not pass where the attack counts: a verifier that takes them too looks at something else."""
    fails: bool = True
    """Whether it closes the gate. What reads a right answer out of a sentence may be meant, and warns."""


def _attack_values(build: Build) -> Build:
    """Return an attack on items whose right answer is known."""
    return lambda target: build(target) if target.right else ()


def _attack_numbers(build: Callable[[str], Sequence[str]]) -> Build:
    return lambda target: build(target.right) if _WHOLE.fullmatch(target.right) else ()


def _attack_letters(build: Callable[[str], Sequence[str]]) -> Build:
    return lambda target: build(target.right.upper()) if target.right.upper() in _BEGINNINGS else ()


def _list_other_numbers(target: ProbeTarget) -> Sequence[str]:
    number = int(target.right)
    return (str(number + 1), str(2 * number), "lorem")


def _list_without_value(word: str, control: str) -> Build:
    return lambda target: () if word.casefold() in _values(target.item) else (control,)


_BEGINNINGS = {
    **{"A": "A hard one, I do not know.", "B": "But I do not know.", "C": "Can you say it again?"},
    **{"D": "Do you know?", "E": "Each of them, or none?", "F": "For sure I do not know."},
}
_WHOLE_ANSWER = "compare the whole answer, or its last word, with the right one"
_FINITE = "let it refuse numbers that are not finite (`math.isfinite`)"
_DIGITS = "compare whole numbers"
_NOTHING = "an answer must hold the right value"
_IN_SENTENCES = "it reads right answers out of sentences, and these too"
_UNKNOWN = ("I do not know.", "Ich weiß es nicht.", "Je ne sais pas.", "我不知道。", "मुझे नहीं पता।", "لا أعرف.")
ATTACKS: tuple[Attack, ...] = (
    Attack("another item's answer",
           _attack_values(lambda target: (target.other,) if "answer" in target.item.constraint else ()), _WHOLE_ANSWER),
    Attack("a right answer next to a wrong one",
           _attack_values(lambda target: (f"{target.right} or {target.other}", f"{target.other} or {target.right}")),
           f"naming several passes; {_WHOLE_ANSWER}", controls=_build_other),
    Attack("the right answer denied",
           _attack_values(lambda target: (f"not {target.right}", f"It is anything but {target.right}")),
           _IN_SENTENCES, controls=_build_other, fails=False),
    Attack("the right answer corrected",
           _attack_values(lambda target: (f"{target.right} is wrong, it is {target.other}",)),
           _IN_SENTENCES, controls=_build_other, fails=False),
    Attack("a word that holds the right one", _attack_values(lambda target: (f"x{target.right}y",)),
           "compare whole words", controls=_build_other, fails=False),
    Attack("the beginning of the right answer",
           _attack_values(lambda target: (target.right[: len(target.right) // 2],) if len(target.right) > 3 else ()),
           "look for the right answer in what was said, not the other way", controls=_build_other),
    Attack("the right answer with other digits", _attack_values(lambda target: _turn_digits(target.right)),
           "compare all of it, digits too", controls=_build_other),
    Attack("a number with more digits before the right one",
           _attack_numbers(lambda text: (f"1{text}", f"7{text}")), _DIGITS, controls=_list_other_numbers),
    Attack("a number with more digits after the right one",
           _attack_numbers(lambda text: (f"{text}1", f"{text}7")), _DIGITS, controls=_list_other_numbers),
    Attack("a letter for a word that begins with it", _attack_letters(lambda text: (_BEGINNINGS[text],)),
           "compare the whole answer with the letter", controls=_build_constants(_NONSENSE)),
    Attack("a digit in the place of a letter", _attack_letters(lambda text: (str(ord(text) - ord("A") + 1),)),
           "it reads digits as letters", controls=_build_other, fails=False),
    Attack("the right answer in letters that only look like its own",
           _attack_values(lambda target: _swap_lookalikes(target.right)),
           "it compares letters by their looks, or leaves them out", controls=_build_other, fails=False),
    Attack("its prompt as right", _attack_values(lambda target: (target.item.prompt,)), _NOTHING),
    Attack("the worked example as right", _attack_values(lambda target: (target.example,) if target.example else ()),
           _NOTHING, controls=_build_constants(_NONSENSE)),
    Attack("an empty answer as right", _attack_values(_build_constants("")), _NOTHING),
    *(Attack(f"'{text}' as right", _attack_values(_build_constants(text)), _NOTHING) for text in _UNKNOWN),
    *(Attack(f"{len(text)} characters of '{text[:6]}' as right", _attack_values(_build_constants(text)), _NOTHING)
      for text in _LONG),
    *(Attack(f"'{text}' as right", _list_without_value(text, text), _FINITE, _list_without_value(text, word))
      for text, word in _NO_NUMBERS.items()),
)  # fmt: skip
"""What every verifier is asked. A new attack is a line here."""


def probe_wrong_answers(task: str, items: Sequence[Item]) -> CheckOutcome | None:
    """Attack a verifier; None if it refuses everything. An attack that reads sentences only warns.

    Raises:
        PluginFault: it breaks on long answers, or takes longer than it may.
    """
    if not items:
        return None
    _passes(task, [(items[0], text) for text in _LONG])
    targets, unmet = _find_targets(task, items)
    if fault := _count_unmet(task, items, unmet):
        return fault
    attacks = (*_list_attacks(task, items), *ATTACKS)
    return run_attacks(task, lambda requests: _passes(task, requests), attacks, targets)


def run_attacks(
    name: str, judge: Callable[[Sequence[Asked]], list[bool]], attacks: Sequence[Attack], targets: Sequence[ProbeTarget]
) -> CheckOutcome | None:
    """Return the first attack that succeeds and closes a gate, else the first that warns; None without any."""
    attempts = [
        Attempt(attack, target, texts, tuple(attack.controls(target)))
        for attack in attacks
        for target in targets
        if (texts := tuple(attack.build(target)))
    ]
    # All at once: a verifier of the user's own is a process.
    requests = [(attempt.target.item, text) for attempt in attempts for text in (*attempt.texts, *attempt.controls)]
    verdicts = iter(judge(requests))
    passed_attempts = list[Attempt]()
    for attempt in attempts:
        passed = [next(verdicts) for _ in attempt.texts]
        if not any([next(verdicts) for _ in attempt.controls]) and all(passed):  # noqa: C419 - each takes its verdict.
            passed_attempts.append(attempt)
    outcomes = [_judge_attack(name, attack, attempts, passed_attempts) for attack in attacks]
    return next((value for status in ("FAIL", "WARN") for value in outcomes if value and value.status == status), None)


class Attempt(NamedTuple):
    """An attack on an item."""

    attack: Attack
    target: ProbeTarget
    texts: tuple[str, ...]
    controls: tuple[str, ...]


def _judge_attack(
    name: str, attack: Attack, attempts: Sequence[Attempt], successful: Sequence[Attempt]
) -> CheckOutcome | None:
    """Return how a verifier fares; None if it refuses the attack, or no item can be attacked with it."""
    tried, own = ([attempt for attempt in group if attempt.attack is attack] for group in (attempts, successful))
    kinds = {attempt.target.item.kind for attempt in own}
    parts = [
        (tried, MOST_ACCEPTED),
        *(([attempt for attempt in tried if attempt.target.item.kind == kind], 0.5) for kind in kinds),
    ]
    if not own or not any(_is_beyond_chance(part, own, most) for part, most in parts):
        return None
    first = own[0]
    such = f", such as '{plain(first.texts[0], 60)}'" + (f" for '{first.target.right}'" if first.target.right else "")
    message = f"'{name}' takes {attack.name} for {len(own)} of {len(tried)} items{such}: {attack.advice}"
    return CheckOutcome("FAIL" if attack.fails else "WARN", message, float(len(own)), repairable=False)


def _is_beyond_chance(tried: Sequence[Attempt], successful: Sequence[Attempt], most: float) -> bool:
    """Return whether an attack succeeds more often than the limit, which lies above what one constant answer gets."""
    common = max(Counter(attempt.target.right for attempt in tried if attempt.target.right).values(), default=0)
    passed = sum(attempt in successful for attempt in tried)
    return passed > 1 and Fraction(passed, len(tried)) > relative_limit(most, Fraction(common, len(tried)))


def _find_targets(task: str, items: Sequence[Item]) -> tuple[list[ProbeTarget], list[Item]]:
    """Return every item with its right value and a wrong one (another item's), and the items without a right value.

    The first spelling in which most values pass is taken for all items where it passes.
    """
    spelled = [(item, field, place, text) for item in items for field, place, text in _spell(item)]
    verdicts = _passes(task, [(item, text) for item, _, _, text in spelled])
    passed = [row for row, verdict in zip(spelled, verdicts, strict=True) if verdict]
    often = Counter((field, place) for _, field, place, _ in passed)
    best = sorted(passed, key=lambda row: -often[row[1], row[2]])
    right: dict[str, str] = {}
    for item, _, _, text in best:
        right.setdefault(item.id, text)
    if len(set(right.values())) < 2:
        return [ProbeTarget(item) for item in items], [item for item in items if item.id not in right]
    texts = list(dict.fromkeys(right.values()))
    others = {text: texts[(place + 1) % len(texts)] for place, text in enumerate(texts)}
    targets = [
        ProbeTarget(item, right.get(item.id, ""), others.get(right.get(item.id, ""), ""), _find_example(task, item))
        for item in items
    ]
    return targets, [item for item in items if item.id not in right]


def _find_example(task: str, item: Item) -> str:
    try:
        return worked_example(task, item)[1]
    except (KeyError, ValueError, TypeError, PluginFault):
        return ""


def _count_unmet(task: str, items: Sequence[Item], unmet: Sequence[Item]) -> CheckOutcome | None:
    """Return a finding if half of a kind's items hold their value in a form that no answer equals."""
    every = Counter(item.kind for item in items)
    for form, change in _FORMS.items():
        changed = [(item, _change_form(item, change)) for item in unmet]
        tried = [(item, other, text) for item, other in changed if other.constraint != item.constraint
                 for _, _, text in _spell(item)]  # fmt: skip
        with suppress(PluginFault):
            verdicts = _passes(task, [(other, text) for _, other, text in tried])
            met = {item.id: item for (item, _, _), passed in zip(tried, verdicts, strict=True) if passed}
            kinds = Counter(item.kind for item in met.values())
            if half := [kind for kind, count in kinds.items() if 2 * count >= every[kind]]:
                message = f"'{task}' takes no value as right for {kinds[half[0]]} of {every[half[0]]} items of kind "
                message += f"'{half[0]}', so that no model can be right: it would if the items held them {form}, "
                message += "so convert what it compares"
                return CheckOutcome("FAIL", message, float(len(met)), repairable=False)
    return None


def _turn_digits(text: str) -> Sequence[str]:
    """Return a text of letters and digits with every digit turned into another one; none for other texts, or JSON."""
    mixed = any(map(str.isalpha, text)) and any(character in "0123456789" for character in text)
    return (text.translate(_TURNED),) if mixed and "{" not in text else ()


_TURNED = str.maketrans("0123456789", "5678901234")


def _swap_lookalikes(text: str) -> Sequence[str]:
    """Return a text with Cyrillic letters in the place of Latin ones; none where it has no such letter."""
    swapped = text.translate(_LOOKALIKES)
    return () if swapped == text else (swapped,)


_LOOKALIKES = str.maketrans("aceopxyABCEHKMOPTX", "асеорхуАВСЕНКМОРТХ")


def _list_attacks(task: str, items: Sequence[Item]) -> Iterator[Attack]:
    """Yield lists of all right answers, which are right for no item: the known ones, and the items' values by field."""
    columns: dict[str, dict[str, None]] = {}
    for item in items:
        for name, value in item.constraint.items():
            columns.setdefault(f"of '{name}'", {})[str(value)] = None
    with suppress(KeyError):
        columns["that it knows as right"] = dict.fromkeys(case.output for case in cases_of(task) if case.good)
    advice = f"naming them all passes; {_WHOLE_ANSWER}, instead of looking for the right one in it"
    for what, values in columns.items():
        if len(values) > 1:
            name = f"a list of the {len(values)} answers {what}"
            for separator in (" ", ", ", "\n"):
                yield Attack(name, _build_constants(separator.join(values)), advice)


def _values(item: Item) -> set[str]:
    return {str(value).casefold() for value in item.constraint.values()}


def _change_form(item: Item, change: Callable[[str | int], str | int]) -> Item:
    return item.model_copy(update={"constraint": {name: change(value) for name, value in item.constraint.items()}})


def probe_own_values(task: str, items: Sequence[Item]) -> CheckOutcome:
    """Ask a verifier that knows no right answer about what answers nothing, and about the values of its items.

    What it takes of the first, it takes of any model; where it breaks on all, or compares texts with numbers, no model
    can be right.

    Raises:
        EvidenceMissing: the list of items is empty.
    """
    if not items:
        raise EvidenceMissing(f"the verifier of '{task}' has no known answers: {WRITE_KNOWN}")
    for what, answers in (
        ("an empty answer", ["" for _ in items]),
        ("the prompt itself", [item.prompt for item in items]),
        ("another item's prompt", [item.prompt for item in (*items[1:], items[0])]),
        ("'I do not know.'", ["I do not know." for _ in items]),
        ("words without meaning", [_NONSENSE for _ in items]),
    ):
        passing = sum(_passes(task, list(zip(items, answers, strict=True))))
        if holds(Fraction(passing, len(items)), ">", MOST_ACCEPTED):
            message = f"'{task}' takes {what} as right for {passing} of {len(items)} items: {WRITE_KNOWN}"
            return CheckOutcome("FAIL", message, float(passing), repairable=False)
    tried = [(item, text) for item in items for _, _, text in _spell(item)]
    accepted = {item.id for (item, _), passed in zip(tried, _passes(task, tried), strict=True) if passed}
    if accepted:
        message = f"'{task}' has no known answers. It refuses what answers nothing, and takes a value of "
        message += f"{len(accepted)} of {len(items)} items; that it is the right one is not shown"
        return CheckOutcome("WARN", f"{message}: {WRITE_KNOWN}", 0.0)
    if fault := _fault_on_all(task, tried[:_MOST_TRIED]):
        message = f"'{task}' breaks on every answer that was tried, so that no model can be right: {fault}"
        return CheckOutcome("FAIL", message, 0.0, repairable=False)
    message = f"'{task}' has no known answers. It refuses what answers nothing, and {len(tried)} answers made of the "
    message += "values of its items too; that it takes what is right is not shown"
    return CheckOutcome("WARN", f"{message}: {WRITE_KNOWN}", 0.0)


_FORMS: dict[str, Callable[[str | int], str | int]] = {
    "as text instead of numbers": str,
    "in small letters": lambda value: value.casefold() if isinstance(value, str) else value,
    "in capital letters": lambda value: value.upper() if isinstance(value, str) else value,
    "without spaces around them": lambda value: value.strip() if isinstance(value, str) else value,
    "as numbers instead of text": lambda value: (
        int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value
    ),
}


def _spell(item: Item) -> Iterator[tuple[str, int, str]]:
    """Yield the values of an item in the forms in which verifiers look for one, by field and form; and as JSON."""
    for field, value in item.constraint.items():
        yield from ((field, place, spell(str(value))) for place, spell in enumerate(_SPELLINGS))
        yield field, len(_SPELLINGS), json.dumps({field: value}, ensure_ascii=False)
    yield "", 0, json.dumps(item.constraint, ensure_ascii=False)


def _fault_on_all(task: str, tried: Sequence[tuple[Item, str]]) -> str:
    """Return what a verifier raises, if it raises something on every answer; else an empty text."""
    judge, fault = verifier_of_right(task), ""
    for item, text in tried:
        try:
            judge(item, text)
        except PluginFault as error:
            fault = fault or str(error).replace("the known right answer ", "")
        else:
            return ""
    return fault


def _passes(task: str, pairs: Sequence[tuple[Item, str]]) -> list[bool]:
    return [verdict.passed for verdict in judge_answers(task, pairs)]
