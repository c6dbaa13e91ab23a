"""`peergate seeds`: one design over several seeds, from the raw rows of finished sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from reviews.comparison.seed_comparison import Seeded, seeded, together
from reviews.statistics.seed_variance import OverSeeds
from sessions.commands.audit.trail_place import session_at
from sessions.commands.options import DEFAULT_RUNS, Json, Runs, complete_run
from sessions.commands.output import print_json, print_line, print_table

app = typer.Typer()


@app.command()
def seeds(
    sessions: Annotated[
        list[Path],
        typer.Argument(metavar="RUN RUN...", help="Sessions of one design, a seed each.", autocompletion=complete_run),
    ],
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Compare sessions of one design: the gain with seeds and items both as samples."""
    read = [seeded(place.folder, place.entries(), place.store) for place in (session_at(one, runs) for one in sessions)]
    over, items = together(read), len(read[0].pairs)
    if as_json:
        print_json(as_data(read, over))
        return
    reached = {True: "reached", False: "not reached"}
    rows = [(one.session, str(one.seed), f"{one.gain:+.4f}", f"{one.p:.3g}", reached[one.reaches]) for one in read]
    print_table(("session", "seed", "gain", "exact McNemar p", "as registered"), rows)
    low, high = over.interval
    print_line(f"gain over {len(read)} seeds and {items} items: {over.difference:+.4f}")
    print_line(f"  95 % interval, seeds and items drawn:  {low:+.4f} to {high:+.4f}")
    if over.seed_interval is not None:
        low, high = over.seed_interval
        print_line(f"  95 % interval, Student's t over seeds: {low:+.4f} to {high:+.4f}")
    parts = f"{over.variance_items:.4f} between items, {over.variance_seeds:.4f} between seeds"
    print_line(f"  variance of one gain: {parts}, {over.variance_rest:.4f} the rest")
    print_line("not shown: that no other seed of this design was run; `peergate audit verify` checks each", err=True)


def as_data(read: Sequence[Seeded], over: OverSeeds) -> dict[str, Any]:
    """Return everything the command prints, in the form of its JSON."""
    return {
        "sessions": [
            {"session": one.session, "seed": one.seed, "gain": one.gain, "p": one.p, "as_registered": one.reaches}
            for one in read
        ],
        "items": len(read[0].pairs),
        "gain": over.difference,
        "interval": list(over.interval),
        "seed_interval": list(over.seed_interval) if over.seed_interval else None,
        "variance": {"items": over.variance_items, "seeds": over.variance_seeds, "rest": over.variance_rest},
    }
