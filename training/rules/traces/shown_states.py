"""Which states of traces a teacher is shown, and what it reads of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from specs.digests import digest_value
from specs.traces.family import family_of
from specs.traces.turn import Turn
from training.rules.traces.history import history, states
from training.rules.traces.rendering import INSTRUCTIONS, prompt_of, tools_of


class Shown(NamedTuple):
    """A state as teachers are shown it."""

    state: Turn
    prompt: str


def chosen_states(
    turns: Mapping[str, Turn], characters: int, most: int | None, seed: int, mask: Callable[[str], str]
) -> list[Shown]:
    """Return states with their prompts, drawn by a seed where not all are wanted; the order is that of the traces."""
    found = [one for one in states(turns.values()) if one.parent is not None]
    if most is not None and most < len(found):
        drawn = sorted(found, key=lambda one: digest_value([seed, one.id]))[:most]
        kept = {one.id for one in drawn}
        found = [one for one in found if one.id in kept]
    tools = tools_of(turns.values())
    return [Shown(one, mask(prompt_of(history(turns, one), tools, characters))) for one in found]


def asked_of(shown: Shown) -> str:
    """Return all that a teacher reads of a state, and later the student."""
    return f"{INSTRUCTIONS}\n\n{shown.prompt}"


def unknown_authors(authors: Iterable[str]) -> list[str]:
    """Return why authors may imitate themselves: those whose names show no family, which a person has to judge."""
    return [
        f"the traces are of '{author}', whose family is not known: it may be a teacher's or the student's"
        for author in authors
        if family_of(author) is None
    ]


def authors_of(turns: Iterable[Turn]) -> tuple[str, ...]:
    """Return the families of the models that wrote traces; a name that shows none stands for itself."""
    return tuple(sorted({family_of(one.model) or one.model or "unknown" for one in turns if one.kind == "action"}))
