"""Which states of traces a teacher is shown, and what it reads of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from specs.stages.traces.parameters import family_of
from specs.system.digests import digest_value
from specs.traces.turn import TraceTurn
from training.rules.traces.rendering import INSTRUCTIONS, prompt_of, tools_of


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
        KeyError: a turn names an unknown turn.
    """
    chain: list[TraceTurn] = []
    parent = state.parent
    while parent is not None:
        turn = turns[parent]
        chain.append(turn)
        parent = turn.parent
    before = [shown_turn for turn in chain[::-1] for shown_turn in (turn, *(turns[id] for id in turn.kept_turns))]
    return [sent for turn in before if (sent := _as_sent(turn)).parts]


def _as_sent(turn: TraceTurn) -> TraceTurn:
    """Return a turn without the calls that have no result."""
    if not turn.unanswered:
        return turn
    parts = (part for part in turn.parts if part.type != "tool_use" or part.call not in turn.unanswered)
    return turn.model_copy(update={"parts": tuple(parts)})


class ShownState(NamedTuple):
    """A state as teachers are shown it."""

    state: TraceTurn
    prompt: str


def chosen_states(
    turns: Mapping[str, TraceTurn], characters: int, most: int | None, seed: int, mask: Callable[[str], str]
) -> list[ShownState]:
    """Return states with their prompts, drawn by a seed where not all are wanted; the order is that of the traces."""
    matching_turns = [turn for turn in states(turns.values()) if turn.parent is not None]
    if most is not None and most < len(matching_turns):
        drawn = sorted(matching_turns, key=lambda turn: digest_value([seed, turn.id]))[:most]
        texts = {turn.id for turn in drawn}
        matching_turns = [turn for turn in matching_turns if turn.id in texts]
    tools = tools_of(turns.values())
    return [ShownState(turn, mask(prompt_of(history(turns, turn), tools, characters))) for turn in matching_turns]


def teacher_prompt_of(visible: ShownState) -> str:
    """Return all that a teacher reads of a state, and later the student."""
    return f"{INSTRUCTIONS}\n\n{visible.prompt}"


def unknown_authors(authors: Iterable[str]) -> list[str]:
    """Return why authors may imitate themselves: those whose names show no family, which a person has to judge."""
    return [
        f"the traces are of '{author}', whose family is not known: it may be a teacher's or the student's"
        for author in authors
        if family_of(author) is None
    ]


def authors_of(turns: Iterable[TraceTurn]) -> tuple[str, ...]:
    """Return the families of the models that wrote traces; a name that shows none stands for itself."""
    return tuple(sorted({family_of(turn.model) or turn.model or "unknown" for turn in turns if turn.kind == "action"}))
