"""`peergate audit verify | list | show`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reviews.audit import verify_run
from reviews.store import Store
from reviews.text import plain
from reviews.trail import Recorded, read_entries
from sessions.commands.output import print_json, print_table
from sessions.overview import run_folder, trail_name
from sessions.wiring import STORE
from specs.errors import UserError

_SHOWN = (
    *("stage", "attempt", "key", "mode", "topic", "number", "outcome", "decision", "what", "usd"),
    *("answer", "reason", "error"),
)

_POINTS = ("decision", "verdict", "checks", "metrics", "exit", "manifest", "order")
_POINTING = {"asked": ("request", "read"), "answered": ("answer", "request", "response")}
"""What an entry points to and is shown with it, by its kind."""


def verify(run: Path, as_json: bool) -> None:
    """Verify and end with the audit's own exit code."""
    run = run_folder(run)
    result = verify_run(run, trail_name(run), STORE, lambda text: print(f"{text} ...", file=sys.stderr))
    if as_json:
        print_json(result.as_json())
        raise SystemExit(result.exit_code)
    data = result.as_json()
    print(f"{run}: {data['verdict'].upper()}")
    print(f"  {result.entries} entries, head {result.head}")
    print(f"  {result.files} files compared, {result.rederived} decisions derived again from the raw rows")
    if result.holds == "reviews":
        print("  requested reviews: such a trail is never closed")
    else:
        print(f"  session: {'closed, ' + str(result.decision) if result.closed else 'open'}")
    for line in result.damage:
        print(f"  DAMAGE {plain(line, 2000)}")
    for line in result.notes:
        print(f"  note: {plain(line, 2000)}")
    for line in result.not_proven:
        print(f"  not proven: {line}")
    raise SystemExit(result.exit_code)


def list_entries(run: Path, kind: str | None, stage: str | None, as_json: bool) -> None:
    """List entries, filtered."""
    run = run_folder(run)
    entries = read_entries(run / trail_name(run))
    kinds = {one.entry.kind for one in entries}
    if kind is not None and kind not in kinds:
        raise UserError(f"no entry of kind '{kind}'", hint=f"kinds in this trail: {', '.join(sorted(kinds))}")
    chosen = [
        one
        for one in entries
        if (kind is None or one.entry.kind == kind) and (stage is None or one.body.get("stage") == stage)
    ]
    if as_json:
        print_json({"entries": [_as_json(one) for one in chosen]})
        return
    rows = [(str(one.entry.seq), _time(one), one.entry.kind, _gist(one)) for one in chosen]
    print_table(("entry", "time", "kind", "what"), rows)


def show_entry(run: Path, wanted: str, as_json: bool) -> None:
    """Show an entry (by number or key) or a stored value (by digest)."""
    run = run_folder(run)
    if wanted.startswith("sha256:"):
        sys.stdout.write(plain(Store(run / STORE).get(wanted).decode("utf-8", "replace"), 1_000_000))
        sys.stdout.write("\n")
        return
    entries = read_entries(run / trail_name(run))
    found = next((one for one in entries if wanted in (str(one.entry.seq), one.entry.key)), None)
    if found is None:
        raise UserError(
            f"no entry '{wanted}'", hint="`peergate audit list` shows numbers; keys look like decision/sft.1"
        )
    data = _as_json(found)
    # What an entry points to is what a person wants to see next.
    store = Store(run / STORE)
    data["points_to"] = {
        name: _value(store.get(value))
        for name, value in found.body.items()
        if name in _POINTING.get(found.entry.kind, _POINTS) and _is_stored(store, value)
    }
    if as_json:
        print_json(data)
    else:
        print(plain(json.dumps(data, indent=2, ensure_ascii=False), 1_000_000))


def _value(data: bytes) -> Any:
    """Return a stored value; what a server sent need not be JSON."""
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")


def _is_stored(store: Store, value: Any) -> bool:
    return isinstance(value, str) and value.startswith("sha256:") and store.path(value).is_file()


def _as_json(recorded: Recorded) -> dict[str, Any]:
    return recorded.entry.model_dump(mode="json") | {"digest": recorded.digest}


def _time(recorded: Recorded) -> str:
    return datetime.fromtimestamp(int(recorded.entry.time_ns) / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _gist(recorded: Recorded) -> str:
    shown = [f"{name}={_short(recorded.body[name])}" for name in _SHOWN if recorded.body.get(name) not in (None, "")]
    return plain(" ".join(shown), 100) or recorded.entry.key


def _short(value: Any) -> str:
    """Return a value for a table: of a digest its beginning, which is enough to find it."""
    text = str(value)
    return f"{text[:19]}..." if text.startswith("sha256:") else text
