"""Reads turns that were written, and returns what an agent had before it when it acted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from specs.traces.turn import TraceTurn


def by_id(turns: Iterable[TraceTurn]) -> dict[str, TraceTurn]:
    """Return turns by their id."""
    return {turn.id: turn for turn in turns}


def states(turns: Iterable[TraceTurn]) -> list[TraceTurn]:
    """Return the turns in which a model acted."""
    return [turn for turn in turns if turn.kind == "action"]


def history(turns: Mapping[str, TraceTurn], state: TraceTurn) -> list[TraceTurn]:
    """Return what the model had before it in a state, oldest first: after a compaction, from the summary on.

    A call without a result is not part of it: programs leave it out of what they send.

    Raises:
        KeyError: a turn names one that is not there.
    """
    chain: list[TraceTurn] = []
    parent = state.parent
    while parent is not None:
        turn = turns[parent]
        chain.append(turn)
        parent = turn.parent
    before = [each for turn in chain[::-1] for each in (turn, *(turns[id] for id in turn.kept))]
    return [sent for turn in before if (sent := _as_sent(turn)).parts]


def _as_sent(turn: TraceTurn) -> TraceTurn:
    """Return a turn without the calls that have no result."""
    if not turn.unanswered:
        return turn
    parts = (part for part in turn.parts if part.type != "tool_use" or part.call not in turn.unanswered)
    return turn.model_copy(update={"parts": tuple(parts)})
