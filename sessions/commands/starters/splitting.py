"""Divides a person's rows into held-out items and rows to train on: the design gate finds none on both sides."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, cast

from reviews.checks.leakage_checks import near_repeats_of, question_text_of, repeats_of, texts_of
from reviews.evidence.text_overlap import find_overlaps
from reviews.statistics.mcnemar import LEAST_GROUPS
from specs.data.columns import READS, RIGHT_ANSWER, VERDICTS, WEIGHTS, is_learned
from specs.data.conversion import Conversion, right_answers
from specs.data.tables import TableRow
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import Example, Item, Preference, earlier_turn_texts
from specs.system.errors import UserError
from specs.system.text import plural

HELD_OUT_SHARE = 3
"""One prompt of so many is held out, if that is enough."""
FEWEST, MOST = 30, 200
"""Held-out items: at least, where half of the prompts are as many, and at most."""
_ROUNDS = 4
"""How often prompts that are near to others are replaced by other ones, before rows are left out instead."""
_LIMITS = Thresholds()


class DataSplit(NamedTuple):
    """The rows of a file on two sides."""

    row_kind: Literal["items", "examples", "preferences"]
    heldout: list[dict[str, Any]]
    train: list[dict[str, Any]]
    prompts: list[dict[str, Any]]
    """The different prompts of ``train``."""
    posed: list[dict[str, Any]]
    """The same as items, with what a verifier reads."""
    common: float
    """Share of the held-out items for which one answer is right, the most common one."""
    notes: tuple[str, ...]
    """What became of rows that are on neither side, and of answers and kinds, in words."""

    @property
    def own_answers(self) -> bool:
        """Return whether every held-out item names its right answer."""
        return all("answer" in row for row in self.heldout)

    @property
    def repeated_share(self) -> float:
        """Share of the rows of ``train`` whose prompt repeats that of another."""
        return 1 - len(self.prompts) / len(self.train) if self.train else 0.0


class _Pair(NamedTuple):
    """A row and what it became."""

    row: TableRow
    made: Item | Example | Preference

    def key(self) -> tuple[str, ...]:
        """Return the prompt, with the turns before it."""
        return (*earlier_turn_texts(self.made), self.made.prompt)


def split_rows(
    converted: Conversion, wanted: int | None = None, *, trains: bool = True, verified: bool = False
) -> DataSplit:
    """Divide converted rows by group; ``wanted`` items are held out, if ``trains`` of half of the groups at most.

    Where a verifier judges (``verified``), held-out items keep the other columns of their rows.

    A prompt that is near to others, as the design gate counts it, is rather trained on. Where there are too few others,
    rows that are near to a held-out prompt are left out, and counted.

    Raises:
        UserError: the groups are too few to divide.
    """
    pairs, notes = _without_repeats([_Pair(row, cast(Any, made)) for row, made in converted.made])
    groups: dict[str, list[_Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.made.group, []).append(pair)
    order = sorted(groups, key=lambda name: hashlib.sha256(name.encode()).digest())
    ordered = {name: groups[name] for name in order}
    if trains:
        _require_groups(ordered)
    count = len({pair.key() for pair in pairs})
    wanted = wanted or max(min(count // HELD_OUT_SHARE, MOST), min(FEWEST, count // 2))
    chosen, near = _choose(ordered, wanted) if trains else (list(ordered), set[int]())
    held_out = [_by_prompt(ordered[name]) for name in chosen]
    sides = _different(list(chain.from_iterable(held_out)), notes)[: None if trains else wanted]
    others = [pair for name in ordered if name not in chosen for pair in ordered[name]]
    train = [pair for pair in others if pair.row.line not in near]
    if left_out := len(others) - len(train):
        notes.append(f"{left_out} of {len(converted.made)} rows nearly repeat a held-out prompt, and are left out")
    heldout = [_item_row(rows, verified) for rows in sides]
    if several := sum("answer_2" in row for row in heldout):
        notes.append(f"{several} of {len(heldout)} held-out prompts have several right answers: each of them counts")
    answers = Counter(answer for row in heldout for answer in {str(row[name]) for name in row if _is_answer(name)})
    return DataSplit(
        cast(Any, converted.row_kind),
        _with_kinds(heldout, notes),
        [_trained_row(pair) for pair in train],
        [_prompt_of(rows[0].made) for rows in _by_prompt(train)],
        [_item_row(rows, verified) for rows in _by_prompt(train)],
        max(answers.values(), default=0) / len(heldout) if heldout else 0.0,
        tuple(notes),
    )


def _without_repeats(pairs: list[_Pair]) -> tuple[list[_Pair], list[str]]:
    """Return the rows that say something new, and a note on how many others there are."""
    different: dict[str, _Pair] = {}
    for pair in pairs:
        values = pair.made.model_dump(mode="json")
        different.setdefault(json.dumps({**values, "id": None, "item": None}, sort_keys=True), pair)
    count = len(pairs) - len(different)
    note = f"{count} of {len(pairs)} rows repeat another word for word: one of each is kept"
    return list(different.values()), [note] if count else []


def _require_groups(groups: dict[str, list[_Pair]]) -> None:
    """Refuse rows of which several share a group, where there are too few groups for two sides."""
    if len(groups) < 2 * LEAST_GROUPS and any(len(_by_prompt(pairs)) > 1 for pairs in groups.values()):
        message = f"the rows are of {len(groups)} groups, and each of the two parts needs {LEAST_GROUPS}"
        hint = "a column `group` says which rows belong together; without it, conversations that begin alike do"
        raise UserError(message, hint=hint)


def _by_prompt(pairs: Iterable[_Pair]) -> list[list[_Pair]]:
    prompts: dict[tuple[str, ...], list[_Pair]] = {}
    for pair in pairs:
        prompts.setdefault(pair.key(), []).append(pair)
    return list(prompts.values())


def _choose(groups: dict[str, list[_Pair]], wanted: int) -> tuple[list[str], set[int]]:
    """Return the groups that are held out, and the lines of other rows that are too near to be trained on."""
    blocked: dict[str, set[int]] = {}
    for _ in range(_ROUNDS):
        candidates = _first(groups, [name for name in groups if name not in blocked], wanted)
        near = _near(groups, candidates)
        if not near and _counts(groups, candidates, wanted):
            return candidates, set()
        blocked |= near
        if not near:
            break
    candidates = _first(groups, [*(name for name in groups if name not in blocked), *blocked], wanted)
    return candidates, set[int]().union(*_near(groups, candidates).values())


def _first(groups: dict[str, list[_Pair]], names: Sequence[str], wanted: int) -> list[str]:
    """Return the first groups that have the wanted prompts together, half of all groups at most."""
    chosen: list[str] = []
    for name in names[: max(1, len(groups) // 2)]:
        if _counts(groups, chosen, wanted):
            break
        chosen.append(name)
    return chosen


def _counts(groups: dict[str, list[_Pair]], chosen: Sequence[str], wanted: int) -> bool:
    sizes = [len(_by_prompt(groups[name])) for name in chosen]
    return sum(sizes) >= wanted and (len(chosen) >= LEAST_GROUPS or set(sizes) == {1})


def _near(groups: dict[str, list[_Pair]], chosen: Sequence[str]) -> dict[str, set[int]]:
    """Return, for each chosen group that is near to rows of others that are not chosen, the lines of those rows."""
    heldout = [
        (name, text)
        for name in chosen
        for pair in groups[name]
        for text in texts_of(_as_item(pair.made), _LIMITS.contained_words)
    ]
    names = frozenset(chosen)
    others = [
        (str(pair.row.line), text)
        for name, pairs in groups.items()
        if name not in names
        for pair in pairs
        for text in _training_texts(pair.made)
    ]
    near: dict[str, set[int]] = {}
    for overlap in find_overlaps(others, heldout, reordered=True):
        if overlap.how != "reordered":
            near.setdefault(overlap.heldout, set()).add(int(overlap.train))
    return near


def _training_texts(made: Item | Example | Preference) -> list[str]:
    """Return the texts of a row that training may read."""
    match made:
        case Example():
            answers = [made.completion]
        case Preference():
            answers = [made.chosen, made.rejected]
        case _:
            answers = []
    return list(dict.fromkeys([made.prompt, question_text_of(made), *earlier_turn_texts(made), *answers]))


def _different(held_out: list[list[_Pair]], notes: list[str]) -> list[list[_Pair]]:
    """Return the held-out prompts without duplicates that are judged by the same answer."""
    texts = [(str(place), question_text_of(rows[0].made)) for place, rows in enumerate(held_out)]
    judged = {str(place): _judged_by(rows) for place, rows in enumerate(held_out)}
    again = {overlap.train for overlap in repeats_of(texts)}
    again |= {
        overlap.train
        for overlap in near_repeats_of(texts, _LIMITS)
        if judged[overlap.train] == judged[overlap.heldout] and overlap.heldout not in again
    }
    if again:
        notes.append(f"{plural(len(again), 'near repeat')} of held-out prompts left out")
    return [rows for place, rows in enumerate(held_out) if str(place) not in again]


def _judged_by(rows: list[_Pair]) -> dict[str, Any]:
    return {name: value for name, value in _item_row(rows).items() if name not in ("prompt", "before", "group")}


def _as_item(made: Item | Example | Preference) -> Item:
    return Item(id="", group=made.group, kind="", prompt=made.prompt, constraint={}, before=made.before)


def _item_row(rows: list[_Pair], verified: bool = False) -> dict[str, Any]:
    """Return the prompt and what a verifier may read: the right answers of all, and the first row's columns."""
    row, made = rows[0]
    known = READS["items"] | READS["examples"] | READS["preferences"] | {*VERDICTS, *WEIGHTS}
    own: dict[str, Any] = {
        name: value
        for name, value in row.values.items()
        if verified and name not in known and not _is_answer(name) and isinstance(value, str | int)
    }
    if isinstance(made, Item):
        own = {name: value for name, value in made.constraint.items() if not _is_answer(name)}
    answers = dict.fromkeys(answer for pair in rows for answer in _answers(pair))
    extra = {name: row.values[name] for name in ("group", "kind") if name in row.values}
    return {**_prompt_of(made), **_number_answers(answers), **own, **extra}


def _answers(pair: _Pair) -> list[str | int]:
    """Return the right answers of a row."""
    match pair.made:
        case Item():
            return [value for name, value in pair.made.constraint.items() if _is_answer(name)]
        case Example():
            return [*right_answers(pair.row.values), pair.made.completion]
        case Preference():
            return [pair.made.chosen]


def _is_answer(name: str) -> bool:
    return RIGHT_ANSWER.fullmatch(name) is not None


def _number_answers(answers: Iterable[str | int]) -> dict[str, str | int]:
    return {f"answer_{place}" if place > 1 else "answer": answer for place, answer in enumerate(answers, 1)}


def _with_kinds(rows: list[dict[str, Any]], notes: list[str]) -> list[dict[str, Any]]:
    """Return the items, without kinds that have too few items for a separate result."""
    kinds = Counter(str(row["kind"]) for row in rows if "kind" in row)
    if not kinds or (min(kinds.values()) >= _LIMITS.items_per_kind and sum(kinds.values()) == len(rows)):
        return rows
    rarest = min(kinds, key=lambda name: kinds[name])
    least = f"'{rarest}' has {kinds[rarest]} held-out items, {_LIMITS.items_per_kind} are needed"
    notes.append(f"kinds are not compared one by one: {least}")
    return [{name: value for name, value in row.items() if name != "kind"} for row in rows]


def _trained_row(pair: _Pair) -> dict[str, Any]:
    """Return a row to train on, with the columns that are read."""
    row, made = pair
    extra = {name: row.values[name] for name in ("id", "group", "kind", "taught") if name in row.values}
    match made:
        case Example():
            if not made.before:
                return {**_prompt_of(made), "completion": made.completion, **extra}
            turns: list[dict[str, Any]] = [*_prompt_of(made)["before"], {"role": "user", "content": made.prompt}]
            turns.append({"role": "assistant", "content": made.completion})
            # Kept for `learned: all`: a turn that is not learned stays one.
            for turn, message in zip(reversed(turns), reversed(row.values.get("messages", ())), strict=False):
                if is_learned(message, ()) is False:
                    turn["weight"] = 0
            return {"messages": turns, **extra}
        case Preference():
            return {**_prompt_of(made), "chosen": made.chosen, "rejected": made.rejected, **extra}
        case Item():
            return {**_prompt_of(made), **made.constraint, **extra}


def _prompt_of(made: Item | Example | Preference) -> dict[str, Any]:
    before = {"before": [turn.model_dump() for turn in made.before]} if made.before else {}
    return {"prompt": made.prompt, **before}
