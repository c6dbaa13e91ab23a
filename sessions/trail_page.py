"""The review trail as one HTML page that opens without a server: no script, nothing loaded from elsewhere.

It is made from entries and stored values alone, so whoever has an export can have it made again and compare. Every
text in it is escaped and made plain; it may be what a model, a job or a stranger wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reviews.export import PAGE, STORE
from reviews.log.envelope import Recorded, open_envelope, recorded, signatures_text
from reviews.log.note import parse_note
from reviews.log.tiles import CHECKPOINT, read_bundles
from reviews.store import Store
from reviews.text import plain
from specs.errors import PeergateError

_TEMPLATES = Path(__file__).parent / "templates"
_TEMPLATE = "trail.html.j2"
_SHOWN = ("packet", "verdict", "checks", "metrics", "decision", "exit", "manifest", "order", "request", "response")
_CHARACTERS = 60_000


def page_code() -> str:
    """Return the digest of what makes the page: another one may well make it otherwise."""
    parts = (Path(__file__).read_bytes(), (_TEMPLATES / _TEMPLATE).read_bytes())
    return hashlib.sha256(b"".join(parts)).hexdigest()


def trail_page(entries: list[Recorded], store: Store) -> str:
    """Return the page of a trail."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    people = ("human", "override", "amendment", "retraction")
    environment.filters["plain"] = lambda value: plain(str(value), 4000)
    closing = next((one for one in entries if one.entry.kind == "close"), None)
    return environment.get_template(_TEMPLATE).render(
        code=page_code(),
        session=entries[0].entry.session if entries else "",
        closed=closing.body.get("decision") if closing else None,
        entries=[_entry(one, store) for one in entries],
        gates=_gates(entries, store),
        people=[_entry(one, store) for one in entries if one.entry.kind in people],
    )


def _gates(entries: Sequence[Recorded], store: Store) -> list[dict[str, Any]]:
    """Return one row a decision: what was judged, by whom, on what, and what came out."""
    rows: list[dict[str, Any]] = []
    verdicts = {one.entry.key: one for one in entries if one.entry.kind == "verdict"}
    for one in entries:
        if one.entry.kind != "decision":
            continue
        stage, attempt = one.body.get("stage"), one.body.get("attempt")
        judged = verdicts.get(f"verdict/{stage or 'design'}.{attempt}")
        verdict = _stored(store, judged.body.get("verdict")) if judged else None
        findings = verdict.get("findings", []) if isinstance(verdict, dict) else []
        rows.append(
            {
                "seq": one.entry.seq,
                "stage": stage or "design",
                "attempt": attempt,
                "outcome": one.body.get("outcome"),
                "reasons": one.body.get("reasons", []),
                "conditions": one.body.get("conditions", []),
                "reviewer": judged.body.get("reviewer", "") if judged else "",
                "error": judged.body.get("error", "") if judged else "no verdict",
                "findings": [
                    {"severity": each.get("severity", ""), "text": each.get("statement", each.get("text", ""))}
                    for each in findings
                    if isinstance(each, dict)
                ],
            }
        )
    return rows


def _entry(one: Recorded, store: Store) -> dict[str, Any]:
    moment = datetime.fromtimestamp(int(one.entry.time_ns) // 1_000_000_000, UTC)
    evidence = [
        {"name": name, "digest": one.body[name], "value": _text(_stored(store, one.body[name]))}
        for name in _SHOWN
        if isinstance(one.body.get(name), str) and str(one.body[name]).startswith("sha256:")
    ]
    return {
        "seq": one.entry.seq,
        "kind": one.entry.kind,
        "key": one.entry.key,
        "time": moment.strftime("%Y-%m-%d %H:%M:%S"),
        "digest": one.digest,
        "previous": one.entry.previous,
        "body": _text(one.body),
        "evidence": evidence,
    }


def _stored(store: Store, digest: Any) -> Any:
    try:
        data = store.get(str(digest))
    except PeergateError:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")


def _text(value: Any) -> str:
    if value is None:
        return "not in the content store"
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return plain(text, _CHARACTERS)


def page_damage(folder: Path, notes: list[str]) -> list[str]:
    """Make the page of an export again and compare; a page of other code is noted, not compared."""
    try:
        there = (folder / PAGE).read_text(encoding="utf-8")
        size = parse_note((folder / CHECKPOINT).read_bytes()).size
        envelopes = read_bundles(folder, size)
    except (OSError, UnicodeDecodeError, PeergateError) as error:
        return [f"{PAGE}: cannot be read: {str(error).splitlines()[0]}"]
    if f"page code {page_code()}" not in there:
        notes.append(f"{PAGE} was made by another version of Peergate and is not compared with the entries")
        return []
    entries = [_opened(one) for one in envelopes]
    return [] if trail_page(entries, Store(folder / STORE)) == there else [f"{PAGE}: does not show these entries"]


def _opened(envelope: bytes) -> Recorded:
    opened = open_envelope(envelope)
    return recorded(opened.payload, signatures_text(*opened.signatures))
