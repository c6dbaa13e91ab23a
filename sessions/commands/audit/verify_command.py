"""`peergate audit verify | show`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from reviews.audit.export import verify_export
from reviews.audit.verify import Audit, verify_run
from reviews.trail.anchors import read_anchor, read_policy
from reviews.trail.chain.tiles import is_export
from sessions.commands.audit.again_command import RepeatOptions, repeat
from sessions.commands.audit.again_command import print_outcome as tell_again
from sessions.commands.audit.claim_command import show_claim
from sessions.commands.audit.list_command import as_data
from sessions.commands.named_place import folder_of, place_of
from sessions.commands.options import DEFAULT_RUNS, Json, RequiredTrailRun, Runs, TrailRun, spread
from sessions.commands.output import print_block, print_json, print_line, say
from sessions.pages.report.trail_page import page_damage
from sessions.pages.trail_place import way_of
from sessions.run.run_layout import STORE, trail_name
from sessions.run.terminal import masked_line
from specs.system.errors import UserError
from specs.system.text import json_text, plural

_POINTS = ("decision", "verdict", "checks", "metrics", "exit", "manifest", "order")
_POINTING = {"question": ("request",), "answer": ("answer", "request", "response")}
"""Fields whose stored value is shown with an entry of a kind. Files that were read are shown by their digest."""

MOST_NOT_COVERED = 20
"""Lines of files that are listed for people."""


UNREADABLE = 3


app = typer.Typer()


@app.command("verify")
@spread
def verify(
    run: TrailRun = None,
    *,
    request: RepeatOptions,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Policy kept elsewhere: whose keys may have signed.")
    ] = None,
    anchor: Annotated[
        list[Path] | None, typer.Option("--anchor", help="Signed head kept elsewhere; can be repeated.")
    ] = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Verify a trail and its evidence, offline and read-only.

    Checks signatures, tree, digests and grants, and derives every number and decision again. With --again it also
    repeats the witnesses: the weights read rows that a new seed draws, judged by the gate's own checks, and nothing is
    recorded. Exit codes: 0 verified and closed, 1 tampered, 2 valid but open or newer than the anchors given, 3
    unreadable, 4 with --again: a row was not reproduced, or a stage could not be witnessed.
    """
    request.refuse_alone()
    place = folder_of(run, runs)
    if not (place.exists() or as_json):
        print_line(f"peergate: {place}: not a session, export or workspace of reviews", err=True)
        print_line("  `peergate list` shows the sessions; --runs names the folder they are in", err=True)
        raise SystemExit(UNREADABLE)
    try:
        trusted = read_policy(policy) if policy else None
        heads = [read_anchor(path) for path in anchor or ()]
    except UserError as error:
        # Without the policy or head to compare with nothing can be said about the trail, least of all that it is good.
        result = Audit(path=place, readable=False, notes=[str(error).splitlines()[0]])
    else:
        if is_export(place):
            result = verify_export(place, policy=trusted, anchors=heads)
            if not result.damage:
                result.damage.extend(page_damage(place, result.notes))
        else:
            result = verify_run(
                place, trail_name(place), STORE, lambda text: say(f"{text} ..."), policy=trusted, anchors=heads
            )
    outcome = None
    if request.again and result.exit_code in (0, 2):
        outcome = repeat(place_of(place), request)
    if as_json:
        print_json(result.as_json() | ({"again": outcome.as_json()} if outcome else {}))
    else:
        _print_audit(place, result)
        if outcome:
            tell_again(outcome)
    raise SystemExit((outcome.exit_code if outcome else 0) or result.exit_code)


def _print_audit(place: Path, result: Audit) -> None:
    print_line(f"{place}: {result.verdict.upper()}")
    print_line(f"  {result.entries} entries, head {result.head}")
    print_line(f"  root {result.root}")
    if result.policy:
        print_line(f"  log '{masked_line(result.origin, 200)}', policy {result.policy}")
    for value in result.signed:
        verdicts = f", {plural(value['verdicts'], 'verdict')} among them" if value["verdicts"] else ""
        signed = plural(value["entries"], "entry", "entries")
        print_line(f"  {value['role']:<8} key {value['key'][:16]} signed {signed}{verdicts}")
    decisions = plural(result.rederived, "decision")
    print_line(f"  {plural(result.files, 'file')} compared, {decisions} derived again from the raw rows")
    if result.holds == "reviews":
        print_line("  requested reviews: such a trail is never closed")
    else:
        print_line(f"  session: {'closed, ' + masked_line(str(result.decision), 100) if result.closed else 'open'}")
    for line in result.anchors:
        print_line(f"  anchor {masked_line(line, 2000)}")
    if result.is_unanchored:
        print_line(f"  the newest anchor covers {result.anchored} of {result.entries} entries")
    for head, lines in (("DAMAGE", result.damage), ("note:", result.notes)):
        for line in lines:
            print_line(f"  {head} {masked_line(line, 2000)}")
    for line in _not_covered(result):
        print_line(f"  not covered: {line}")
    if result.integrity:
        print_line(f"  integrity: {result.integrity} (what verify/ checks without Peergate)")
    for line in result.not_proven:
        print_line(f"  not proven: {masked_line(line, 2000)}")


def _not_covered(result: Audit) -> Iterator[str]:
    """Yield the files that nothing covers; what every job leaves is one line, in which no other file is lost."""
    alike: dict[tuple[str, str], list[str]] = {}
    for path, why in result.not_covered.items():
        match path.split("/"):
            case ["jobs", _, first, *rest]:
                alike.setdefault((f"jobs/*/{first}{'/' if rest else ''}", why), []).append(path)
            case _:
                alike[path, why] = [path]
    for (name, why), paths in islice(alike.items(), MOST_NOT_COVERED):
        yield f"{masked_line(paths[0] if len(paths) == 1 else f'{len(paths)} x {name}', 500)} ({why})"
    if more := sum(map(len, islice(alike.values(), MOST_NOT_COVERED, None))):
        yield f"{more} further files (--json lists all)"


@app.command("show")
def show_entry(
    run: RequiredTrailRun,
    entry: Annotated[
        str, typer.Argument(help="Entry number or key, a sha256 digest of the content store, or the word claim.")
    ],
    name: Annotated[
        str | None, typer.Argument(help="After claim: METRIC, STAGE.METRIC or STAGE.ATTEMPT.METRIC; by default all.")
    ] = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Show one entry with everything it points to, or trace a number.

    A verdict is shown with its packet, request, raw rows and grant. The word claim follows a number of the report, as
    in show RUN claim accuracy_gain: to where it is stated, the metrics entry, the measuring code, the lines of the raw
    rows and the builder's claim. Exits with 5 if a step does not hold.
    """
    if entry == "claim":
        show_claim(place_of(run, runs), name, as_json)
        return
    if name is not None:
        raise UserError(
            f"'{name}' is an unexpected argument after entry '{entry}'",
            hint=f"to trace a number of the report: `peergate audit show {run} claim {name}`",
        )
    place = place_of(run, runs)
    store = place.store
    if entry.startswith("sha256:"):
        if as_json:
            print_json({"digest": entry, "value": place.value(entry)})
        else:
            print_block(store.get(entry).decode("utf-8", "replace"), 1_000_000)
        return
    history = place.history()
    result = place.entry_named(history, entry)
    data = as_data(result)
    # The whole body is shown, whatever its kind.
    data["points_to"] = {
        name: place.value(value)
        for name, value in result.raw.items()
        if name in _POINTING.get(result.kind, _POINTS) and str(value).startswith("sha256:")
        if store.path(value).is_file()
    }
    data["way"] = way_of(result, history)
    if as_json:
        print_json(data)
    else:
        sys.stdout.write(json_text(data) + "\n")
