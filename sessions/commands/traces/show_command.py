"""`peergate traces stats` and `peergate traces show`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from sessions.commands.options import Json
from sessions.commands.output import print_block, print_json, print_line, print_table
from sessions.commands.traces.ingest_command import print_account
from sessions.run.terminal import masked_line
from specs.system.errors import UserError
from specs.system.text import plural
from specs.traces.turn import Part, TraceTurn
from training.rules.traces.shown_states import history, states
from training.rules.traces.trace_folder import Traces, read_traces

_MOST = 2000
"""Characters of a part that are printed; `--json` has all."""

app = typer.Typer()

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `traces ingest` wrote.")]


@app.command()
def stats(folder: Folder = Path("traces"), as_json: Json = False) -> None:
    """Print what is in a folder of traces.

    Prints what became of every record, then models, tools and lengths of histories. Exit codes: 0 shown; 2 no traces,
    or a file has changed since.
    """
    traces = read_traces(folder)
    turns = states(traces.turns.values())
    models = Counter(turn.model or "unknown" for turn in turns)
    tools = Counter(part.tool for turn in turns for part in turn.parts if part.type == "tool_use")
    lengths = sorted(len(history(traces.turns, turn)) for turn in turns)
    if as_json:
        account = traces.account.model_dump(mode="json", exclude={"files"})
        middle = lengths[len(lengths) // 2]
        print_json(account | {"models": models, "tools": tools, "history": {"median": middle, "most": lengths[-1]}})
        return
    print_account(traces.account)
    print_line()
    print_table(("model", "states"), [(name, str(count)) for name, count in models.most_common()])
    print_line()
    print_table(("tool", "calls"), [(name, str(count)) for name, count in tools.most_common()])
    print_line()
    print_line(f"turns before a state: {lengths[len(lengths) // 2]} in the median, {lengths[-1]} at most")


@app.command()
def show(
    folder: Folder = Path("traces"),
    state: Annotated[
        str, typer.Argument(metavar="STATE", help="A state: its number in the list, or the beginning of its id.")
    ] = "",
    turns: Annotated[int, typer.Option("--turns", min=0, help="How many turns before the state are shown.")] = 6,
    as_json: Json = False,
) -> None:
    """List the states of a folder of traces, or show one with its history.

    With `--json` the whole history is printed. Exit codes: 0 shown; 2 no traces, or no such state.
    """
    traces = read_traces(folder)
    matching_turns = states(traces.turns.values())
    if not state:
        _list(traces, matching_turns, as_json)
        return
    chosen = _chosen(matching_turns, state)
    before = history(traces.turns, chosen)
    if as_json:
        parts = [turn.model_dump(mode="json") for turn in before]
        print_json({"state": chosen.model_dump(mode="json"), "history": parts})
        return
    hidden = max(0, len(before) - turns)
    if hidden:
        print_line(f"{plural(hidden, 'earlier turn')}; --turns {len(before)} shows all")
    for turn in [*before[hidden:], chosen]:
        _print_turn(turn)


def _list(traces: Traces, turns: list[TraceTurn], as_json: bool) -> None:
    if as_json:
        print_json({"states": [turn.model_dump(mode="json", exclude={"parts"}) for turn in turns]})
        return
    rows = [
        (
            str(number),
            turn.id[:8],
            turn.time[:16],
            masked_line(turn.model, 28),
            str(len(history(traces.turns, turn))),
            masked_line(_summary(turn), 40),
        )
        for number, turn in enumerate(turns, 1)
    ]
    print_table(("", "state", "time", "model", "turns before", "what it did"), rows)


def _chosen(turns: list[TraceTurn], state: str) -> TraceTurn:
    if state.isdecimal() and 1 <= int(state) <= len(turns):
        return turns[int(state) - 1]
    fitting = [turn for turn in turns if turn.id.startswith(state)]
    if len(fitting) != 1:
        raise UserError(
            f"{len(fitting)} of {len(turns)} states have this number or id", where=state, hint="traces show"
        )
    return fitting[0]


def _summary(turn: TraceTurn) -> str:
    """Return in a few words what was done: the tools that were called, else the text."""
    tools = [part.tool for part in turn.parts if part.type == "tool_use"]
    return ", ".join(tools) or next((part.text for part in turn.parts if part.type == "text"), "")


def _print_turn(turn: TraceTurn) -> None:
    of = f"{turn.kind}, subagent" if turn.subagent else turn.kind
    where = ", ".join(f"{lines.file}:{lines.lines[0]}" for lines in turn.source)
    print_line(f"{turn.id[:8]} {of} {turn.time[:19]} {masked_line(where, 200)}".rstrip())
    for part in turn.parts:
        print_block(_describe_part(part), _MOST, "  ")


def _describe_part(part: Part) -> str:
    if part.type == "tool_use":
        return f"{part.tool} {json.dumps(part.arguments, ensure_ascii=False)}"
    if part.type == "tool_result":
        return f"{'failed: ' if part.failed else ''}{part.text}"
    return f"(thinking) {part.text}" if part.type == "thinking" else part.text
