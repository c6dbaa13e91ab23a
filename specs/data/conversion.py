"""Turns rows with the columns people have into items, examples and preferences.

The same rows always become the same bytes. Where ids and groups are missing they are made from the text, so that equal
prompts share a group and no split divides them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from specs.data.columns import (
    NO_SELECTION,
    Selection,
    SkippedRow,
    Wrong,
    ignored_columns,
    is_right_answer,
    proposal,
    require_honoured,
)
from specs.data.conversation import read_prompt, read_response, read_turns, require_text, text_of
from specs.data.tables import TableRow, of_the_file
from specs.stages.base.artifacts import As, DialogueTurn, Example, Item, Learned, Preference, Taught
from specs.system.digests import Contract
from specs.system.errors import Problem
from specs.system.text import plural
from specs.system.yaml.problems import printable

ITEM = frozenset(("id", "group", "kind", "prompt", "constraint"))
UNNAMED_KIND = "given"
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


class Conversion(NamedTuple):
    """The rows of a data file in their registered form, or what is wrong with them."""

    row_kind: As
    made: list[tuple[TableRow, Contract]]
    """Each row of the file, by the names under which it is read, and what it became."""
    problems: list[Problem]
    notes: tuple[str, ...] = ()
    """What of the file is ignored or left out, in words."""

    @property
    def rows(self) -> list[Contract]:
        """The rows in their registered form."""
        return [row for _, row in self.made]


def convert(
    path: Path,
    rows: Sequence[TableRow],
    current: As | None,
    learned: Learned = "last",
    selection: Selection = NO_SELECTION,
) -> Conversion:
    """Convert every row of a file; ``current`` says what they are where the columns leave it open."""
    line = rows[0].line if rows else 1
    if faults := selection.faults(current, {name for row in rows for name in row.values}):
        problems = [Problem(str(path), line, 1, "columns", printable(message)) for message in faults]
        return Conversion(current or "items", [], problems)
    rows = [TableRow(row.line, selection.select(row.values)) for row in rows]
    columns = {name for row in rows for name in row.values}
    known = current or _guess(columns)
    if known is None:
        named = printable(", ".join(sorted(columns))) or "none"
        return Conversion("items", [], [Problem(str(path), line, 1, "", f"its columns are {named}", _unknown(columns))])
    if learned == "all" and not (known == "examples" and "messages" in columns):
        message = "there are no `messages`, of which every turn could be learned"
        return Conversion(known, [], [Problem(str(path), line, 1, "", message, "remove `learned: all`")])
    used: set[str] = set()
    made: list[tuple[TableRow, Contract]] = []
    problems: list[Problem] = []
    left_out: Counter[str] = Counter()
    for row in rows:
        try:
            contracts = _convert_row(known, row.values, learned, selection.drop)
            require_honoured(known, row.values)
            for contract in contracts:
                made.append(
                    (row, _with_unique_id(contract, used) if isinstance(contract, Example | Item) else contract)
                )
        except SkippedRow as reason:
            left_out[str(reason)] += 1
        except Wrong as error:
            texts = (printable(text) for text in (error.column, error.message, error.hint))
            problems.append(Problem(str(path), row.line, 1, *texts))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            column = printable(str(first["loc"][0]) if first["loc"] else "")
            problems.append(Problem(str(path), row.line, 1, column, printable(str(first["msg"]))))
    notes = [
        f"{count} of {plural(len(rows), 'row is', 'rows are')} left out: {reason}"
        for reason, count in sorted(left_out.items())
    ]
    if not made and not problems:
        message = f"no row is left: {'; '.join(notes)}"
        problems.append(Problem(str(path), line, 1, "", message, "every row is marked as not to be learned"))
    if names := ignored_columns(known, [row.values for row in rows]):
        notes.append(f"ignored: {', '.join(names)}")
    if selection.drop:
        notes.append(f"dropped: {', '.join(map(printable, selection.drop))}")
    missing = bool(problems) and problems[0].message == "is missing" and proposal(columns)
    named = f"; its columns are {printable(', '.join(sorted(columns)))}"
    problems = of_the_file(problems, len(rows), named, f"if they mean that: {missing}" if missing else "")
    return Conversion(known, made, problems, tuple(notes))


def _unknown(columns: set[str]) -> str:
    """Return what to do about rows whose columns do not say what they are."""
    if "question" in columns and columns & {"answer", "answers"}:
        return "say what they are: `as: items` to ask and verify them, `as: examples` to train on them"
    likely = proposal(columns)
    if likely:
        return f"if they mean that: {likely}; understood: {UNDERSTOOD}"
    return f"say which is which: --columns prompt=NAME,completion=NAME, or columns: in a spec; understood: {UNDERSTOOD}"


def lines_of(rows: Sequence[Contract]) -> bytes:
    """Return rows as they are registered and as jobs read them, one JSON object a line."""
    return b"".join(row.model_dump_json().encode() + b"\n" for row in rows)


def _guess(columns: set[str]) -> As | None:
    current: As | None = next((current for needed, current in _GUESSED if needed <= columns), None)
    # A text next to columns that look like question and answer is a copy of both, as in Alpaca's rows.
    return None if current == "texts" and proposal(columns) else current


def _with_unique_id(row: Example | Item, used: set[str]) -> Contract:
    """Give equal rows different ids: ``-2`` for the second."""
    field = "item" if isinstance(row, Example) else "id"
    id = name = str(getattr(row, field))
    number = 1
    while name in used:
        number += 1
        name = f"{id}-{number}"
    used.add(name)
    return row if name == id else row.model_copy(update={field: name})


def _convert_row(current: As, values: dict[str, Any], learned: Learned, drop: tuple[str, ...]) -> list[Contract]:
    """Return what a row becomes: one, or an example for each turn of the assistant."""
    if current != "examples" or "messages" not in values:
        return [_MAKE[current](values, drop)]
    turns, weights = read_turns(values, "messages", values["messages"], drop, answered=True)
    places = [place for place, turn in enumerate(turns) if turn.role == "assistant"]
    places = [place for place in (places if learned == "all" else places[-1:]) if weights[place] is not False]
    if not places:
        raise SkippedRow("the weights exclude every turn from training")
    return [_of_turns(values, turns[: place + 1]) for place in places]


def _item(values: dict[str, Any], drop: tuple[str, ...]) -> Item:
    if {"entry_point", "test"} <= values.keys():
        values = _problem(values)
    column = next((value for value in ("prompt", "question", "messages") if value in values), "prompt")
    before, prompt = read_prompt(values, column, drop)
    passed = (*ITEM, column, "before", "system", "system_prompt", "answer", "answers")
    own = {name: _plain(name, value) for name, value in values.items() if name not in passed and value is not None}
    constraint = values.get("constraint")
    if constraint is not None and not isinstance(constraint, dict):
        raise Wrong("constraint", f"a {type(constraint).__name__}, not an object")
    fields = {**_answers(values), **own, **(constraint or {})}
    return Item(
        id=text_of(values, "id") or f"i{_short(*_contents_of(before), prompt, *map(str, fields.items()))}",
        group=text_of(values, "group") or _group(_opening(before, prompt)),
        kind=text_of(values, "kind") or UNNAMED_KIND,
        prompt=prompt,
        constraint=fields,
        before=before,
    )


def _answers(values: dict[str, Any]) -> dict[str, str | int]:
    """Return the right answers of an item by the names that its verifier reads, in the order of the row."""
    value = values.get("answer")
    if value is not None and not isinstance(value, list | dict) and values.get("answers") is None:
        return {"answer": _plain("answer", value)}
    return {f"answer_{place}" if place > 1 else "answer": text for place, text in enumerate(right_answers(values), 1)}


def right_answers(values: dict[str, Any]) -> list[str]:
    """Return the right answers that a row names: text, lists of it (``answer: [6, six]``), or SQuAD's ``answers``.

    Raises:
        Wrong: one is not text or number.
    """
    texts: list[str] = []
    for name, value in values.items():
        if not is_right_answer(name):
            continue
        if isinstance(value, dict):
            value = value.get("text", value.get("value"))
        for answer in value if isinstance(value, list) else [value]:
            if text := text_of({name: answer}, name).strip():
                texts.append(text)
    return list(dict.fromkeys(texts))


def _problem(values: dict[str, Any]) -> dict[str, Any]:
    """Return a problem with HumanEval's columns as ``code_eval`` reads it."""
    name, prompt = require_text(values, "entry_point"), require_text(values, "prompt")
    solution = values.get("canonical_solution")
    known = {"id": values.get("task_id"), "tests": f"{require_text(values, 'test')}\n\ncheck({name})\n"}
    known |= {"solution": f"{prompt}{solution}"} if solution is not None else {}
    rest = {key: value for key, value in values.items() if key not in ("task_id", "test", "canonical_solution")}
    return rest | known


def _read_text(values: dict[str, Any], _: tuple[str, ...]) -> Item:
    text = require_text(values, "text")
    return Item(
        id=text_of(values, "id") or f"t{_short(text)}",
        group=text_of(values, "group") or _group(text),
        kind=text_of(values, "kind") or UNNAMED_KIND,
        prompt=text,
        constraint={},
    )


def _example(values: dict[str, Any], drop: tuple[str, ...]) -> Example:
    column = "prompt" if "prompt" in values or "question" not in values else "question"
    before, prompt = read_prompt(values, column, drop)
    if "completion" in values or not ("question" in values or any(map(is_right_answer, values))):
        return _as_example(values, before, prompt, read_response(values, "completion", drop))
    answers = right_answers(values)
    if not answers:
        raise Wrong("answer", "is empty" if any(map(is_right_answer, values)) else "is missing")
    return _as_example(values, before, prompt, answers[0])


def _of_turns(values: dict[str, Any], turns: Sequence[DialogueTurn]) -> Example:
    *before, turn, reported_turn = turns
    return _as_example(values, tuple(before), turn.content, reported_turn.content)


def _as_example(values: dict[str, Any], before: tuple[DialogueTurn, ...], prompt: str, completion: str) -> Example:
    return Example(
        item=text_of(values, "id") or f"e{_short(*_contents_of(before), prompt, completion)}",
        group=text_of(values, "group") or _group(_opening(before, prompt)),
        kind=text_of(values, "kind") or UNNAMED_KIND,
        sample=0,
        prompt=prompt,
        completion=completion,
        before=before,
    )


def _contents_of(before: tuple[DialogueTurn, ...]) -> list[str]:
    return [turn.content for turn in before]


def _opening(before: tuple[DialogueTurn, ...], prompt: str) -> str:
    """Return the user's first turn: conversations that begin alike share a group."""
    return next((turn.content for turn in before if turn.role == "user"), prompt)


def _preference(values: dict[str, Any], drop: tuple[str, ...]) -> Preference:
    column = next((name for name in ("prompt", "question") if name in values), None)
    if column is None or (isinstance(values.get("chosen"), list) and len(values["chosen"]) > 1):
        # Whole conversations, which differ in their last turn only.
        if column is None and isinstance(values.get("chosen"), str):
            hint = 'a column `prompt`; or whole conversations, [{"role": "user", "content": "…"}, …]'
            raise Wrong("chosen", "is text, but the row has no prompt", hint)
        (*turns, turn), _ = read_turns(values, "chosen", values.get("chosen"), drop, answered=True)
        (*others, other), _ = read_turns(values, "rejected", values.get("rejected"), drop, answered=True)
        before, prompt = tuple(turns[:-1]), turns[-1].content
        chosen, rejected = turn.content, other.content
        if others != turns:
            raise Wrong("rejected", "answers another prompt than `chosen`", "the two differ in their last turn only")
        users = {turn.content.strip() for turn in turns if turn.role == "user"}
        if column is not None and isinstance(values[column], str) and values[column].strip() not in users:
            raise Wrong(column, "is not a turn of the conversation in `chosen`", "omit one of the two")
    else:
        before, prompt = read_prompt(values, column, drop)
        chosen, rejected = (read_response(values, name, drop) for name in ("chosen", "rejected"))
    if chosen == rejected:
        raise Wrong("rejected", "is the chosen response", "a pair needs two different ones")
    if chosen.split() == rejected.split():
        raise Wrong("rejected", "is the chosen response, but for white space", "a pair needs two different ones")
    group = text_of(values, "group") or _group(_opening(before, prompt))
    taught = _taught(values.get("taught"))
    return Preference(
        prompt=prompt, chosen=chosen, rejected=rejected, group=group, source="given", before=before, taught=taught
    )


def _taught(value: Any) -> Taught | None:
    try:
        return None if value is None else Taught.model_validate_json(json.dumps(value))
    except (ValueError, TypeError) as error:
        raise Wrong("taught", "does not say whose outputs these are", "families, student") from error


_Maker = Callable[[dict[str, Any], tuple[str, ...]], Contract]
_MAKE: dict[As, _Maker] = {"items": _item, "examples": _example, "preferences": _preference, "texts": _read_text}


def _plain(name: str, value: Any) -> str | int:
    """Return a column of an item that its verifier may read."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return repr(value)
    hint = f"an item's own columns are text or numbers; `drop: [{name}]` (init: --drop {name}) to pass over it"
    raise Wrong(name, f"a {type(value).__name__}", hint)


def _group(prompt: str) -> str:
    return f"g{_short(' '.join(prompt.casefold().split()))}"


def _short(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()[:12]
