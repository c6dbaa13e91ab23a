"""The form of agent traces: turns that point to the turn before them, so that a history is written once.

A *state* is a turn of kind ``action``: what an agent did after the turns that its ``parent`` leads back to.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from specs.stages.base.artifacts import Taught
from specs.system.digests import Contract, Count, Positive, omit_default


class TextPart(Contract):
    """What someone wrote."""

    type: Literal["text"] = "text"
    text: str
    left_out: Count = omit_default(0)
    """Characters that were cut out of a long text; a mark says where."""


class Thinking(Contract):
    """What a model thought, where the transcript says it: newer ones keep its signature alone."""

    type: Literal["thinking"] = "thinking"
    text: str


class ToolUse(Contract):
    """A call of a tool."""

    type: Literal["tool_use"] = "tool_use"
    call: str
    tool: str
    arguments: Any


class ToolResultPart(Contract):
    """What a call returned."""

    type: Literal["tool_result"] = "tool_result"
    call: str
    text: str
    failed: bool = omit_default(False)
    left_out: Count = omit_default(0)


Part = Annotated[TextPart | Thinking | ToolUse | ToolResultPart, Field(discriminator="type")]


class Lines(Contract):
    """Where a turn was read: lines of a transcript, counted from 1."""

    file: str
    lines: tuple[Positive, ...]


class TraceTurn(Contract):
    """One turn of a conversation. ``prompt`` is what a person asked, ``context`` what the program said for them."""

    unique_by = ("id",)

    id: str
    parent: str | None
    """The turn before it, on its own branch; None at the beginning and after a compaction."""
    thread: str
    """The conversation: a session, or a subagent of one."""
    subagent: bool = omit_default(False)
    kind: Literal["prompt", "context", "results", "summary", "action"]
    parts: tuple[Part, ...]
    model: str = omit_default("")
    time: str = omit_default("")
    folder: str = omit_default("")
    """Where the agent worked."""
    unanswered: tuple[str, ...] = omit_default(())
    """Calls of an action whose results the transcript lacks: it was interrupted, or cut."""
    compacted: str | None = omit_default(None)
    """For a summary: the last turn that it stands for."""
    kept_turns: tuple[str, ...] = omit_default(())
    """For a summary: earlier turns that the agent kept verbatim after it."""
    source: tuple[Lines, ...]


class FileAccount(Contract):
    """What became of every line of one transcript: ``used``, or a reason; the values are ranges of lines."""

    file: str
    records: Count
    used: Count
    skipped: dict[str, tuple[tuple[Positive, Positive], ...]]
    replaced_bytes: bool = omit_default(False)
    """Bytes that are not UTF-8 were replaced."""


class Account(Contract):
    """What an ingest made of all its files."""

    files: tuple[FileAccount, ...]
    left_aside: dict[str, str]
    """Files that were not read, with the reason."""
    records: Count
    used: Count
    skipped: dict[str, Count]
    states: Count
    branches: Count
    """Places where someone went back and asked something else."""
    compactions: Count
    calls: Count
    unanswered: Count
    orphans: Count
    """Results of calls that no transcript holds."""
    opaque: dict[str, Count] = omit_default({})
    """Blocks of answers that are neither texts nor calls, by type; nothing of them is in a turn."""
    secrets: Count
    """Texts of secrets that were masked."""
    turns: str
    """Digest of the file of turns."""


class TeacherPair(Contract):
    """One pair to learn from, with where both sides come from: ``trace``, or the id of a teacher."""

    id: str
    group: str
    """The conversation: no split divides it."""
    prompt: Annotated[str, Field(min_length=1)]
    chosen: Annotated[str, Field(min_length=3)]
    rejected: Annotated[str, Field(min_length=3)]
    state: str
    chosen_by: tuple[str, ...]
    """All who did the same."""
    rejected_by: tuple[str, ...]
    taught: Taught | None = omit_default()
    """Whose outputs the chosen side is; None in pairs that were made before it was kept."""


class Agreement(Contract):
    """How far teachers did the same in the same states."""

    states: Count
    """States in which every teacher answered with a whole step; of a local one, in which two answers are whole."""
    agreed: Count
    """States in which teachers of two families or more called the same tools."""
    split: Count
    """States in which no two families did the same: no pair comes of them."""
    unanimous: Count
    """States in which everybody did what the trace did: there is nothing to reject."""
    with_trace: Count
    """Pairs whose chosen side is what the trace did."""
    between: dict[str, Annotated[float, Field(ge=0, le=1)]]
    """The share of states in which two families did the same, by pair of families."""
