"""`peergate audit verify | show`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reviews.audit.export import verify_export
from reviews.audit.verify import Audit, verify_run
from reviews.trail.anchors import read_anchor, read_policy
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from reviews.trail.tiles import is_export
from sessions.commands.audit.list_command import as_data
from sessions.commands.audit.trail_place import place_of
from sessions.commands.output import print_block, print_json, print_line
from sessions.report.trail_page import page_damage
from sessions.run.run_layout import STORE, run_folder, trail_name
from sessions.terminal import masked_line
from specs.errors import UserError
from specs.text import json_text

_POINTS = ("decision", "verdict", "checks", "metrics", "exit", "manifest", "order")
_POINTING = {"asked": ("request",), "answered": ("answer", "request", "response")}
"""What an entry points to and is shown with it, by its kind. Whole files that were read are shown by their digest."""

MOST_NOT_COVERED = 20
"""So many files are listed for people."""


def verify(place: Path, policy: Path | None, anchors: Sequence[Path], as_json: bool) -> None:
    """Verify and end with the audit's own exit code."""
    place = place if is_export(place) else run_folder(place)
    try:
        trusted = read_policy(policy) if policy else None
        heads = [read_anchor(one) for one in anchors]
    except UserError as error:
        # What to compare with cannot be read: that is no answer about the trail, least of all a good one.
        result = Audit(place, readable=False, notes=[str(error).splitlines()[0]])
    else:
        if is_export(place):
            result = verify_export(place, policy=trusted, anchors=heads)
            if not result.damage:
                result.damage.extend(page_damage(place, result.notes))
        else:
            result = verify_run(place, trail_name(place), STORE, _say, policy=trusted, anchors=heads)
    if as_json:
        print_json(result.as_json())
    else:
        _tell(place, result)
    raise SystemExit(result.exit_code)


def _say(text: str) -> None:
    print_line(f"{text} ...", err=True)


def _tell(place: Path, result: Audit) -> None:
    print_line(f"{place}: {result.verdict.upper()}")
    print_line(f"  {result.entries} entries, head {result.head}")
    print_line(f"  root {result.root}")
    if result.policy:
        print_line(f"  log '{masked_line(result.origin, 200)}', policy {result.policy}")
    for one in result.signed:
        verdicts = f", {one['verdicts']} of them verdicts" if one["verdicts"] else ""
        print_line(f"  {one['role']:<8} key {one['key'][:16]} signed {one['entries']} entries{verdicts}")
    print_line(f"  {result.files} files compared, {result.rederived} decisions derived again from the raw rows")
    if result.holds == "reviews":
        print_line("  requested reviews: such a trail is never closed")
    else:
        print_line(f"  session: {'closed, ' + masked_line(str(result.decision), 100) if result.closed else 'open'}")
    for line in result.anchors:
        print_line(f"  anchor {masked_line(line, 2000)}")
    if result.is_unanchored:
        print_line(f"  the newest anchor covers {result.anchored} of {result.entries} entries")
    for line in result.damage:
        print_line(f"  DAMAGE {masked_line(line, 2000)}")
    for line in result.notes:
        print_line(f"  note: {masked_line(line, 2000)}")
    for path, why in list(result.not_covered.items())[:MOST_NOT_COVERED]:
        print_line(f"  not covered: {masked_line(path, 500)} ({why})")
    if (more := len(result.not_covered) - MOST_NOT_COVERED) > 0:
        print_line(f"  not covered: {more} further files (--json lists all)")
    if result.integrity:
        print_line(f"  integrity: {result.integrity} (what verify/ checks without Peergate)")
    for line in result.not_proven:
        print_line(f"  not proven: {masked_line(line, 2000)}")


def show_entry(run: Path, wanted: str, as_json: bool) -> None:
    """Show an entry (by number or key) or a stored value (by digest)."""
    place = place_of(run)
    store = place.store
    if wanted.startswith("sha256:"):
        value = _value(store.get(wanted))
        if as_json:
            print_json({"digest": wanted, "value": value})
        else:
            print_block(store.get(wanted).decode("utf-8", "replace"), 1_000_000)
        return
    entries = place.entries()
    found = entry_named(entries, wanted)
    data = as_data(found)
    # What an entry points to is what a person wants to see next.
    data["points_to"] = {
        name: _value(store.get(value))
        for name, value in found.body.items()
        if name in _POINTING.get(found.entry.kind, _POINTS) and _is_stored(store, value)
    }
    data["way"] = way_of(found, entries)
    if as_json:
        print_json(data)
    else:
        sys.stdout.write(json_text(data) + "\n")


def entry_named(entries: Sequence[Recorded], wanted: str) -> Recorded:
    """Return the entry with a number or key.

    Raises:
        UserError: there is none.
    """
    found = next((one for one in entries if wanted in (str(one.entry.seq), one.entry.key)), None)
    if found is None:
        raise UserError(
            f"no entry '{wanted}'", hint="`peergate audit list` shows numbers; keys look like decision/sft.1"
        )
    return found


_WAY = ("plan", "grant", "launch", "exit", "metrics", "checks", "packet", "verdict", "decision")


def way_of(found: Recorded, entries: Sequence[Recorded]) -> list[dict[str, Any]]:
    """Return the way an attempt took, from plan and grant over raw rows to the decision, with every digest on it."""
    stage, attempt = found.body.get("stage"), found.body.get("attempt")
    if attempt is None:
        return []
    at = f"{stage or 'design'}.{attempt}"
    way: list[dict[str, Any]] = []
    for one in entries:
        kind, key = one.entry.kind, one.entry.key
        # Grants and jobs are named SESSION.STAGE.ATTEMPT, everything else STAGE.ATTEMPT.
        if kind in _WAY and (key.partition("/")[2] == at or key.endswith(f".{at}")):
            names = {name: value for name, value in one.body.items() if str(value).startswith("sha256:")}
            names |= {name: made["digest"] for name, made in one.body.get("outputs", {}).items()}
            way.append({"entry": one.entry.seq, "kind": kind, "key": key, "digest": one.digest, "names": names})
    return way


def _value(data: bytes) -> Any:
    """Return a stored value; what a server sent need not be JSON, or not what JSON may hold."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")


def _is_stored(store: Store, value: Any) -> bool:
    return isinstance(value, str) and value.startswith("sha256:") and store.path(value).is_file()
