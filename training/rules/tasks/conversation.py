"""Conversations of several turns that code can judge: memory, preference, topic continuity, constraint update.

The item's prompt is the user's first turn; its constraint holds the later turns and what each answer must show:

- ``turn_2``, ``turn_3``, ...: the user's turns;
- ``require_3``: groups that the answer must hold, separated by ``;``, each group any of several words separated by
  ``|``: ``"blue; Lisbon|Lisboa"``;
- ``forbid_3``: words that the answer must not hold, separated by ``|``;
- ``most_words_3``: the largest number of words;
- ``form_3``: a form of ``format_instructions`` without values: lowercase, uppercase, quoted or title.

A turn without any of these passes if it is not empty. A conversation passes if every turn after the first does. Not
covered: whether an answer makes sense; a required word can be there by luck, which the control without history shows
(``history: none``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from specs.stages.base.artifacts import Item
from training.rules.seeded_order import file_order
from training.rules.tasks.format_instructions import KINDS as FORMS
from training.rules.tasks.format_instructions import Judgement

KINDS = ("memory", "preference", "continuity", "update")
_TURN = re.compile(r"turn_[2-9]")
_KEY = re.compile(r"(turn|require|forbid|most_words|form)_([2-9])")


class TurnRequirement(NamedTuple):
    """What the answer of one turn must show."""

    required: tuple[tuple[str, ...], ...] = ()
    forbidden: tuple[str, ...] = ()
    most_words: int | None = None
    form: str | None = None


def turns_of(item: Item) -> tuple[str, ...]:
    """Return the user's turns.

    Raises ValueError for an unknown key, a gap in the turns, an expectation without a turn, or if nothing could fail.
    """
    unknown = [key for key in item.constraint if not _KEY.fullmatch(key)]
    if unknown:
        raise ValueError(f"conversation '{item.id}': unknown key '{unknown[0]}'")
    numbers = sorted(int(key[5:]) for key in item.constraint if key.startswith("turn_"))
    if not numbers or numbers != list(range(2, numbers[-1] + 1)):
        raise ValueError(f"conversation '{item.id}' has the turns {numbers}, expected 2, 3, ... without a gap")
    expecting = {int(key[-1]) for key in item.constraint if not key.startswith("turn_")}
    if not expecting or not expecting <= set(numbers):
        raise ValueError(f"conversation '{item.id}' expects something of turns {sorted(expecting)}, it has {numbers}")
    return (item.prompt, *(str(item.constraint[f"turn_{number}"]) for number in numbers))


def expected_of(item: Item, turn: int) -> TurnRequirement:
    """Return what the answer of a turn (from 1) must show; raises ValueError for an unknown form or number."""
    constraint = item.constraint
    groups = tuple(_words(group, "|") for group in _words(str(constraint.get(f"require_{turn}", "")), ";"))
    most, form = constraint.get(f"most_words_{turn}"), constraint.get(f"form_{turn}")
    if most is not None and not isinstance(most, int):
        raise ValueError(f"conversation '{item.id}': most_words_{turn} is {most!r}, not a number")
    if form is not None and (form not in FORMS or FORMS[str(form)].values != ({},)):
        raise ValueError(f"conversation '{item.id}': '{form}' is not a form without values")
    return TurnRequirement(
        groups, _words(str(constraint.get(f"forbid_{turn}", "")), "|"), most, None if form is None else str(form)
    )


def judge_turn(item: Item, turn: int, output: str) -> Judgement:
    """Judge one answer; the first must only be non-empty; raises ValueError as :func:`expected_of`."""
    text = output.strip()
    if not text:
        return Judgement(False, "is empty")
    if turn < 2:
        return Judgement(True)
    pending = expected_of(item, turn)
    missing = [group for group in pending.required if not any(_holds(text, word) for word in group)]
    if missing:
        return Judgement(False, f"does not hold {' or '.join(missing[0])}")
    used = [word for word in pending.forbidden if _holds(text, word)]
    if used:
        return Judgement(False, f"holds {used[0]}")
    words = len(re.findall(r"\w+", text))
    if pending.most_words is not None and words > pending.most_words:
        return Judgement(False, f"has {words} words, at most {pending.most_words} are asked for")
    wrong = FORMS[pending.form].verify({}, text) if pending.form else ""
    return Judgement(not wrong, wrong)


def judge(item: Item, outputs: tuple[str, ...]) -> tuple[Judgement, ...]:
    """Judge every turn after the first; raises ValueError as :func:`turns_of`, or if an answer is missing."""
    turns = turns_of(item)
    if len(outputs) != len(turns):
        raise ValueError(f"conversation '{item.id}' has {len(turns)} turns and {len(outputs)} answers")
    return tuple(judge_turn(item, number, output) for number, output in enumerate(outputs[1:], 2))


def verify(item: Item, output: str) -> Judgement:
    """Judge an answer to the second turn, as known answers are; raises ValueError as :func:`expected_of`."""
    return judge_turn(item, 2, output)


def user_turns_of(item: Item) -> tuple[str, ...]:
    """Return all of the user's texts: the item's prompt and, of a conversation, the later turns."""
    later = sorted(key for key in item.constraint if _TURN.fullmatch(key))
    return (item.prompt, *(str(item.constraint[key]) for key in later))


def answers_to(item: Item) -> tuple[str, ...]:
    """Return an answer to each turn made only from what the item expects; raises ValueError as :func:`turns_of`."""
    return tuple(_answer(expected_of(item, number)) for number in range(1, len(turns_of(item)) + 1))


def reveals(item: Item, text: str) -> bool:
    """Return whether a text holds a word that a later answer of the conversation must hold."""
    pending = (expected_of(item, number) for number in range(2, len(turns_of(item)) + 1))
    return any(_holds(text, word) for value in pending for group in value.required for word in group)


def _answer(pending: TurnRequirement) -> str:
    """Return the required words, each group's first that is not forbidden, in the expected form."""
    banned = {word.casefold() for word in pending.forbidden}
    chosen = [next((word for word in group if word.casefold() not in banned), group[0]) for group in pending.required]
    text = " and ".join(chosen) or "Well"
    return text if pending.form is None else _IN_FORM[pending.form](text)


_IN_FORM: dict[str, Callable[[str], str]] = {
    "lowercase": str.lower,
    "uppercase": str.upper,
    "quoted": lambda text: f'"{text}"',
    "title": lambda text: f"<<Answer>>\n{text}",
}


def _words(text: str, mark: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(mark) if word.strip())


def _holds(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


def donors(items: Sequence[Item], seed: int) -> list[tuple[int, ...]]:
    """Return for each conversation, for every turn but the last, the place of the conversation whose turn replaces it.

    A donor is another conversation of another kind with as many turns, is not yet a donor of this one, and its user
    does not say in that turn what this one asks for. The seed decides where the search begins. Raises ValueError if
    there is none.
    """
    turns = [turns_of(item) for item in items]
    order = sorted(range(len(items)), key=lambda place: file_order(items[place].id, seed))
    counts: list[tuple[int, ...]] = []
    for place, item in enumerate(items):
        chosen: list[int] = []
        for number in range(len(turns[place]) - 1):
            start = int(file_order(f"{item.id}/{number}", seed), 16) % len(order)
            able = (
                other
                for other in (*order[start:], *order[:start])
                if items[other].kind != item.kind
                and number < len(turns[other])
                and other not in chosen
                and not reveals(item, turns[other][number])
            )
            donor = next(able, None)
            if donor is None:
                raise ValueError(f"conversation '{item.id}': no other kind has a turn {number + 1} to show instead")
            chosen.append(donor)
        counts.append(tuple(chosen))
    return counts
