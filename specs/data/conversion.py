"""Turns rows with the columns people have into items, examples and preferences.

The same rows always become the same bytes. Where ids and groups are missing they are made from the text, so that equal
prompts share a group and no split divides them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from specs.data.tables import Row
from specs.digests import Contract
from specs.errors import Problem
from specs.session.problems import printable
from specs.stages.artifacts import Example, Item, Preference

As = Literal["items", "examples", "preferences", "texts"]
"""What the rows of a data file are."""
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


def convert(path: Path, rows: Sequence[Row], held: As | None) -> Converted:
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
    seen: dict[str, int] = {}
    made: list[Contract] = []
    problems: list[Problem] = []
    for row in rows:
        try:
            one = _MAKE[known](row.values)
            made.append(_told_apart(one, seen) if isinstance(one, Example | Item) else one)
        except Wrong as error:
            told = (printable(one) for one in (error.column, error.message, error.hint))
            problems.append(Problem(str(path), row.line, 1, *told))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            column = printable(str(first["loc"][0]) if first["loc"] else "")
            problems.append(Problem(str(path), row.line, 1, column, printable(str(first["msg"]))))
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


def _item(values: dict[str, Any]) -> Item:
    column = "prompt" if "prompt" in values else "question"
    prompt = _prompt(values, column)
    own = {
        name: _plain(name, value) for name, value in values.items() if name not in (*ITEM, column) and value is not None
    }
    constraint = values.get("constraint")
    if constraint is not None and not isinstance(constraint, dict):
        raise Wrong("constraint", f"a {type(constraint).__name__}, not an object")
    fields = {**own, **(constraint or {})}
    return Item(
        id=_text(values, "id") or f"i{_short(prompt, *map(str, fields.items()))}",
        group=_text(values, "group") or _group(prompt),
        kind=_text(values, "kind") or GIVEN,
        prompt=prompt,
        constraint=fields,
    )


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
        prompt, completion = _turns("messages", values["messages"])
    elif "question" in values and "prompt" not in values:
        prompt, completion = _needed(values, "question"), _needed(values, "answer")
    else:
        prompt, completion = _prompt(values, "prompt"), _said(values, "completion")
    if not completion:
        raise Wrong("messages", "the last turn is not the assistant's", "it is what the model learns to say")
    return Example(
        item=_text(values, "id") or f"e{_short(prompt, completion)}",
        group=_text(values, "group") or _group(prompt),
        kind=_text(values, "kind") or GIVEN,
        sample=0,
        prompt=prompt,
        completion=completion,
    )


def _preference(values: dict[str, Any]) -> Preference:
    if "prompt" in values:
        prompt, chosen, rejected = _prompt(values, "prompt"), _said(values, "chosen"), _said(values, "rejected")
    else:
        # Whole conversations, which differ in their last turn only.
        prompt, chosen = _turns("chosen", values.get("chosen"))
        other, rejected = _turns("rejected", values.get("rejected"))
        if other != prompt:
            raise Wrong("rejected", "answers another prompt than `chosen`", "the two differ in their last turn only")
    if chosen == rejected:
        raise Wrong("rejected", "is the chosen response", "a pair needs two different ones")
    group = _text(values, "group") or _group(prompt)
    return Preference(prompt=prompt, chosen=chosen, rejected=rejected, group=group, source="given")


_MAKE: dict[As, Callable[[dict[str, Any]], Contract]] = {
    "items": _item,
    "examples": _example,
    "preferences": _preference,
    "texts": _read_text,
}


def _prompt(values: dict[str, Any], column: str) -> str:
    """Return a prompt: text, or messages that end with the user's."""
    if not isinstance(values.get(column), list):
        return _needed(values, column)
    prompt, answer = _turns(column, values[column])
    if answer:
        raise Wrong(column, "ends with the assistant's turn", "a prompt ends with the user's")
    return prompt


def _said(values: dict[str, Any], column: str) -> str:
    """Return a response: text, or the assistant's message."""
    value = values.get(column)
    if not isinstance(value, list):
        return _needed(values, column)
    if len(value) != 1 or not isinstance(value[0], dict) or value[0].get("role") != "assistant":
        raise Wrong(column, "is not one turn of the assistant")
    return _needed(value[0], "content")


def _turns(column: str, messages: Any) -> tuple[str, str]:
    """Return prompt and response of a conversation of one turn each; a system's turn goes before the user's."""
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise Wrong(column, "is not a list of messages", 'such as [{"role": "user", "content": "…"}, …]')
    roles = tuple(str(one.get("role")) for one in messages)
    if roles not in (("user",), ("user", "assistant"), ("system", "user"), ("system", "user", "assistant")):
        told = f"its turns are {', '.join(roles) or 'none'}"
        raise Wrong(column, told, "one turn of the user and one of the assistant, perhaps the system's before them")
    said = [_needed(one, "content") for one in messages]
    answer = said.pop() if roles[-1] == "assistant" else ""
    return "\n\n".join(said), answer


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
