"""Asks a verifier of the user's own about answers without labels: is it too kind, or is nothing ever right?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction

from reviews.checks.definition import CheckOutcome
from specs.stages.base.artifacts import Item
from specs.system.errors import EvidenceMissing, PluginFault
from specs.system.exact import holds
from training.rules.tasks import judge_answers, verifier_of_right
from training.rules.tasks.verifier_cases import cases_of

MOST_TAKEN = 0.2
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


def probe_wrong_answers(task: str, items: Sequence[Item]) -> CheckOutcome | None:
    """Ask a verifier about answers that are wrong for every item; None if it refuses them.

    Raises:
        PluginFault: it breaks on long answers, or takes longer than it may.
    """
    if not items:
        return None
    _passes(task, [(items[0], text) for text in _LONG])
    return _on_lists(task, items) or _on_no_numbers(task, items) or _on_more_digits(task, items)


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
        if _too_many(passing := sum(_passes(task, list(zip(items, answers, strict=True)))), len(items)):
            message = f"'{task}' takes {what} as right for {passing} of {len(items)} items: {WRITE_KNOWN}"
            return CheckOutcome("FAIL", message, float(passing), repairable=False)
    tried = [(item, text) for item in items for text in _spelled_values(item)]
    accepted = {item.id for (item, _), passed in zip(tried, _passes(task, tried), strict=True) if passed}
    if accepted:
        message = f"'{task}' has no known answers. It refuses what answers nothing, and takes a value of "
        message += f"{len(accepted)} of {len(items)} items; that it is the right one is not shown"
        return CheckOutcome("WARN", f"{message}: {WRITE_KNOWN}", 0.0)
    if fault := _fault_on_all(task, tried[:_MOST_TRIED]):
        message = f"'{task}' breaks on every answer that was tried, so that no model can be right: {fault}"
        return CheckOutcome("FAIL", message, 0.0, repairable=False)
    if fault := _never_equal(task, items):
        message = f"'{task}' takes no value of its items as right, so that no model can be right: {fault}"
        return CheckOutcome("FAIL", message, 0.0, repairable=False)
    message = f"'{task}' has no known answers. It refuses what answers nothing, and {len(tried)} answers made of the "
    message += "values of its items too; that it takes what is right is not shown"
    return CheckOutcome("WARN", f"{message}: {WRITE_KNOWN}", 0.0)


def _never_equal(task: str, items: Sequence[Item]) -> str:
    """Return how a verifier compares the values of its items with answers, where no answer can equal them.

    It then takes a value as right once the items hold it in another form: as text, or in small letters.
    """
    for form, change in _FORMS.items():
        changed = [
            item.model_copy(update={"constraint": {name: change(value) for name, value in item.constraint.items()}})
            for item in items
        ]
        pairs = zip(items, changed, strict=True)
        different = [other for item, other in pairs if other.constraint != item.constraint]
        tried = [(item, text) for item in different for text in _spelled_values(item)]
        with suppress(PluginFault):
            if any(_passes(task, tried)):
                return f"it would take them if the items held them {form}, so convert what it compares"
    return ""


_FORMS: dict[str, Callable[[str | int], str | int]] = {
    "as text instead of numbers": str,
    "in small letters": lambda value: value.casefold() if isinstance(value, str) else value,
    "in capital letters": lambda value: value.upper() if isinstance(value, str) else value,
    "without spaces around them": lambda value: value.strip() if isinstance(value, str) else value,
    "as numbers instead of text": lambda value: (
        int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value
    ),
}


def _spelled_values(item: Item) -> Iterator[str]:
    """Yield the values of an item in the forms in which verifiers look for one, and all of them as JSON."""
    for name, value in item.constraint.items():
        yield from (spell(str(value)) for spell in _SPELLINGS)
        yield json.dumps({name: value}, ensure_ascii=False)
    yield json.dumps(item.constraint, ensure_ascii=False)


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


def _too_many(part: int, count: int) -> bool:
    return holds(Fraction(part, count), ">", MOST_TAKEN)


def _on_lists(task: str, items: Sequence[Item]) -> CheckOutcome | None:
    """Ask a verifier about a list of all right answers, which is right for no item; None if it refuses such lists.

    Right answers are its known ones, or the values of the items, field by field.
    """
    columns: dict[str, dict[str, None]] = {}
    for item in items:
        for name, value in item.constraint.items():
            columns.setdefault(f"of '{name}'", {})[str(value)] = None
    with suppress(KeyError):
        columns["that it knows as right"] = dict.fromkeys(case.output for case in cases_of(task) if case.good)
    for what, values in columns.items():
        if len(values) < 2:
            continue
        for separator in (" ", ", ", "\n"):
            passing = sum(_passes(task, [(item, separator.join(values)) for item in items]))
            if _too_many(passing, len(items)):
                message = f"'{task}' takes a list of the {len(values)} answers {what} as right for {passing} of "
                message += f"{len(items)} items: naming them all passes; compare the whole answer or its last "
                message += "word with the right one, instead of looking for the right one in it"
                return CheckOutcome("FAIL", message, float(passing), repairable=False)
    return None


def _on_no_numbers(task: str, items: Sequence[Item]) -> CheckOutcome | None:
    """Ask a verifier about texts that parse as a number and are none; None if it takes them no more than a word."""
    for text, word in _NO_NUMBERS.items():
        others = [item for item in items if text.casefold() not in _values(item)]
        special, plain = (_passes(task, [(item, answer) for item in others]) for answer in (text, word))
        passing = sum(number and not control for number, control in zip(special, plain, strict=True))
        if others and _too_many(passing, len(others)):
            message = (
                f"'{task}' takes '{text}' as right for {passing} of {len(others)} items, and not '{word}': let it "
            )
            message += "refuse numbers that are not finite (`math.isfinite`)"
            return CheckOutcome("FAIL", message, float(passing), repairable=False)
    return None


def _values(item: Item) -> set[str]:
    return {str(value).casefold() for value in item.constraint.values()}


def _on_more_digits(task: str, items: Sequence[Item]) -> CheckOutcome | None:
    """Ask a verifier about whole numbers that hold the right one among more digits; None if it refuses them.

    A value of an item is its right answer where it passes, and the next number, twice the number and a word do not.
    """
    numbers = [(item, text) for item in items for text in _values(item) if _WHOLE.fullmatch(text)]
    forms = [_around(text) for _, text in numbers]
    verdicts = iter(
        _passes(task, [(item, text) for (item, _), form in zip(numbers, forms, strict=True) for text in form])
    )
    rows = [(item, text, [next(verdicts) for _ in form]) for (item, text), form in zip(numbers, forms, strict=True)]
    right = [row for row in rows if row[2][0] and not any(row[2][1:4])]
    for where, first in (("before", 4), ("after", 6)):
        passing = [(item, text) for item, text, passed in right if all(passed[first : first + 2])]
        if passing and _too_many(len(passing), len(right)):
            text = passing[0][1]
            message = (
                f"'{task}' takes numbers with more digits {where} the right one for {len(passing)} of {len(right)} "
            )
            message += f"items, such as '{_around(text)[first]}' for '{text}': compare whole numbers"
            return CheckOutcome("FAIL", message, float(len(passing)), repairable=False)
    return None


def _around(text: str) -> list[str]:
    """Return a whole number, three answers that are wrong in its place, and it with more digits before and after."""
    number = int(text)
    return [text, str(number + 1), str(2 * number), "lorem", f"1{text}", f"7{text}", f"{text}1", f"{text}7"]
