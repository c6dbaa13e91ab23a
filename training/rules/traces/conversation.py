"""Puts records in their place: turns in the order of the file, with branches where someone went back.

``parentUuid`` is not a chain of turns: a model that calls three tools leaves three forks, and walking back from the
last record loses half of them. It is read for two things alone: which conversation a record belongs to, and whether a
person asked something else at a place where they had asked before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from specs.traces.turn import Lines, Part, TextPart, ToolResultPart, ToolUse, TraceTurn
from training.rules.traces.record_kinds import (
    PartMaker,
    is_boundary,
    join_part,
    list_preserved_records,
    message_key,
    queued_prompt,
    user_kind,
)

Where = tuple[str, int]
Lineage = dict[str, Any]
"""What is kept of a record that is not part of a conversation."""
_RECORD_FIELDS = ("uuid", "parentUuid", "logicalParentUuid", "sessionId", "agentId", "isSidechain")
_UNKNOWN = "?"
"""Stands for the turn before a record whose parent no file holds."""


def lineage(record: dict[str, Any]) -> Lineage:
    """Return what is needed of a record that is not part of a conversation: what comes after it may name it."""
    known = {name: record[name] for name in _RECORD_FIELDS if name in record}
    return known | {"boundary": is_boundary(record), "preserved": list_preserved_records(record)}


@dataclass
class _Growing:
    """A turn that may get more parts, and the results of its calls."""

    id: str
    parent: str | None
    thread: str
    kind: str
    record: dict[str, Any]
    parts: list[Part] = field(default_factory=list[Part])
    lines: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    compacted: str | None = None
    preserved_turns: tuple[str, ...] = ()
    results: dict[str, ToolResultPart] = field(default_factory=dict[str, ToolResultPart])
    result_lines: dict[str, list[int]] = field(default_factory=dict[str, list[int]])


@dataclass
class _Thread:
    """A conversation: where it is, and the ends of the branches that were left."""

    tip: str | None = None
    ends: set[str] = field(default_factory=set[str])
    asked_at: set[str | None] = field(default_factory=lambda: set[str | None]())
    """Turns after which a person asked something."""
    compacted: str | None = None
    preserved_turns: tuple[str, ...] = ()
    """Turns that the last compaction keeps word for word."""


class Conversations:
    """Grows the turns of all conversations, record by record."""

    def __init__(self, maker: PartMaker) -> None:
        """Begin without a turn."""
        self._maker = maker
        self._turns: dict[str, _Growing] = {}
        self._calls: dict[str, str] = {}
        self._threads: dict[str, _Thread] = {}
        self._lineage: dict[str, Lineage] = {}
        self._turn_of: dict[str, str] = {}
        self._results: set[str] = set()
        self.branches = self.compactions = self.orphans = 0

    def know(self, of: Lineage) -> None:
        """Note where a record comes from, before any of its file is put in its place."""
        if isinstance(of.get("uuid"), str):
            self._lineage.setdefault(of["uuid"], of)

    def compact(self, of: Lineage) -> None:
        """Begin anew after a compaction: what follows has a summary for its history."""
        thread = self._thread(self._name_of_thread(of))
        thread.compacted = thread.tip
        thread.preserved_turns = tuple(dict.fromkeys(self._list_preserved_turns(of.get("preserved", ()))))
        if thread.tip is not None:
            thread.ends.add(thread.tip)
        thread.tip = None
        self.compactions += 1

    def _list_preserved_turns(self, uuids: tuple[str, ...]) -> Iterator[str]:
        """Yield the turns of the records that a compaction keeps, with those between its first and last."""
        if len(uuids) == 2:
            between = list(self._above(uuids[1]))
            uuids = tuple(between[: between.index(uuids[0]) + 1][::-1]) if uuids[0] in between else uuids
        yield from (self._turn_of[uuid] for uuid in uuids if uuid in self._turn_of)

    def add(self, record: dict[str, Any], where: Where) -> bool:
        """Put a record in its place; False if there is nothing in it."""
        queued = queued_prompt(record)
        content = record["message"].get("content") if queued is None else queued
        parts = list(self._maker.parts(content, answer=record["type"] == "assistant"))
        if record["type"] == "assistant":
            turn = self._add_action(record, parts)
            turn.lines.setdefault(where[0], []).append(where[1])
        else:
            turn = self._add_user(record, parts, where)
        if turn is not None and isinstance(record.get("uuid"), str):
            self._turn_of[record["uuid"]] = turn.id
            if record["type"] == "user":
                self._results.add(record["uuid"])
        return turn is not None

    def _thread(self, name: str) -> _Thread:
        return self._threads.setdefault(name, _Thread())

    def _name_of_thread(self, record: Lineage) -> str:
        """Return the conversation of a record: its agent's, that of a turn it descends from, or its session."""
        session, agent = str(record.get("sessionId") or ""), record.get("agentId")
        if record.get("isSidechain") and isinstance(agent, str) and agent:
            return f"{session}/{agent}"
        first = str(record.get("uuid"))
        for uuid in self._above(record.get("logicalParentUuid") or record.get("parentUuid")):
            if (turn := self._turn_of.get(uuid)) is not None:
                return self._turns[turn].thread
            first = uuid
        return f"{session}/{first}" if record.get("isSidechain") else session

    def _above(self, parent: Any) -> Iterator[str]:
        """Yield the records that a parent leads back to, itself first, as far as they are known."""
        passed: set[str] = set()
        while isinstance(parent, str) and parent not in passed and parent in self._lineage:
            passed.add(parent)
            yield parent
            parent = self._lineage[parent].get("parentUuid")

    def _before(self, record: dict[str, Any]) -> str | None:
        """Return the turn that a record's parent belongs to; None at the beginning of a conversation."""
        parent = record.get("parentUuid")
        if parent is None:
            return None
        last = _UNKNOWN
        for uuid in self._above(parent):
            if uuid in self._turn_of:
                return self._turn_of[uuid]
            last = uuid
        begins = last != _UNKNOWN and self._lineage[last].get("parentUuid") is None
        return None if begins else _UNKNOWN

    def _place(self, record: dict[str, Any], thread: _Thread, kind: str) -> str | None:
        """Return the turn that a new one follows."""
        before = self._before(record)
        texts = self._turns[thread.tip].preserved_turns if thread.tip is not None else ()
        if before in (_UNKNOWN, thread.tip, *texts):
            return thread.tip
        flag = before in thread.ends
        if flag or (kind == "prompt" and before in thread.asked_at):
            # Back to an earlier place: another branch, or an earlier branch that is continued.
            self.branches += not flag
            if thread.tip is not None:
                thread.ends.add(thread.tip)
            thread.ends.discard(str(before))
            return before
        return None if before is None and kind in ("prompt", "context") else thread.tip

    def _add_action(self, record: dict[str, Any], parts: list[Part]) -> _Growing:
        key = self._step(message_key(record), record)
        turn = self._turns.get(key) or self._begin(key, record, "action")
        for part in parts:
            join_part(turn.parts, part)
            if isinstance(part, ToolUse):
                self._calls[part.call] = key
        return turn

    def _step(self, key: str, record: dict[str, Any]) -> str:
        """Return the key of a record's action: another one where it follows the results of a step with the same id.

        Calls of one answer may run while it is still written; then their records share the request too.
        """
        number, parent = 1, str(record.get("parentUuid"))
        steps = [key]
        while f"{key}#{number + 1}" in self._turns:
            number += 1
            steps.append(f"{key}#{number}")
        last = self._turns.get(steps[-1])
        request = record.get("requestId")
        same_request = request is not None and last is not None and last.record.get("requestId") == request
        if parent in self._results and self._turn_of.get(parent) == steps[-1] and not same_request:
            return f"{key}#{number + 1}"
        return next((step for step in steps if self._turn_of.get(parent) == step), steps[-1])

    def _add_user(self, record: dict[str, Any], parts: list[Part], where: Where) -> _Growing | None:
        """Give results to the action that called, and make a turn of the rest; None if there is nothing."""
        called: _Growing | None = None
        rest: list[Part] = []
        for part in parts:
            if isinstance(part, ToolResultPart) and part.call in self._calls:
                called = self._turns[self._calls[part.call]]
                called.results[part.call] = part
                called.result_lines.setdefault(where[0], []).append(where[1])
            else:
                self.orphans += isinstance(part, ToolResultPart)
                rest.append(part)
        if not rest:
            return called
        texts = [part.text for part in rest if isinstance(part, TextPart)]
        kind = user_kind(record, texts) if texts else "results"
        turn = self._begin(str(record.get("uuid") or f"{where[0]}:{where[1]}"), record, kind)
        turn.parts += rest
        turn.lines.setdefault(where[0], []).append(where[1])
        return turn

    def _begin(self, key: str, record: dict[str, Any], kind: str) -> _Growing:
        name = self._name_of_thread(record)
        thread = self._thread(name)
        turn = _Growing(key, None, name, kind, record)
        if kind == "summary":
            turn.compacted, turn.preserved_turns = thread.compacted, thread.preserved_turns
            thread.preserved_turns = ()
        else:
            turn.parent = self._place(record, thread, kind)
        if kind == "prompt":
            thread.asked_at.add(turn.parent)
        thread.tip = key
        self._turns[key] = turn
        return turn

    def iterate_turns(self) -> Iterator[TraceTurn]:
        """Yield all turns, each after its predecessor; results directly behind the action that called."""
        for turn in self._turns.values():
            yield self._build_turn(turn)
            if turn.results:
                yield self._build_results_turn(turn)

    def _build_turn(self, turn: _Growing) -> TraceTurn:
        record = turn.record
        calls = [part.call for part in turn.parts if isinstance(part, ToolUse)]
        model = record["message"].get("model") if turn.kind == "action" else ""
        return TraceTurn(
            id=_named(turn.id),
            parent=self._behind(turn.parent),
            thread=turn.thread,
            subagent=bool(record.get("isSidechain")),
            kind=turn.kind,  # pyright: ignore[reportArgumentType]
            parts=tuple(turn.parts),
            model=_short(model),
            time=_short(record.get("timestamp")),
            folder=_short(record.get("cwd")),
            unanswered=tuple(call for call in calls if call not in turn.results),
            compacted=self._behind(turn.compacted),
            kept_turns=tuple(
                id for key in turn.preserved_turns for id in dict.fromkeys((_named(key), str(self._behind(key))))
            ),
            source=_source(turn.lines),
        )

    def _build_results_turn(self, turn: _Growing) -> TraceTurn:
        calls = [part.call for part in turn.parts if isinstance(part, ToolUse)]
        return TraceTurn(
            id=f"{_named(turn.id)}.results",
            parent=_named(turn.id),
            thread=turn.thread,
            subagent=bool(turn.record.get("isSidechain")),
            kind="results",
            parts=tuple(turn.results[call] for call in calls if call in turn.results),
            source=_source(turn.result_lines),
        )

    def _behind(self, key: str | None) -> str | None:
        """Return what a turn that follows another one names: its results, if it called something."""
        if key is None:
            return None
        return f"{_named(key)}.results" if self._turns[key].results else _named(key)


def _named(key: str) -> str:
    """Return the id of a turn: of a message's or record's own id, so that a copy of the file gives the same."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _short(value: Any) -> str:
    return value.encode("utf-8", "replace").decode("utf-8")[:500] if isinstance(value, str) else ""


def _source(lines: dict[str, list[int]]) -> tuple[Lines, ...]:
    return tuple(Lines(file=file, lines=tuple(sorted(set(line_numbers)))) for file, line_numbers in lines.items())
