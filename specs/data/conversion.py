"""Turns rows with the columns people have into items, examples and preferences.

The same rows always become the same bytes. Where ids and groups are missing they are made from the text, so that equal
prompts share a group and no split divides them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from specs.data.tables import Row
from specs.digests import Contract
from specs.errors import Problem
from specs.session.problems import printable
from specs.stages.artifacts import Example, Item, Preference, Taught, Turn

As = Literal["items", "examples", "preferences", "texts", "transcripts"]
"""What the rows of a data file are."""
Learned = Literal["last", "all"]
"""Which of the assistant's turns in ``messages`` are learned: the last, or each, as an example of its own."""
ITEM = frozenset(("id", "group", "kind", "prompt", "constraint"))
GIVEN = "given"
"""The kind of rows that name none."""
_GUESSED: tuple[tuple[frozenset[str], As], ...] = (
    (frozenset(("chosen", "rejected")), "preferences"),
    (frozenset(("messages",)), "examples"),
    (frozenset(("prompt", "completion")), "examples"),
    (frozenset(("prompt", "constraint")), "items"),
    (frozenset(("prompt", "answer")), "items"),
    (frozenset(("prompt",)), "items"),
    (frozenset(("text",)), "texts"),
)
UNDERSTOOD = "prompt and completion; messages; prompt, chosen and rejected; question and answer; prompt; or text"


class Wrong(Exception):
    """A row that cannot be converted: the column, what is wrong, what to do."""

    def __init__(self, column: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.column, self.message, self.hint = column, message, hint


class Converted(NamedTuple):
    """The rows of a data file in their registered form, or what is wrong with them."""

    held: As
    rows: list[Contract]
    problems: list[Problem]


def convert(path: Path, rows: Sequence[Row], held: As | None, learned: Learned = "last") -> Converted:
    """Convert every row of a file; ``held`` says what they are where the columns leave it open."""
    columns = set(rows[0].values) if rows else set[str]()
    known = held or _guess(columns)
    if known is None:
        named = printable(", ".join(sorted(columns))) or "none"
        hint = f"understood: {UNDERSTOOD}"
        if {"question", "answer"} <= columns:
            hint = "say what they are: `as: items` to ask and verify them, `as: examples` to train on them"
        line = rows[0].line if rows else 1
        return Converted("items", [], [Problem(str(path), line, 1, "", f"its columns are {named}", hint)])
    if learned == "all" and not (known == "examples" and "messages" in columns):
        texts = "there are no `messages`, of which every turn could be learned"
        return Converted(known, [], [Problem(str(path), rows[0].line, 1, "", texts, "remove `learned: all`")])
    seen: dict[str, int] = {}
    made: list[Contract] = []
    problems: list[Problem] = []
    for row in rows:
        try:
            for one in _made(known, row.values, learned):
                made.append(_told_apart(one, seen) if isinstance(one, Example | Item) else one)
        except Wrong as error:
            texts = (printable(one) for one in (error.column, error.message, error.hint))
            problems.append(Problem(str(path), row.line, 1, *texts))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            column = printable(str(first["loc"][0]) if first["loc"] else "")
            problems.append(Problem(str(path), row.line, 1, column, printable(str(first["msg"]))))
    if len(problems) == len(rows) > 1 and len({(one.keys, one.message, one.hint) for one in problems}) == 1:
        # The file's fault, not that of each row.
        columns = printable(", ".join(sorted({name for row in rows for name in row.values})))
        texts = f"{problems[0].message}, in all {len(rows)} rows; its columns are {columns}"
        problems = [replace(problems[0], message=texts)]
    return Converted(known, made, problems)


def lines_of(rows: Sequence[Contract]) -> bytes:
    """Return rows as they are registered and as jobs read them, one JSON object a line."""
    return b"".join(row.model_dump_json().encode() + b"\n" for row in rows)


def _guess(columns: set[str]) -> As | None:
    return next((held for needed, held in _GUESSED if needed <= columns), None)


def _told_apart(row: Example | Item, seen: dict[str, int]) -> Contract:
    """Give equal rows ids of their own: ``-2`` for the second."""
    id = row.item if isinstance(row, Example) else row.id
    seen[id] = seen.get(id, 0) + 1
    if seen[id] == 1:
        return row
    return row.model_copy(update={"item" if isinstance(row, Example) else "id": f"{id}-{seen[id]}"})


def _made(held: As, values: dict[str, Any], learned: Learned) -> list[Contract]:
    """Return what a row becomes: one, or an example for each turn of the assistant."""
    if held != "examples" or learned == "last" or "messages" not in values:
        return [_MAKE[held](values)]
    turns = _turns("messages", values["messages"], answered=True)
    places = [place for place, turn in enumerate(turns) if turn.role == "assistant"]
    return [_of_turns(values, turns[: place + 1]) for place in places]


def _item(values: dict[str, Any]) -> Item:
    if {"entry_point", "test"} <= values.keys():
        values = _problem(values)
    column = next((one for one in ("prompt", "question", "messages") if one in values), "prompt")
    before, prompt = _asked(values, column)
    own = {
        name: _plain(name, value)
        for name, value in values.items()
        if name not in (*ITEM, column, "before") and value is not None
    }
    constraint = values.get("constraint")
    if constraint is not None and not isinstance(constraint, dict):
        raise Wrong("constraint", f"a {type(constraint).__name__}, not an object")
    fields = {**own, **(constraint or {})}
    return Item(
        id=_text(values, "id") or f"i{_short(*_said_in(before), prompt, *map(str, fields.items()))}",
        group=_text(values, "group") or _group(_opening(before, prompt)),
        kind=_text(values, "kind") or GIVEN,
        prompt=prompt,
        constraint=fields,
        before=before,
    )


def _problem(values: dict[str, Any]) -> dict[str, Any]:
    """Return a problem with HumanEval's columns as ``code_eval`` reads it."""
    name, prompt = _needed(values, "entry_point"), _needed(values, "prompt")
    solution = values.get("canonical_solution")
    known = {"id": values.get("task_id"), "tests": f"{_needed(values, 'test')}\n\ncheck({name})\n"}
    known |= {"solution": f"{prompt}{solution}"} if solution is not None else {}
    rest = {key: one for key, one in values.items() if key not in ("task_id", "test", "canonical_solution")}
    return rest | known


def _read_text(values: dict[str, Any]) -> Item:
    text = _needed(values, "text")
    return Item(
        id=_text(values, "id") or f"t{_short(text)}",
        group=_text(values, "group") or _group(text),
        kind=_text(values, "kind") or GIVEN,
        prompt=text,
        constraint={},
    )


def _example(values: dict[str, Any]) -> Example:
    if "messages" in values:
        return _of_turns(values, _turns("messages", values["messages"], answered=True))
    if "question" in values and "prompt" not in values:
        return _as_example(values, (), _needed(values, "question"), _needed(values, "answer"))
    before, prompt = _asked(values, "prompt")
    return _as_example(values, before, prompt, _said(values, "completion"))


def _of_turns(values: dict[str, Any], turns: Sequence[Turn]) -> Example:
    *before, asked, said = turns
    return _as_example(values, tuple(before), asked.content, said.content)


def _as_example(values: dict[str, Any], before: tuple[Turn, ...], prompt: str, completion: str) -> Example:
    return Example(
        item=_text(values, "id") or f"e{_short(*_said_in(before), prompt, completion)}",
        group=_text(values, "group") or _group(_opening(before, prompt)),
        kind=_text(values, "kind") or GIVEN,
        sample=0,
        prompt=prompt,
        completion=completion,
        before=before,
    )


def _said_in(before: tuple[Turn, ...]) -> list[str]:
    return [turn.content for turn in before]


def _opening(before: tuple[Turn, ...], prompt: str) -> str:
    """Return the user's first turn: conversations that begin alike share a group."""
    return next((turn.content for turn in before if turn.role == "user"), prompt)


def _preference(values: dict[str, Any]) -> Preference:
    if "prompt" in values:
        before, prompt = _asked(values, "prompt")
        chosen, rejected = _said(values, "chosen"), _said(values, "rejected")
    else:
        # Whole conversations, which differ in their last turn only.
        *asked, said = _turns("chosen", values.get("chosen"), answered=True)
        *others, other = _turns("rejected", values.get("rejected"), answered=True)
        before, prompt = tuple(asked[:-1]), asked[-1].content
        chosen, rejected = said.content, other.content
        if others != asked:
            raise Wrong("rejected", "answers another prompt than `chosen`", "the two differ in their last turn only")
    if chosen == rejected:
        raise Wrong("rejected", "is the chosen response", "a pair needs two different ones")
    group = _text(values, "group") or _group(_opening(before, prompt))
    return Preference(
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
        group=group,
        source="given",
        before=before,
        taught=_taught(values.get("taught")),
    )


def _taught(value: Any) -> Taught | None:
    try:
        return None if value is None else Taught.model_validate_json(json.dumps(value))
    except (ValueError, TypeError) as error:
        raise Wrong("taught", "does not say whose outputs these are", "families, student") from error


_MAKE: dict[As, Callable[[dict[str, Any]], Contract]] = {
    "items": _item,
    "examples": _example,
    "preferences": _preference,
    "texts": _read_text,
}


def _asked(values: dict[str, Any], column: str) -> tuple[tuple[Turn, ...], str]:
    """Return a prompt, which is text or messages that end with the user's, after the turns before it."""
    if isinstance(values.get(column), list):
        *before, asked = _turns(column, values[column], answered=False)
    else:
        before, asked = [], Turn(role="user", content=_needed(values, column))
    if before and "before" in values:
        raise Wrong("before", f"`{column}` has earlier turns already", "give them once")
    if "before" in values:
        before = _turns("before", [*(values["before"] or ()), asked.model_dump()], answered=False)[:-1]
    return tuple(before), asked.content


def _said(values: dict[str, Any], column: str) -> str:
    """Return a response: text, or the assistant's message."""
    value = values.get(column)
    if not isinstance(value, list):
        return _needed(values, column)
    if len(value) != 1 or not isinstance(value[0], dict) or value[0].get("role") != "assistant":
        raise Wrong(column, "is not one turn of the assistant")
    return _needed(value[0], "content")


def _turns(column: str, messages: Any, *, answered: bool) -> list[Turn]:
    """Return the turns of a conversation: perhaps the system's, then user and assistant by turns.

    Where it is ``answered``, the assistant has the last one, else the user.
    """
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise Wrong(column, "is not a list of messages", 'such as [{"role": "user", "content": "…"}, …]')
    roles = [str(one.get("role")) for one in messages]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    due = ["user", "assistant"] * len(spoken)
    if spoken != due[: len(spoken)] or not spoken:
        hint = "user and assistant by turns, perhaps the system's turn before them"
        raise Wrong(column, f"its turns are {', '.join(roles)}" if roles else "there are no turns", hint)
    if answered != (spoken[-1] == "assistant"):
        if answered:
            raise Wrong(column, "the last turn is not the assistant's", "it is what the model learns to say")
        raise Wrong(column, "ends with the assistant's turn", "a prompt ends with the user's")
    return [Turn(role=one["role"], content=_needed(one, "content")) for one in messages]


def _needed(values: dict[str, Any], column: str) -> str:
    text = _text(values, column)
    if not text or not text.strip():
        raise Wrong(column, "is empty" if column in values else "is missing")
    return text


def _text(values: dict[str, Any], column: str) -> str:
    value = values.get(column)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Wrong(column, f"a {type(value).__name__}, not text")
    return str(value)


def _plain(name: str, value: Any) -> str | int:
    """Return a column of an item that its verifier may read."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return repr(value)
    raise Wrong(name, f"a {type(value).__name__}", "an item's own columns are text or numbers")


def _group(prompt: str) -> str:
    return f"g{_short(' '.join(prompt.casefold().split()))}"


def _short(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()[:12]
