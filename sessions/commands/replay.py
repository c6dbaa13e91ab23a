"""`peergate replay`: the packets of a session, judged again by another reviewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sessions.commands.named_place import session_at
from sessions.commands.options import DEFAULT_RUNS, Json, Run, Runs
from sessions.commands.output import print_json, print_line, print_table, say
from sessions.requests.gate_replay import GateReplay, ReplayedGate, ReplayedVote
from sessions.run.terminal import masked_line
from specs.loading.reviewer_file import load_reviewer
from specs.system.errors import BudgetExceeded, ExitCode

app = typer.Typer()


@app.command(
    "replay",
    epilog="Exit codes: 0 answered, 2 cannot be carried out, 4 an answer is missing, 6 the money does not reach.",
)
def replay(
    run: Run = None,
    reviewer: Annotated[
        Path | None,
        typer.Option("--reviewer", help="YAML file with what a spec has under 'reviewer:'; else the registered one."),
    ] = None,
    votes: Annotated[int, typer.Option("--votes", metavar="K", help="Ask K times at each gate.", min=1, max=50)] = 1,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", help="Stop before this many USD could be exceeded.", min=0)
    ] = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Have the stored packets of a session judged again, and compare the decisions.

    Shows each gate as it was decided, and as it would be decided with the new verdict on the recorded checks. With
    several votes their spread is shown; no majority is formed. Nothing is written to the trail.
    """
    place = session_at(run, runs)
    history = place.history()
    spec = load_reviewer(reviewer, for_gates=True) if reviewer else history.resolved.spec.reviewers()[0]
    replay = GateReplay(place.folder, history, spec, say)
    if cap := replay.cost_cap(votes):
        say(f"{len(replay.gates)} gates, {votes} votes each: at most {cap:.2f} USD")
    gates: list[ReplayedGate] = []
    stopped: BudgetExceeded | None = None
    try:
        for gate in replay.judge(votes, max_cost):
            gates.append(gate)
    except BudgetExceeded as error:
        stopped = error
    answers = [vote for gate in gates for vote in gate.votes]
    if as_json:
        totals = {"flips": sum(gate.flips for gate in gates), "usd": round(sum(vote.usd for vote in answers), 6)}
        print_json({"reviewer": replay.reviewer.name, "gates": [gate.as_json() for gate in gates], **totals})
    else:
        _print(replay.reviewer.name, gates, votes)
    if stopped is not None:
        raise stopped
    if any(vote.approve is None for vote in answers):
        raise SystemExit(int(ExitCode.BLOCKED))


def _print(reviewer: str, gates: list[ReplayedGate], votes: int) -> None:
    rows = [
        (f"{gate.stage}.{gate.attempt}", gate.reviewer, _word(gate.recorded), _spread(gate), _difference(gate))
        for gate in gates
    ]
    print_table(("gate", "recorded by", "then", f"now, by {reviewer}", ""), rows)
    for gate in gates:
        then = set(gate.recorded.blocking)
        new = dict.fromkeys(text for vote in gate.votes for text in vote.blocking if text not in then)
        gone = [text for text in gate.recorded.blocking if all(text not in vote.blocking for vote in gate.votes)]
        lines = [*(("+", text) for text in new), *(("-", text) for text in gone)]
        lines += [("!", text) for text in dict.fromkeys(vote.error for vote in gate.votes if vote.error)]
        for sign, text in lines:
            print_line(f"  {sign} {gate.stage}.{gate.attempt}: {masked_line(text, 300)}")
    flips = sum(gate.flips for gate in gates)
    usd = sum(vote.usd for gate in gates for vote in gate.votes)
    opened = sum(gate.is_opened_otherwise for gate in gates)
    differ = f"{flips} of {len(gates) * votes} verdicts differ"
    message = f"{differ}; {opened} of {len(gates)} gates would be decided otherwise"
    print_line(f"{message}; {usd:.2f} USD; the trail is unchanged")


def _word(vote: ReplayedVote) -> str:
    return "no verdict" if vote.approve is None else vote.outcome


def _spread(gate: ReplayedGate) -> str:
    """Return how often each decision came out: `approve 3, escalate 2`."""
    words = [_word(vote) for vote in gate.votes]
    counts = {word: words.count(word) for word in dict.fromkeys(words)}
    return words[0] if len(words) == 1 else ", ".join(f"{word} {count}" for word, count in counts.items())


def _difference(gate: ReplayedGate) -> str:
    return "decided otherwise" if gate.is_opened_otherwise else "verdict flips" if gate.flips else ""
