"""`peergate traces replay`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from reviews.trail.chain.store import write_durably
from sessions.commands.options import Json
from sessions.commands.output import print_json, print_line, print_table, say
from sessions.commands.traces.replay import Replies, calls_of, collect_replies, replay
from sessions.commands.traces.show_command import Folder
from sessions.commands.traces.teacher_file import circles, models_of, read_teachers, with_teachers
from sessions.run.disk_errors import telling_no_place
from specs.system.digests import digest_bytes
from specs.system.errors import UserError
from specs.system.masking import current
from specs.traces.teachers import Card
from training.rules.traces.pairs import make_pairs
from training.rules.traces.rendering import tools_of
from training.rules.traces.shown_states import authors_of, chosen_states
from training.rules.traces.trace_folder import read_traces

PAIRS, CARD = "pairs.jsonl", "card.json"
_QUIET_S = 2.0

app = typer.Typer()


@app.command("replay")
def replay_traces(
    folder: Folder = Path("traces"),
    teachers: Annotated[Path, typer.Option("--teachers", metavar="FILE", help="The file of teachers.")] = Path(
        "teachers.yaml"
    ),
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where it is written; DIR/replay.")] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="USD", min=0, help="The most all calls may cost.")
    ] = None,
    states: Annotated[int | None, typer.Option("--states", min=1, help="How many states are shown; all.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Draws the states where not all are shown.")] = 0,
    circular: Annotated[
        str, typer.Option("--circular", metavar="REASON", help="Why teachers may imitate what they come from.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would cost.")] = False,
    as_json: Json = False,
) -> None:
    """Ask teachers what they would have done, and make pairs to learn from.

    First prints the maximum cost. Every answer is kept at once: repeat the command after an interruption, and
    nothing is asked twice. `pairs.jsonl` is a data file of a `dpo` stage, `card.json` says where the pairs come from.
    Exit codes: 0 written; 2 the file of teachers has problems, teachers imitate in a circle, or no budget was given; 4
    a teacher gives no answer; 5 replies were changed; 6 the budget ends before the calls do.
    """
    traces = read_traces(folder)
    file = read_teachers(teachers)
    authors = authors_of(traces.turns.values())
    why = circles(file, authors)
    if why and not circular.strip():
        raise UserError("; ".join(why), where=str(teachers), hint="--circular REASON accepts that and keeps the reason")
    models = models_of(file)
    # Masked again: the file may have been written where other secrets were known.
    visible = chosen_states(traces.turns, file.prompt_characters, states, seed, current().text)
    calls = list(calls_of(file, models, visible))
    place = out or folder / "replay"
    replies = Replies(place)
    waiting = [call for call in calls if call.key not in replies.by_key]
    most = sum(call.cap_usd for call in waiting)
    message = f"{len(visible)} states, {len(calls)} calls, {len(waiting)} of them not made yet: at most {most:.4f} USD"
    (print_line if dry_run and not as_json else say)(message)
    if dry_run:
        if as_json:
            print_json({"states": len(visible), "calls": len(calls), "left": len(waiting), "most_usd": round(most, 6)})
        return
    if budget is None and most > 0:
        raise UserError("is missing", where="--budget", hint=f"--budget {most:.2f} covers all calls")
    with telling_no_place(place):
        place.mkdir(parents=True, exist_ok=True)
        replay(calls, replies, budget or 0.0, _Progress())
        families = {teacher.id: teacher.family for teacher in file.teachers}
        made = make_pairs(results := collect_replies(calls, replies), families, tools_of(traces.turns.values()))
        override = circular.strip() if why else ""
        pairs = with_teachers(made.pairs, file, authors, why, override)
        data = "".join(f"{pair.model_dump_json()}\n" for pair in pairs).encode()
        input_replies = [reply for value in results for reply in value.replies.values()]
        card = Card(
            traces=traces.account.turns,
            authors=authors,
            student=file.student,
            teachers=file.teachers,
            circular=why,
            override=override,
            states=len(visible),
            replies=len(input_replies),
            cut_off=sum(reply.stop == "length" for reply in input_replies),
            refused=sum(reply.stop == "refusal" for reply in input_replies),
            pairs=len(made.pairs),
            agreement=made.agreement,
            usd=round(replies.spent_usd, 6),
            pairs_digest=digest_bytes(data),
        )
        write_durably(place / PAIRS, data)
        write_durably(place / CARD, card.model_dump_json(indent=1).encode() + b"\n")
    if as_json:
        print_json({"folder": str(place)} | card.model_dump(mode="json"))
    else:
        _print(card, place)


class _Progress:
    """Names the call that is made, every two seconds."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _QUIET_S

    def __call__(self, text: str) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _QUIET_S
            say(text)


def _print(card: Card, place: Path) -> None:
    """Print what came of it, for a person."""
    agreement = card.agreement
    rows = [
        ("answers", str(card.replies)),
        ("  cut off or refused", str(card.cut_off + card.refused)),
        ("states in which every teacher answered with a whole step", str(agreement.states)),
        ("  two families or more did the same", str(agreement.agreed)),
        ("  no two families did the same", str(agreement.split)),
        ("  all did what the trace did", str(agreement.unanimous)),
        ("pairs", str(card.pairs)),
        ("  the chosen side is what the trace did", str(agreement.with_trace)),
    ]
    rows += [(f"agreement of {names}", f"{share:.2f}") for names, share in agreement.between.items()]
    print_table(("", ""), rows)
    print_line()
    for text in card.circular:
        print_line(f"circular: {text} (accepted: {card.override})")
    print_line(f"{place}: {PAIRS}, {CARD}, replies.jsonl; {card.usd:.4f} USD")
