"""Makes preference pairs of what teachers would have done: chosen is what two families or more do alike.

Two actions are alike if they call the same tools, in any order, or if both only write. What is in the arguments and in
the text is not compared: nothing here could say which of two commands is better.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, Protocol

from specs.system.digests import digest_value
from specs.traces.turn import Agreement, TeacherPair, TraceTurn
from training.rules.traces.rendering import TraceAction, action_of, read_action, render_action

TRACE = "trace"
LEAST_FAMILIES = 2


class TeacherReply(Protocol):
    """What a teacher answered, and how it ended."""

    @property
    def text(self) -> str:
        """Return all of it."""
        ...

    @property
    def stop(self) -> str:
        """Return ``end`` where it is whole."""
        ...


class AnsweredState(NamedTuple):
    """A state that was shown, and what each teacher answered."""

    state: TraceTurn
    prompt: str
    replies: Mapping[str, TeacherReply]


class TeacherPairs(NamedTuple):
    """Pairs, and how far the teachers agreed."""

    pairs: list[TeacherPair]
    agreement: Agreement


def make_pairs(
    answered: Iterable[AnsweredState], families: Mapping[str, str], tools: Iterable[str], fewest: int | None = None
) -> TeacherPairs:
    """Return a pair of each state in which teachers of two families agree, and someone did something else.

    ``families`` names that of each teacher. ``fewest`` whole answers to a state are needed; None: every teacher's.
    """
    known = set(tools)
    pairs: list[TeacherPair] = []
    whole = agreed = split = unanimous = 0
    same: dict[tuple[str, str], list[bool]] = {}
    for value in answered:
        actions = {
            id: action for id, reply in value.replies.items() if (action := whole_action(reply, known)) is not None
        }
        if len(actions) < (fewest or len(families)):
            continue
        whole += 1
        _compare(actions, families, same)
        alike = _alike(actions)
        agreeing = [ids for ids in alike.values() if len({families[id] for id in ids}) >= LEAST_FAMILIES]
        if not agreeing:
            split += 1
            continue
        agreed += 1
        chosen = max(agreeing, key=lambda ids: (len({families[id] for id in ids}), len(ids)))
        pair = _pair(value, actions, chosen)
        if pair is None:
            unanimous += 1
        else:
            pairs.append(pair)
    between = {f"{a}, {b}": sum(flags) / len(flags) for (a, b), flags in sorted(same.items())}
    with_trace = sum(TRACE in pair.chosen_by for pair in pairs)
    agreement = Agreement(
        states=whole, agreed=agreed, split=split, unanimous=unanimous, with_trace=with_trace, between=between
    )
    return TeacherPairs(pairs, agreement)


def whole_action(reply: TeacherReply, tools: Collection[str]) -> TraceAction | None:
    """Return the action of an answer; None if it was cut off or refused, is empty, or calls what is not there."""
    action = read_action(reply.text)
    if reply.stop != "end" or len(render_action(action)) < 3 or not set(action.tools()) <= set(tools):
        return None
    return action


def _key(action: TraceAction) -> tuple[str, ...]:
    return tuple(sorted(action.tools()))


def _alike(actions: Mapping[str, TraceAction]) -> dict[tuple[str, ...], list[str]]:
    texts: dict[tuple[str, ...], list[str]] = {}
    for id, action in actions.items():
        texts.setdefault(_key(action), []).append(id)
    return texts


def _compare(
    actions: Mapping[str, TraceAction], families: Mapping[str, str], same: dict[tuple[str, str], list[bool]]
) -> None:
    for (a, action), (b, other) in combinations(actions.items(), 2):
        if families[a] != families[b]:
            first, second = sorted((families[a], families[b]))
            same.setdefault((first, second), []).append(_key(action) == _key(other))


def _pair(value: AnsweredState, actions: Mapping[str, TraceAction], chosen: Sequence[str]) -> TeacherPair | None:
    """Return the pair of a state; None if the trace and all teachers did the same."""
    own = action_of(value.state)
    key = _key(actions[chosen[0]])
    everybody = {**actions, TRACE: own} if len(render_action(own)) >= 3 else dict(actions)
    others = [id for id, action in everybody.items() if _key(action) != key]
    if not others:
        return None
    # What the trace did is rejected first: the student is to leave it.
    worse = TRACE if TRACE in others else others[0]
    rejected = [id for id in others if _key(everybody[id]) == _key(everybody[worse])]
    return TeacherPair(
        id=digest_value({"state": value.state.id, "chosen": chosen[0], "rejected": worse}).removeprefix("sha256:")[:16],
        group=value.state.thread,
        prompt=value.prompt,
        chosen=render_action(actions[chosen[0]]),
        rejected=render_action(everybody[worse]),
        state=value.state.id,
        chosen_by=tuple(id for id, action in everybody.items() if _key(action) == key),
        rejected_by=tuple(rejected),
    )
