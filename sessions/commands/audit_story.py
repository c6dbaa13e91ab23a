"""`peergate audit log | diff | export`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reviews.export import export_run
from reviews.store import Store
from reviews.text import plain
from reviews.trail import Recorded, read_entries
from sessions.commands.audit import entry_named
from sessions.commands.audit_list import when
from sessions.commands.output import print_json
from sessions.folders import STORE, run_folder, trail_name
from sessions.trail_page import trail_page
from specs.errors import PeergateError, UserError

_TOLD = {"human": "answer", "override": "reason", "amendment": "outcome", "retraction": "reason", "close": "decision"}


def log(run: Path, as_json: bool) -> None:
    """Tell every gate, and what people and the end of the session added."""
    run = run_folder(run)
    entries = read_entries(run / trail_name(run))
    told = list(_story(entries))
    if as_json:
        print_json({"log": told})
        return
    for one in told:
        print(f"{one['time']}  entry {one['entry']}: {plain(one['what'], 300)}")
        for line in one["lines"]:
            print(f"    {plain(line, 300)}")


def _story(entries: Sequence[Recorded]) -> Iterator[dict[str, Any]]:
    verdicts = {one.entry.key.partition("/")[2]: one for one in entries if one.entry.kind == "verdict"}
    for one in entries:
        kind, body = one.entry.kind, one.body
        lines: list[str] = []
        if kind == "decision":
            at = f"{body.get('stage') or 'design'}.{body.get('attempt')}"
            what = f"{at} {body.get('outcome')}"
            judged = verdicts.get(at)
            if judged is not None:
                cost = f", {judged.body['usd']} USD" if judged.body.get("usd") else ""
                lines.append(f"reviewed by {judged.body.get('reviewer')} (entry {judged.entry.seq}{cost})")
            lines += [str(reason) for reason in body.get("reasons", ())]
            lines += [f"condition {each.get('id')} for {each.get('stage')}" for each in body.get("conditions") or ()]
        elif kind in _TOLD:
            by = f" by {body['by']}" if body.get("by") else ""
            what = f"{kind}{by}: {body.get(_TOLD[kind], '')}"
        elif kind in ("exit", "lost"):
            what = f"job {body.get('key')} {'ended' if kind == 'exit' else 'was lost'}"
        else:
            continue
        yield {"entry": one.entry.seq, "time": when(one), "kind": kind, "what": what, "lines": lines}


def diff(run: Path, first: str, second: str, as_json: bool) -> None:
    """Compare two entries, leaf by leaf, with the values they point to."""
    run = run_folder(run)
    entries, store = read_entries(run / trail_name(run)), Store(run / STORE)
    one, two = (dict(_leaves("", _whole(entry_named(entries, name), store))) for name in (first, second))
    changed = [
        {"where": name, "first": one.get(name), "second": two.get(name)}
        for name in sorted(one.keys() | two.keys())
        if one.get(name) != two.get(name)
    ]
    if as_json:
        print_json({"first": first, "second": second, "differences": changed})
        return
    for each in changed:
        print(plain(each["where"] or "", 200))
        for mark, name in (("-", "first"), ("+", "second")):
            print(f"  {mark} {plain(each[name] or 'nothing', 300)}")
    if not changed:
        print("no difference")


def _whole(recorded: Recorded, store: Store) -> dict[str, Any]:
    """Return a body with the JSON values its digests stand for."""
    return {name: _value(store, value) for name, value in recorded.body.items()}


def _value(store: Store, value: Any) -> Any:
    if isinstance(value, str) and value.startswith("sha256:"):
        try:
            return json.loads(store.get(value))
        except (PeergateError, ValueError, RecursionError):
            return value
    return value


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), each)
    elif isinstance(value, list) and value:
        for number, each in enumerate(value):
            yield from _leaves(f"{name}[{number}]", each)
    else:
        yield name, json.dumps(value, ensure_ascii=False)


def export(run: Path, target: Path) -> None:
    """Write the export and say how to verify it."""
    run = run_folder(run)
    name = trail_name(run)
    if not (run / name).is_file():
        raise UserError("there is no trail", where=str(run))
    walk, count = export_run(run, name, STORE, target, trail_page)
    print(f"{target}: {walk.tree.size} entries, {count} files, root {walk.root}")
    print(f"verify: peergate audit verify {target}")
